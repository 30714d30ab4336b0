//! Ways in at which nobody proves anything: what each is called, from where one may come, and how many at once.

use daemon::config::{KeyError, bounded};
use proto::ClusterId;
use proto::cluster::is_dns_label;

use super::WAY_IN_CONNECTIONS_MAX;
use super::sources::{self, SourceConditions};
use policy::Target;

/// How many connections pass at once unless something else is said.
const CONNECTIONS_DEFAULT: usize = 1_000;

/// How many of one address, or one /64: a build machine's or a node's.
const PER_SOURCE_DEFAULT: usize = 100;

/// A way in by which one comes from where one may, and proves nothing.
#[derive(Debug, Clone)]
pub struct ByPlace {
    /// A DNS label, which no other way in has: who comes by it is `way-in:NAME`.
    pub name: String,
    /// From where one may come.
    pub sources: SourceConditions,
    /// Connections at once; 1 to [`WAY_IN_CONNECTIONS_MAX`].
    pub connections: usize,
    /// The same of one address, or one /64; 1 to `connections`.
    pub connections_per_source: usize,
}

/// Where it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The cluster.
    pub cluster: ClusterId,
    /// Its API server, as its agent advertises it.
    pub target: Target,
}

/// What of one stands in the file.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) name: Option<String>,
    pub(super) sources: Option<Vec<String>>,
    pub(super) connections: Option<usize>,
    pub(super) connections_per_source: Option<usize>,
}

/// The one at the key `at`, whose name is none of the others'.
pub(super) fn valid<'a>(
    at: &str,
    written: Written,
    mut others: impl Iterator<Item = &'a str>,
) -> Result<ByPlace, KeyError> {
    let Written { name, sources, connections, connections_per_source } = written;
    let name = name.unwrap_or_default();
    if !is_dns_label(&name) || others.any(|other| other == name) {
        let allowed = "1 to 63 lower-case letters, digits and '-', which policy has behind way-in: and no other way in has";
        return Err(KeyError::new(format!("{at}.name"), format_args!("{name:?}"), allowed));
    }
    let connections = connections.unwrap_or(CONNECTIONS_DEFAULT);
    let connections = bounded(&format!("{at}.connections"), connections, 1..=WAY_IN_CONNECTIONS_MAX)?;
    let per_source = connections_per_source.unwrap_or_else(|| PER_SOURCE_DEFAULT.min(connections));
    Ok(ByPlace {
        name,
        sources: sources::valid(&format!("{at}.sources"), sources)?,
        connections,
        connections_per_source: bounded(&format!("{at}.connectionsPerSource"), per_source, 1..=connections)?,
    })
}

/// The cluster that is named at the key `at`.
pub(super) fn cluster(at: String, written: Option<String>) -> Result<ClusterId, KeyError> {
    let cluster = written.unwrap_or_default();
    cluster.parse().map_err(|_| KeyError::new(at, format_args!("{cluster:?}"), "the name of one cluster"))
}

/// The target that is named at the key `at`.
pub(super) fn target(at: String, written: Option<String>) -> Result<Target, KeyError> {
    let target = written.unwrap_or_default();
    target.parse().map_err(|_| {
        let allowed = "HOST:PORT of its API server, as its agent advertises it (`tombolo clusters -o wide`)";
        KeyError::new(at, format_args!("{target:?}"), allowed)
    })
}
