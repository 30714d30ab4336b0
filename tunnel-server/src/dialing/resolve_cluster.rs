//! Finds the cluster of an address when the caller names a network, or several clusters, in place of one
//! cluster.
//!
//! All entry points that accept such requests use it. Exactly one cluster must have the address and let this
//! caller dial it. Several are refused, because the server never chooses for the caller. Clusters that the
//! caller may not reach do not count.

use std::collections::BTreeMap;

use policy::{ClusterFacts, Network, Target, TargetEntry, may_advertise};
use proto::ClusterId;
use tracing::info;

use super::error::cluster_list;
use super::{DialError, Dialer};
use crate::authz::{Allowed, Delegation, Dial, NotDelegated, Permit, PolicySnapshot};
use crate::directory::{Cluster, ClusterEntry, NetworkName};
use crate::identity::Caller;

/// Most clusters for which the delegated cluster is asked in one request.
const DELEGATED_MAX: usize = 16;

/// The clusters in which a target may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TargetScope {
    /// In this cluster, even if another cluster has it too.
    Cluster(ClusterId),
    /// In one of these clusters, or of the clusters of these networks.
    OneOf(Vec<ClusterId>, Vec<NetworkName>),
}

/// A candidate cluster, and whether its agents advertise the target. `None` if nothing is known about that.
type ClusterCandidate = (ClusterEntry, Option<bool>);

impl Dialer {
    /// The permit for the one cluster in which `caller` may be connected to `target`.
    ///
    /// # Errors
    /// [`DialError`] if no cluster or several clusters qualify, or the delegated cluster does not answer.
    pub(super) async fn resolve_cluster(
        &self,
        caller: &Caller,
        (clusters, networks): (&[ClusterId], &[NetworkName]),
        target: &Target,
    ) -> Result<Permit<Dial>, DialError> {
        let directory = self.0.registry.directory();
        let named = clusters.iter().filter_map(|cluster| directory.entry(cluster));
        let entries = named.chain(networks.iter().flat_map(|network| directory.clusters_of(network)));
        let each_once: BTreeMap<ClusterId, ClusterEntry> =
            entries.map(|entry| (entry.cluster.clone(), entry)).collect();
        let advertised_by = |cluster: &ClusterId| self.0.registry.advertised(cluster, target);
        let candidates: Vec<ClusterCandidate> =
            each_once.into_iter().map(|(cluster, entry)| (entry, advertised_by(&cluster))).collect();
        let snapshot = self.0.policy.snapshot();
        let permitted = permitted(&snapshot, &self.0.delegation, caller, target, candidates).await;
        let resolved = exactly_one(permitted?, target);
        if let Err(DialError::Ambiguous(target, among)) = &resolved {
            let networks: Vec<&str> = networks.iter().map(NetworkName::as_str).collect();
            let among = cluster_list(among);
            info!(networks = networks.join(", "), %target, among, "refused an address that several clusters have");
        }
        resolved
    }
}

/// The permits from both policy and delegation, and whether every candidate was asked about.
struct PermittedDials {
    permits: Vec<Permit<Dial>>,
    is_complete: bool,
}

/// The clusters that have the target, as far as is known, and in which policy lets this caller dial it.
fn allowed(
    snapshot: &PolicySnapshot,
    caller: &Caller,
    target: &Target,
    candidates: impl IntoIterator<Item = ClusterCandidate>,
) -> Vec<Allowed<Dial>> {
    let claiming =
        candidates.into_iter().filter(|(entry, advertised)| has_target(entry, target, *advertised));
    let allowed = claiming.filter_map(|(ClusterEntry { cluster, record, .. }, _)| {
        let facts = ClusterFacts { labels: record.labels.clone() };
        snapshot.authorize_dial(caller, Dial { cluster, target: target.clone() }, &facts).ok()
    });
    allowed.collect()
}

async fn permitted(
    snapshot: &PolicySnapshot,
    delegation: &Delegation,
    caller: &Caller,
    target: &Target,
    candidates: impl IntoIterator<Item = ClusterCandidate>,
) -> Result<PermittedDials, NotDelegated> {
    let allowed = allowed(snapshot, caller, target, candidates);
    let is_complete = allowed.len() <= DELEGATED_MAX;
    let mut permits = Vec::new();
    for allowed in allowed.into_iter().take(DELEGATED_MAX) {
        match delegation.grant(allowed).await {
            Ok(permit) => permits.push(permit),
            // A denied cluster does not count.
            Err(NotDelegated::Forbidden { .. }) => {}
            Err(away @ NotDelegated::Away) => return Err(away),
        }
    }
    Ok(PermittedDials { permits, is_complete })
}

/// The only permit, or the error about none or several.
fn exactly_one(permitted: PermittedDials, target: &Target) -> Result<Permit<Dial>, DialError> {
    let PermittedDials { permits, is_complete } = permitted;
    let one: Result<[Permit<Dial>; 1], _> = permits.try_into();
    match one {
        Ok([permit]) if is_complete => Ok(permit),
        Ok([permit]) => Err(DialError::Ambiguous(target.clone(), vec![permit.what().cluster.clone()])),
        Err(none) if none.is_empty() && is_complete => Err(DialError::NotFound(target.clone())),
        Err(several) => {
            let among = several.iter().map(|permit| permit.what().cluster.clone()).collect();
            Err(DialError::Ambiguous(target.clone(), among))
        }
    }
}

/// Returns true if a cluster has the target. An address in the store counts whatever agents advertise, and
/// while they are away, so that no other cluster's agent takes it over. Of a range only what agents advertise
/// counts. If agents were seen before but nothing is known since this server started, the whole range counts.
fn has_target(entry: &ClusterEntry, target: &Target, advertised: Option<bool>) -> bool {
    match store_claim(&entry.record, target) {
        StoreClaim::None => false,
        StoreClaim::Exact => true,
        StoreClaim::WithinRange => advertised.unwrap_or_else(|| entry.last_seen.is_some()),
    }
}

/// The precision with which the store's entries name a target for a cluster.
enum StoreClaim {
    None,
    WithinRange,
    Exact,
}

fn store_claim(record: &Cluster, target: &Target) -> StoreClaim {
    let wanted = TargetEntry::Exactly(target.clone());
    let fitting = record.advertise.iter().filter(|entry| may_advertise(entry, &wanted));
    let is_range = |entry: &String| entry.parse::<Network>().is_ok();
    fitting.fold(StoreClaim::None, |found, entry| match found {
        StoreClaim::Exact => StoreClaim::Exact,
        StoreClaim::None | StoreClaim::WithinRange if is_range(entry) => StoreClaim::WithinRange,
        StoreClaim::None | StoreClaim::WithinRange => StoreClaim::Exact,
    })
}

#[cfg(test)]
mod tests;
