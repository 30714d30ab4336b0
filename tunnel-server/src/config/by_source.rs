//! Entry points without authentication: the name, the allowed source networks and the connection limits of each.

use daemon::config::{KeyError, bounded};
use proto::ClusterId;
use proto::cluster::is_dns_label;

use super::sources::{SourceConditions, sources};
use policy::Target;

/// Most connections that an entry point without authentication can be given.
pub const ENTRY_POINT_CONNECTIONS_MAX: usize = 5_000;

/// Default number of connections at once.
pub(super) const CONNECTIONS_DEFAULT: usize = 1_000;

/// Default number of connections of one address, or one /64: enough for a build machine or a node.
pub(super) const PER_SOURCE_DEFAULT: usize = 100;

/// An entry point that admits clients by their source address alone.
#[derive(Debug, Clone)]
pub struct SourceEntryPoint {
    /// A DNS label that no other entry point has. Its clients are the principal `entry-point:NAME`.
    pub name: String,
    /// The networks from which clients are admitted.
    pub sources: SourceConditions,
    /// Connections at once; 1 to [`ENTRY_POINT_CONNECTIONS_MAX`].
    pub connections: usize,
    /// Connections at once of one address, or one /64; 1 to `connections`.
    pub connections_per_source: usize,
}

/// The API server to which an address or a server name leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterTarget {
    /// The name of the cluster.
    pub cluster: ClusterId,
    /// The cluster's API server, as its agent advertises it.
    pub target: Target,
}

/// The keys that every section of such an entry point has.
#[derive(Debug)]
pub(super) struct RawSourceEntryPoint {
    pub(super) name: Option<String>,
    pub(super) sources: Option<Vec<String>>,
    pub(super) connections: Option<usize>,
    pub(super) connections_per_source: Option<usize>,
}

/// The entry point whose keys stand below `section`. Its name must differ from the `others`.
pub(super) fn source_entry_point<'a>(
    section: &str,
    raw: RawSourceEntryPoint,
    mut others: impl Iterator<Item = &'a str>,
) -> Result<SourceEntryPoint, KeyError> {
    let RawSourceEntryPoint { name, sources, connections, connections_per_source } = raw;
    let name = name.unwrap_or_default();
    if !is_dns_label(&name) || others.any(|other| other == name) {
        let allowed = "1 to 63 lower-case letters, digits and '-', which policy has behind entry-point: and no other entry point has";
        return Err(KeyError::new(format!("{section}.name"), format_args!("{name:?}"), allowed));
    }
    let connections = connections.unwrap_or(CONNECTIONS_DEFAULT);
    let connections =
        bounded(&format!("{section}.connections"), connections, 1..=ENTRY_POINT_CONNECTIONS_MAX)?;
    let per_source = connections_per_source.unwrap_or_else(|| PER_SOURCE_DEFAULT.min(connections));
    Ok(SourceEntryPoint {
        name,
        sources: self::sources(&format!("{section}.sources"), sources)?,
        connections,
        connections_per_source: bounded(
            &format!("{section}.connectionsPerSource"),
            per_source,
            1..=connections,
        )?,
    })
}

/// Parses the name of the cluster at the key `at`.
pub(super) fn cluster(at: String, raw: Option<String>) -> Result<ClusterId, KeyError> {
    let cluster = raw.unwrap_or_default();
    cluster.parse().map_err(|_| KeyError::new(at, format_args!("{cluster:?}"), "the name of one cluster"))
}

/// Parses the target at the key `at`.
pub(super) fn target(at: String, raw: Option<String>) -> Result<Target, KeyError> {
    let target = raw.unwrap_or_default();
    target.parse().map_err(|_| {
        let allowed =
            "HOST:PORT of its API server, as its agent advertises it (`tombolo cluster list -o wide`)";
        KeyError::new(at, format_args!("{target:?}"), allowed)
    })
}
