//! Clusters that exist, as opposed to deleted ones, and the errors of looking for one.

use std::sync::Arc;

use proto::ClusterId;

use super::CLUSTERS_MAX;
use super::cluster_spec::ClusterSpecError;
use super::networks::NETWORK_CLUSTERS_MAX;
use super::records::Cluster;
use super::store::{StoreError, Transaction};

/// Names that are not clusters': the gateway's own host names would be theirs, or a browser's user would take them for such.
pub(super) const NAMES_REFUSED: [&str; 14] = [
    "admin", "api", "apis", "clusters", "console", "gateway", "healthz", "livez", "metrics", "openapi",
    "readyz", "tombolo", "version", "www",
];

/// Why a cluster was not made, changed or deleted.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// It is there.
    #[error(
        "cluster {0} is there already; change it with `tombolo cluster label` or `tombolo cluster update`"
    )]
    Exists(ClusterId),
    /// It is not.
    #[error("there is no cluster {0}; `tombolo cluster list` shows those that there are")]
    Unknown(ClusterId),
    /// A name that no cluster may have.
    #[error("no cluster may be called {0}, which is reserved for the server itself; choose another name")]
    Refused(ClusterId),
    /// Its name was another cluster's.
    #[error(
        "a cluster {cluster} was deleted, and its name is reserved for {days} more days; choose another name"
    )]
    Reserved {
        /// The name.
        cluster: ClusterId,
        /// Rounded up.
        days: u64,
    },
    /// Too many.
    #[error("{max} clusters are known, which is the most; delete one", max = CLUSTERS_MAX)]
    Full,
    /// Too many of one network.
    #[error(
        "{max} clusters are in the network {0:?}, which is the most; use another, or take some out of it",
        max = NETWORK_CLUSTERS_MAX
    )]
    NetworkFull(String),
    /// What was said of it.
    #[error(transparent)]
    InvalidSpec(#[from] ClusterSpecError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The cluster in the store, or the one that was `cached` and is not written down yet; not a deleted one.
pub(super) fn existing_cluster(
    transaction: &Transaction<'_>,
    cluster: &ClusterId,
    cached: Option<Arc<Cluster>>,
) -> Result<Cluster, ClusterError> {
    let cached = cached.map(|cached| Cluster::clone(&cached));
    let found = transaction.get::<Cluster>(cluster.as_str())?.or(cached);
    found.filter(|found| found.tombstone.is_none()).ok_or_else(|| ClusterError::Unknown(cluster.clone()))
}
