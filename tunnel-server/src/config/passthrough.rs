//! The door at which TLS passes through, as it was written and as it is valid.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use daemon::config::{KeyError, bounded};
use serde::Deserialize;

use super::by_place::{self, ByPlace, Site};
use super::value::{is_dns_name, said_listen};
use super::{CertifiedPair, Egress, Gateway, NAMES_MAX, pem};

/// The door at which TLS passes through to the cluster that its server name says.
#[derive(Debug)]
pub struct Passthrough {
    /// Who may come.
    pub way: ByPlace,
    /// A TCP address.
    pub listen: SocketAddr,
    /// Where each name leads, in lower case: none is the gateway's own. 1 to [`NAMES_MAX`].
    pub servers: BTreeMap<String, Site>,
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
    let way = by_place::Written { name, sources, connections, connections_per_source };
    let way = by_place::valid("passthrough", way, egress.iter().map(|egress| egress.name.as_str()))?;
    let listen = said_listen("passthrough.listen", listen)?;
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
    Ok(Some(Passthrough { way, listen, servers: sites }))
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
    let cluster = by_place::cluster(at(index, "cluster"), cluster)?;
    let target = by_place::target(at(index, "target"), target)?;
    Ok((name, Site { cluster, target }))
}

fn at(index: usize, key: &str) -> String {
    format!("passthrough.servers[{index}].{key}")
}
