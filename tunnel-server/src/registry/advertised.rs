//! The endpoints that a cluster's agents advertise. They are remembered while the agents are away.

use std::sync::PoisonError;

use dashmap::DashMap;
use policy::{Target, TargetEntry};
use proto::ClusterId;
use proto::greeting::Advertised;

use super::{RegisteredTunnel, Registry};
use crate::directory::Directory;

/// The endpoints that were advertised last, by cluster, for clusters that are away.
#[derive(Default)]
pub(super) struct LastAdvertised(DashMap<ClusterId, Vec<String>>);

impl LastAdvertised {
    /// Stores the endpoints of the cluster's last tunnel. The number of entries stays within the number of
    /// known clusters.
    pub(super) fn keep(&self, cluster: &ClusterId, left: &RegisteredTunnel, directory: &Directory) {
        let Advertised { endpoints, .. } = left.advertised();
        // The agent may have had no time to advertise anything.
        if endpoints.is_empty() {
            return;
        }
        if self.0.len() >= directory.clusters_max() {
            self.0.retain(|cluster, _| directory.was_seen(cluster));
        }
        self.0.insert(cluster.clone(), endpoints);
    }
}

impl RegisteredTunnel {
    /// A copy of what the tunnel's agent advertises now.
    pub(super) fn advertised(&self) -> Advertised {
        self.advertised.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Registry {
    /// Says whether an agent of `cluster` advertises `target`. While no connected agent advertises anything,
    /// the last known endpoints of the cluster decide. `None` if nothing is known since this server started.
    #[must_use]
    pub fn advertised(&self, cluster: &ClusterId, target: &Target) -> Option<bool> {
        let tunnels = self.0.by_cluster.get(cluster);
        let advertised: Vec<Vec<String>> = tunnels.map_or_else(Vec::new, |tunnels| {
            let endpoints = tunnels.entries().iter().map(|entry| entry.tunnel.advertised().endpoints);
            endpoints.filter(|endpoints| !endpoints.is_empty()).collect()
        });
        if advertised.is_empty() {
            return self.0.last_advertised.0.get(cluster).map(|last| has(&last, target));
        }
        Some(advertised.iter().any(|endpoints| has(endpoints, target)))
    }
}

/// Returns true if one of the endpoints equals or contains `target`.
pub(super) fn has(endpoints: &[String], target: &Target) -> bool {
    endpoints.iter().any(|entry| entry.parse().is_ok_and(|entry: TargetEntry| entry.has(target)))
}
