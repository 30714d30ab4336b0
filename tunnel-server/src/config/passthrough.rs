//! The door at which TLS passes through, as it was written and as it is valid.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use daemon::config::{KeyError, bounded};
use policy::Target;
use proto::ClusterId;
use proto::cluster::is_dns_label;
use serde::Deserialize;

use super::sources::{self, SourceConditions};
use super::valid::{is_dns_name, said_listen};
use super::{CertifiedPair, Egress, Gateway, NAMES_MAX, PASSTHROUGH_CONNECTIONS_MAX, pem};

/// How many connections pass at once unless something else is said.
const CONNECTIONS_DEFAULT: usize = 1_000;

/// How many of one address, or one /64: a build machine's or a node's.
const PER_SOURCE_DEFAULT: usize = 100;

/// The door at which TLS passes through to the cluster that its server name says.
#[derive(Debug)]
pub struct Passthrough {
    /// A DNS label, which no other way in has: who comes by it is `way-in:NAME`.
    pub name: String,
    /// A TCP address.
    pub listen: SocketAddr,
    /// From where one may come.
    pub sources: SourceConditions,
    /// Connections at once; 1 to [`PASSTHROUGH_CONNECTIONS_MAX`].
    pub connections: usize,
    /// The same of one address, or one /64; 1 to `connections`.
    pub connections_per_source: usize,
    /// Where each name leads, in lower case: none is the gateway's own. 1 to [`NAMES_MAX`].
    pub servers: BTreeMap<String, Site>,
}

/// Where a server name leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The cluster.
    pub cluster: ClusterId,
    /// Its API server, as its agent advertises it.
    pub target: Target,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Written {
    name: Option<String>,
    listen: Option<String>,
    sources: Option<Vec<String>>,
    connections: Option<usize>,
    connections_per_source: Option<usize>,
    servers: Option<Vec<WrittenServer>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenServer {
    name: Option<String>,
    cluster: Option<String>,
    target: Option<String>,
}

pub(super) fn valid(
    written: Option<Written>,
    gateway: &Gateway,
    certificate: &CertifiedPair,
    egress: &[Egress],
) -> Result<Option<Passthrough>, KeyError> {
    let Some(written) = written else { return Ok(None) };
    let Written { name, listen, sources, connections, connections_per_source, servers } = written;
    let name = name.unwrap_or_default();
    if !is_dns_label(&name) || egress.iter().any(|egress| egress.name == name) {
        let allowed = "1 to 63 lower-case letters, digits and '-', which policy has behind way-in: and no entry of egress has";
        return Err(KeyError::new("passthrough.name", format_args!("{name:?}"), allowed));
    }
    let listen = said_listen("passthrough.listen", listen)?;
    let connections = connections.unwrap_or(CONNECTIONS_DEFAULT);
    let connections = bounded("passthrough.connections", connections, 1..=PASSTHROUGH_CONNECTIONS_MAX)?;
    let per_source = connections_per_source.unwrap_or_else(|| PER_SOURCE_DEFAULT.min(connections));
    let servers = servers.unwrap_or_default();
    bounded("passthrough.servers", servers.len(), 1..=NAMES_MAX)?;
    let own = Own { gateway, certified: pem::dns_names(certificate) };
    let mut sites = BTreeMap::new();
    for (index, server) in servers.into_iter().enumerate() {
        let (name, site) = self::server(index, server, &own)?;
        if sites.insert(name.clone(), site).is_some() {
            let allowed = "each name once: nothing else says which cluster is meant";
            return Err(KeyError::new(at(index, "name"), name, allowed));
        }
    }
    Ok(Some(Passthrough {
        name,
        listen,
        sources: sources::valid("passthrough.sources", sources)?,
        connections,
        connections_per_source: bounded("passthrough.connectionsPerSource", per_source, 1..=connections)?,
        servers: sites,
    }))
}

/// The names by which the gateway itself is reached.
struct Own<'a> {
    gateway: &'a Gateway,
    /// By its certificate; with a star for a first label.
    certified: Vec<String>,
}

impl Own<'_> {
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

fn server(index: usize, written: WrittenServer, own: &Own<'_>) -> Result<(String, Site), KeyError> {
    let WrittenServer { name, cluster, target } = written;
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
    let cluster = cluster.unwrap_or_default();
    let cluster = cluster.parse().map_err(|_| {
        KeyError::new(at(index, "cluster"), format_args!("{cluster:?}"), "the name of one cluster")
    })?;
    let target = target.unwrap_or_default();
    let target = target.parse().map_err(|_| {
        let allowed = "HOST:PORT of its API server, as its agent advertises it (`tombolo clusters -o wide`)";
        KeyError::new(at(index, "target"), format_args!("{target:?}"), allowed)
    })?;
    Ok((name, Site { cluster, target }))
}

fn at(index: usize, key: &str) -> String {
    format!("passthrough.servers[{index}].{key}")
}
