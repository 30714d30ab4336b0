//! Networks: names that distinguish clusters with the same addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use proto::ClusterId;
use proto::cluster::is_dns_label;

use super::records::Cluster;
use super::{ClusterEntry, Directory};

/// Most clusters of one network: each dial that names the network searches them all.
pub const NETWORK_CLUSTERS_MAX: usize = 1_000;

/// A network's name: a DNS label, made only by parsing. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetworkName(Arc<str>);

/// The text is not the name of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not the name of a network: use 1 to 63 lower-case letters, digits and '-'")]
pub struct NotANetworkName;

/// The clusters of each network.
#[derive(Debug, Default)]
pub(super) struct NetworkIndex(BTreeMap<NetworkName, BTreeSet<ClusterId>>);

impl NetworkName {
    /// The name as a text slice.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NetworkName {
    type Err = NotANetworkName;

    fn from_str(text: &str) -> Result<Self, NotANetworkName> {
        if is_dns_label(text) { Ok(Self(text.into())) } else { Err(NotANetworkName) }
    }
}

impl fmt::Display for NetworkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl NetworkIndex {
    /// Applies a change of a cluster's description.
    pub(super) fn apply(&mut self, cluster: &ClusterId, before: Option<&Cluster>, now: Option<&Cluster>) {
        for name in names(before) {
            if let Some(clusters) = self.0.get_mut(&name) {
                clusters.remove(cluster);
                if clusters.is_empty() {
                    self.0.remove(&name);
                }
            }
        }
        for name in names(now) {
            self.0.entry(name).or_default().insert(cluster.clone());
        }
    }

    /// The clusters of a network, ordered by name.
    pub(super) fn of(&self, network: &NetworkName) -> impl Iterator<Item = &ClusterId> {
        self.0.get(network).into_iter().flatten()
    }

    /// The first of these networks that has no room for `cluster`, if any.
    fn full_network(&self, wanted: &[String], cluster: &ClusterId) -> Option<String> {
        let is_full = |name: &&String| {
            let clusters = name.parse().ok().and_then(|name: NetworkName| self.0.get(&name));
            clusters
                .is_some_and(|clusters| clusters.len() >= NETWORK_CLUSTERS_MAX && !clusters.contains(cluster))
        };
        wanted.iter().find(is_full).cloned()
    }
}

impl Directory {
    /// The clusters of a network, ordered by name. Empty if there are more than [`NETWORK_CLUSTERS_MAX`], as
    /// an older version could store: a part of them is never searched.
    #[must_use]
    pub fn clusters_of(&self, network: &NetworkName) -> Vec<ClusterEntry> {
        let cache = self.cache();
        let clusters: Vec<&ClusterId> = cache.networks.of(network).collect();
        if clusters.len() > NETWORK_CLUSTERS_MAX {
            tracing::warn!(%network, clusters = clusters.len(), "a network has too many clusters to be searched");
            return Vec::new();
        }
        clusters.into_iter().filter_map(|cluster| cache.entry(cluster)).collect()
    }

    /// The first of these networks that has no room for `cluster`, if any. The result holds while nothing else changes.
    pub(super) fn full_network(&self, networks: &[String], cluster: &ClusterId) -> Option<String> {
        self.cache().networks.full_network(networks, cluster)
    }
}

fn names(record: Option<&Cluster>) -> impl Iterator<Item = NetworkName> {
    // Stored names were validated when they were set.
    record.into_iter().flat_map(|record| &record.networks).filter_map(|name| name.parse().ok())
}
