//! The section `passthrough`: the listener that forwards TLS unterminated, by server name.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use daemon::config::{KeyError, bounded};
use serde::Deserialize;

use super::by_source::{self, ClusterTarget, RawSourceEntryPoint, SourceEntryPoint};
use super::egress::EgressConfig;
use super::gateway::GatewayConfig;
use super::pem::{self, CertifiedPair};
use super::value::{NAMES_MAX, is_dns_name, required_listen_address};

/// The listener that forwards TLS to the cluster that its server name (SNI) selects.
#[derive(Debug)]
pub struct PassthroughConfig {
    /// Its name, sources and connection limits.
    pub entry_point: SourceEntryPoint,
    /// The TCP address to bind.
    pub listen: SocketAddr,
    /// The target of each server name, in lower case; none is the gateway's own name. 1 to [`NAMES_MAX`].
    pub servers: BTreeMap<String, ClusterTarget>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawPassthrough {
    /// Name of the entry point, a DNS label. The policy calls its callers `entry-point:NAME`.
    #[cfg_attr(test, schemars(required))]
    name: Option<String>,
    /// Address and TCP port of the passthrough.
    #[cfg_attr(test, schemars(required))]
    listen: Option<String>,
    /// Networks from which callers may connect, such as 10.0.0.0/8; or `[any]` for all.
    #[cfg_attr(test, schemars(required, length(min = 1, max = super::value::NAMES_MAX)))]
    sources: Option<Vec<String>>,
    /// Connections at once, of all callers together.
    #[cfg_attr(test, schemars(range(min = 1, max = super::by_source::ENTRY_POINT_CONNECTIONS_MAX), extend("default" = super::by_source::CONNECTIONS_DEFAULT)))]
    connections: Option<usize>,
    /// Connections at once of one address, or of one IPv6 /64. The default is never above `connections`.
    #[cfg_attr(test, schemars(range(min = 1, max = super::by_source::ENTRY_POINT_CONNECTIONS_MAX), extend("default" = super::by_source::PER_SOURCE_DEFAULT)))]
    connections_per_source: Option<usize>,
    /// The server names, and the API server of each.
    #[cfg_attr(test, schemars(required, length(min = 1, max = NAMES_MAX)))]
    servers: Option<Vec<RawServer>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawServer {
    /// Server name (SNI) that a client sends. The API server's certificate has to have it.
    #[cfg_attr(test, schemars(required))]
    name: Option<String>,
    /// The cluster of the API server.
    #[cfg_attr(test, schemars(required))]
    cluster: Option<String>,
    /// `HOST:PORT` of the API server in its site.
    #[cfg_attr(test, schemars(required))]
    target: Option<String>,
}

pub(super) fn passthrough(
    raw: Option<RawPassthrough>,
    gateway: &GatewayConfig,
    certificate: &CertifiedPair,
    egress: &[EgressConfig],
) -> Result<Option<PassthroughConfig>, KeyError> {
    let Some(raw) = raw else { return Ok(None) };
    let RawPassthrough { name, listen, sources, connections, connections_per_source, servers } = raw;
    let raw = RawSourceEntryPoint { name, sources, connections, connections_per_source };
    let others = egress.iter().map(|egress| egress.name.as_str());
    let entry_point = by_source::source_entry_point("passthrough", raw, others)?;
    let listen = required_listen_address("passthrough.listen", listen)?;
    let servers = servers.unwrap_or_default();
    bounded("passthrough.servers", servers.len(), 1..=NAMES_MAX)?;
    let own = OwnNames { gateway, certified: pem::dns_names(certificate) };
    let mut targets = BTreeMap::new();
    for (index, server) in servers.into_iter().enumerate() {
        let (name, target) = self::server(index, server, &own)?;
        if targets.insert(name.clone(), target).is_some() {
            let allowed = "each name once: nothing else selects the cluster";
            return Err(KeyError::new(at(index, "name"), name, allowed));
        }
    }
    Ok(Some(PassthroughConfig { entry_point, listen, servers: targets }))
}

/// The names by which the gateway itself is reached.
struct OwnNames<'a> {
    gateway: &'a GatewayConfig,
    /// The DNS names of its certificate; the first label of one can be a `*`.
    certified: Vec<String>,
}

impl OwnNames<'_> {
    fn has(&self, name: &str) -> bool {
        let below = |suffix: &str| name.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.'));
        let certified = |own: &String| match own.strip_prefix("*.") {
            Some(parent) => name.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(parent)),
            None => own.eq_ignore_ascii_case(name),
        };
        self.gateway.hosts.iter().any(|own| own == name)
            || self.gateway.host_suffix.as_deref().is_some_and(|suffix| suffix == name || below(suffix))
            || self.certified.iter().any(certified)
    }
}

fn server(index: usize, raw: RawServer, own: &OwnNames<'_>) -> Result<(String, ClusterTarget), KeyError> {
    let RawServer { name, cluster, target } = raw;
    let name = name.unwrap_or_default().to_ascii_lowercase();
    if !is_dns_name(&name) || name.parse::<IpAddr>().is_ok() {
        let allowed = "a DNS name without a dot at an end, which stands in the API server's certificate";
        return Err(KeyError::new(at(index, "name"), format_args!("{name:?}"), allowed));
    }
    if own.has(&name) {
        let allowed =
            "a name that is not the gateway's own, by its certificate, gateway.hosts or gateway.hostSuffix";
        return Err(KeyError::new(at(index, "name"), name, allowed));
    }
    let cluster = by_source::cluster(at(index, "cluster"), cluster)?;
    let target = by_source::target(at(index, "target"), target)?;
    Ok((name, ClusterTarget { cluster, target }))
}

fn at(index: usize, key: &str) -> String {
    format!("passthrough.servers[{index}].{key}")
}
