//! The section `tunnel`: the listener for agents, and what it does with a copied key.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::config::{KeyError, bounded, seconds};
use proto::session::{SILENCE_LEAST, SILENCE_MAX, SILENCE_MOST};
use serde::Deserialize;

use super::flags::Flags;
use super::roots::{self, TrustedRoots};
use super::value::{file, is_host_and_port, listen_address};

const COPIED_KEY: &str = "tunnel.copiedKey";
const ADDRESSES: &str = "tunnel.addresses";

/// Most addresses of servers that are given to new agents: an agent dials no more.
pub const ADDRESSES_FOR_AGENTS_MAX: usize = 8;

/// The listener for agents, and its roots.
#[derive(Debug)]
pub struct TunnelConfig {
    /// A UDP address; agents come by TCP to the same port.
    pub listen: SocketAddr,
    /// The addresses at which agents reach this server, `HOST:PORT` each; may be empty. New agents are told of them, and all
    /// agents if servers share their records.
    pub addresses: Vec<String>,
    /// The roots that agents' certificates must chain to; at least one.
    pub agent_roots: TrustedRoots,
    /// The time for which a silent tunnel and its exchanges are kept; 9 to 600 s.
    pub outage_limit: Duration,
    /// The choice between two processes that use one agent's certificate at the same time.
    pub copied_key: CopiedKey,
}

/// The choice between two processes that use one certificate at the same time, and both answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopiedKey {
    /// The earlier one: copying a key then gains nothing.
    #[default]
    RefuseNew,
    /// The later one, for sites that move a machine while the old one still runs.
    PreferNew,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawTunnel {
    /// Address and port for agents: UDP for QUIC, and TCP for HTTP/2 if UDP is blocked.
    #[cfg_attr(test, schemars(extend("default" = super::value::LISTEN_DEFAULT.to_string())))]
    listen: Option<String>,
    /// The addresses `HOST:PORT` at which agents reach this server. They are printed into configurations of new agents. By
    /// default, the host of `enrollment.address` with the port of `listen` is printed. If servers share records, agents
    /// of all servers are told of these addresses, which must then lead to this server alone.
    #[cfg_attr(test, schemars(length(min = 0, max = ADDRESSES_FOR_AGENTS_MAX)))]
    addresses: Option<Vec<String>>,
    /// PEM file with the CA certificates of agents.
    #[cfg_attr(test, schemars(required))]
    #[serde(rename = "agentCAFile")]
    agent_ca_file: Option<PathBuf>,
    /// Time for which a tunnel and its exchanges are kept while the link is dark. An agent's own limit applies if it is
    /// shorter.
    #[cfg_attr(test, schemars(range(min = SILENCE_LEAST.as_secs(), max = SILENCE_MOST.as_secs()), extend("default" = SILENCE_MAX.as_secs())))]
    outage_limit_seconds: Option<u64>,
    /// The choice between two processes that use one agent's certificate at the same time: refuse-new turns the later one
    /// away, prefer-new the earlier one.
    #[cfg_attr(test, schemars(extend("default" = "refuse-new"), extend("enum" = ["refuse-new", "prefer-new", null])))]
    copied_key: Option<String>,
}

pub(super) fn tunnel(raw: RawTunnel, flags: &Flags, directory: &Path) -> Result<TunnelConfig, KeyError> {
    let RawTunnel { listen, addresses, agent_ca_file, outage_limit_seconds, copied_key } = raw;
    let agent_ca_file = file("tunnel.agentCAFile", agent_ca_file, directory)?;
    Ok(TunnelConfig {
        listen: listen_address("tunnel.listen", flags.tunnel_listen, listen)?,
        addresses: self::addresses(addresses.unwrap_or_default())?,
        agent_roots: roots::roots("tunnel.agentCAFile", &agent_ca_file)?,
        outage_limit: seconds(
            "tunnel.outageLimitSeconds",
            outage_limit_seconds.unwrap_or(SILENCE_MAX.as_secs()),
            SILENCE_LEAST.as_secs()..=SILENCE_MOST.as_secs(),
        )?,
        copied_key: self::copied_key(copied_key)?,
    })
}

fn addresses(raw: Vec<String>) -> Result<Vec<String>, KeyError> {
    bounded(ADDRESSES, raw.len(), 0..=ADDRESSES_FOR_AGENTS_MAX)?;
    match raw.iter().find(|address| !is_host_and_port(address)) {
        Some(address) => {
            Err(KeyError::new(ADDRESSES, address, "HOST:PORT, by which agents reach tunnel.listen"))
        }
        None => Ok(raw),
    }
}

fn copied_key(raw: Option<String>) -> Result<CopiedKey, KeyError> {
    match raw.as_deref() {
        None => Ok(CopiedKey::default()),
        Some("refuse-new") => Ok(CopiedKey::RefuseNew),
        Some("prefer-new") => Ok(CopiedKey::PreferNew),
        Some(old @ "refuse-newcomer") => Err(KeyError::new(COPIED_KEY, old, "refuse-new, its present name")),
        Some(old @ "prefer-newcomer") => Err(KeyError::new(COPIED_KEY, old, "prefer-new, its present name")),
        Some(other) => Err(KeyError::new(COPIED_KEY, other, "refuse-new or prefer-new")),
    }
}
