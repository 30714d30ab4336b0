//! The endpoints and the version that a cluster's agents advertise. They are remembered while the agents are away.

use std::sync::PoisonError;

use dashmap::DashMap;
use policy::{Target, TargetEntry};
use proto::ClusterId;
use proto::greeting::Advertised;

use super::{RegisteredTunnel, Registry};
use crate::directory::Directory;

/// The endpoints and the version that were advertised last, by cluster, for clusters that are away.
#[derive(Default)]
pub(super) struct LastAdvertised(DashMap<ClusterId, Remembered>);

/// The last words of a cluster's agents, each as long as no other one came.
#[derive(Default)]
struct Remembered {
    endpoints: Vec<String>,
    kubernetes_version: String,
}

impl LastAdvertised {
    /// Stores the endpoints and the version of the cluster's last tunnel. The number of entries stays within the number of
    /// known clusters.
    pub(super) fn keep(&self, cluster: &ClusterId, left: &RegisteredTunnel, directory: &Directory) {
        let Advertised { endpoints, kubernetes_version, certificates: _ } = left.advertised();
        // The agent may have had no time to advertise anything.
        if endpoints.is_empty() && kubernetes_version.is_empty() {
            return;
        }
        if self.0.len() >= directory.clusters_max() {
            self.0.retain(|cluster, _| directory.was_seen(cluster));
        }
        let mut remembered = self.0.entry(cluster.clone()).or_default();
        if !endpoints.is_empty() {
            remembered.endpoints = endpoints;
        }
        if !kubernetes_version.is_empty() {
            remembered.kubernetes_version = kubernetes_version;
        }
    }

    /// The version of the cluster's API server that was advertised last. Empty if none was since this server started.
    pub(super) fn kubernetes_version(&self, cluster: &ClusterId) -> String {
        self.0.get(cluster).map_or_else(String::new, |last| last.kubernetes_version.clone())
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
            let last = self.0.last_advertised.0.get(cluster);
            return last.filter(|last| !last.endpoints.is_empty()).map(|last| has(&last.endpoints, target));
        }
        Some(advertised.iter().any(|endpoints| has(endpoints, target)))
    }
}

/// Returns true if one of the endpoints equals or contains `target`.
pub(super) fn has(endpoints: &[String], target: &Target) -> bool {
    endpoints.iter().any(|entry| entry.parse().is_ok_and(|entry: TargetEntry| entry.has(target)))
}
