//! Clusters that exist, as opposed to deleted ones, and the errors of looking for one.

use std::sync::Arc;

use proto::ClusterId;

use super::cluster_spec::ClusterSpecError;
use super::networks::NETWORK_CLUSTERS_MAX;
use super::records::Cluster;
use super::store::{StoreError, Transaction};

/// Names that no cluster can have: the gateway's own host names would be theirs, or users of browsers would
/// take them for the server's.
pub(super) const NAMES_REFUSED: [&str; 14] = [
    "admin", "api", "apis", "clusters", "console", "gateway", "healthz", "livez", "metrics", "openapi",
    "readyz", "tombolo", "version", "www",
];

/// The reason why a cluster was not created, changed or deleted.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A cluster of this name already exists.
    #[error(
        "cluster {0} is there already; change it with `tombolo cluster label` or `tombolo cluster update`, or print the command that \
         joins it with `tombolo token create --cluster {0} -o helm`"
    )]
    Exists(ClusterId),
    /// The cluster does not exist.
    #[error("there is no cluster {0}; `tombolo cluster list` shows those that there are")]
    Unknown(ClusterId),
    /// No cluster can have this name.
    #[error("no cluster may be called {0}, which is reserved for the server itself; choose another name")]
    Refused(ClusterId),
    /// The name belonged to a deleted cluster.
    #[error(
        "a cluster {cluster} was deleted, and its name is reserved for {days} more days; bring it back by `tombolo cluster \
         undelete {cluster}`, or choose another name"
    )]
    Reserved {
        /// The name of the cluster.
        cluster: ClusterId,
        /// Days until the name is free, rounded up.
        days: u64,
    },
    /// There is nothing to undelete, because the cluster exists.
    #[error(
        "cluster {0} is not deleted, so there is nothing to undelete; `tombolo cluster list {0}` shows it"
    )]
    NotDeleted(ClusterId),
    /// No cluster of this name was ever deleted, or its name has been free for a day.
    #[error(
        "there is nothing to undelete: no deleted cluster {0} is known. Check the name, or make it: tombolo cluster create {0}"
    )]
    NeverDeleted(ClusterId),
    /// The reservation of the deleted cluster's name has ended.
    #[error(
        "it is too late to undelete cluster {cluster}: the reservation of its name has ended, {days} days after it was deleted. \
         Make a new one: tombolo cluster create {cluster}"
    )]
    TooLate {
        /// The name of the cluster.
        cluster: ClusterId,
        /// Days from the deletion to the end of the reservation.
        days: u64,
    },
    /// The limit of clusters is reached.
    #[error("{0} clusters are known, which is the most; delete one, or raise `limits.server.clusters`")]
    Full(usize),
    /// The limit of clusters in one network is reached.
    #[error(
        "{max} clusters are in the network {0:?}, which is the most; use another, or take some out of it",
        max = NETWORK_CLUSTERS_MAX
    )]
    NetworkFull(String),
    /// The description of the cluster is invalid.
    #[error(transparent)]
    InvalidSpec(#[from] ClusterSpecError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The cluster in the store, or the `cached` one that is not in the store yet. Fails for a deleted one.
pub(super) fn existing_cluster(
    transaction: &mut Transaction<'_>,
    cluster: &ClusterId,
    cached: Option<Arc<Cluster>>,
) -> Result<Cluster, ClusterError> {
    let cached = cached.map(|cached| Cluster::clone(&cached));
    let found = transaction.get::<Cluster>(cluster.as_str())?.or(cached);
    found.filter(|found| found.tombstone.is_none()).ok_or_else(|| ClusterError::Unknown(cluster.clone()))
}
