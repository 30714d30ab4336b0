//! What a cluster's agents advertise, which is remembered while they are away.

use std::sync::PoisonError;

use dashmap::DashMap;
use policy::{Target, TargetEntry};
use proto::ClusterId;
use proto::greeting::Advertised;

use super::{Enlisting, Registry};
use crate::directory::{CLUSTERS_MAX, Directory};

/// What agents of clusters that are away advertised last.
#[derive(Default)]
pub(super) struct LastSaid(DashMap<ClusterId, Vec<String>>);

impl LastSaid {
    /// Keeps what the last agent of a cluster said, of no more clusters than are known.
    pub(super) fn keep(&self, cluster: &ClusterId, left: &Enlisting, directory: &Directory) {
        let Advertised { endpoints, .. } = left.advertised();
        // Who has said nothing had perhaps no time to.
        if endpoints.is_empty() {
            return;
        }
        if self.0.len() >= CLUSTERS_MAX {
            self.0.retain(|cluster, _| directory.was_seen(cluster));
        }
        self.0.insert(cluster.clone(), endpoints);
    }
}

impl Enlisting {
    /// What its agent advertises now.
    pub(super) fn advertised(&self) -> Advertised {
        self.advertised.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Registry {
    /// Whether an agent of `cluster` advertises `target`; while none is here or those that are say nothing, whether the last that did
    /// has. `None`, where nothing is known of it since this server started.
    #[must_use]
    pub fn advertised(&self, cluster: &ClusterId, target: &Target) -> Option<bool> {
        let roster = self.0.rosters.get(cluster);
        let said: Vec<Vec<String>> = roster.map_or_else(Vec::new, |roster| {
            let endpoints = roster.entries().iter().map(|entry| entry.tunnel.advertised().endpoints);
            endpoints.filter(|endpoints| !endpoints.is_empty()).collect()
        });
        if said.is_empty() {
            return self.0.last_said.0.get(cluster).map(|last| has(&last, target));
        }
        Some(said.iter().any(|endpoints| has(endpoints, target)))
    }
}

/// Whether one of the endpoints is `target`, or has it.
pub(super) fn has(endpoints: &[String], target: &Target) -> bool {
    endpoints.iter().any(|entry| entry.parse().is_ok_and(|entry: TargetEntry| entry.has(target)))
}
