//! Which cluster a caller means who says an address and, in place of a cluster, a network or several clusters.
//!
//! Every way in where that can be said asks here. One that has the address and where this caller may dial it is meant; several are
//! refused, and nobody chooses for the caller. Clusters that it may not reach are as if they were not there.

use std::collections::BTreeMap;

use policy::{ClusterFacts, Network, Target, TargetEntry, may_advertise};
use proto::ClusterId;
use tracing::info;

use super::{DialError, Dialer};
use crate::authz::{Allowed, Delegation, Dial, NotDelegated, Permit, PolicySnapshot};
use crate::directory::{Cluster, ClusterEntry, NetworkName};
use crate::identity::Caller;

/// Of so many clusters at most that policy allows the cluster is asked about them that is asked too, if one is.
const DELEGATED_MAX: usize = 16;

/// So many are named at most to whom an address is ambiguous.
const LISTED_MAX: usize = 8;

/// Where a caller says that a target is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TargetScope {
    /// In this cluster, whatever other has it.
    Cluster(ClusterId),
    /// In one of these, or of those of these networks.
    OneOf(Vec<ClusterId>, Vec<NetworkName>),
}

/// A cluster that may be meant, and whether its agents advertise the target; `None`, where nothing is known of that.
type ClusterCandidate = (ClusterEntry, Option<bool>);

impl Dialer {
    /// The permit for the one cluster at which `caller` may be connected to `target`.
    ///
    /// # Errors
    /// There is none, or there are several, or it cannot be told.
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
            info!(networks = networks.join(", "), %target, among, "refused: an address that several clusters have");
        }
        resolved
    }
}

/// What both who decides about callers allow, and whether all was asked about.
struct PermittedDials {
    permits: Vec<Permit<Dial>>,
    is_complete: bool,
}

/// The clusters that have the target, as far as is known, and at which this caller may dial it.
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
            // As if it were not there.
            Err(NotDelegated::Forbidden { .. }) => {}
            Err(away @ NotDelegated::Away) => return Err(away),
        }
    }
    Ok(PermittedDials { permits, is_complete })
}

/// The one that there is.
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

/// Whether a cluster has the target. What people say of it in full holds whatever its agents say, and while they are away: nobody
/// else's agent takes the address over meanwhile. A range is what agents advertise of it; all of it, where they were here and have
/// said nothing since this server started.
fn has_target(entry: &ClusterEntry, target: &Target, advertised: Option<bool>) -> bool {
    match store_claim(&entry.record, target) {
        StoreClaim::None => false,
        StoreClaim::Exact => true,
        StoreClaim::WithinRange => advertised.unwrap_or_else(|| entry.last_seen.is_some()),
    }
}

/// How people let a cluster have a target.
enum StoreClaim {
    None,
    WithinRange,
    Exact,
}

fn store_claim(record: &Cluster, target: &Target) -> StoreClaim {
    let wanted = TargetEntry::Exactly(target.clone());
    let fitting = record.advertise.iter().filter(|said| may_advertise(said, &wanted));
    let is_range = |said: &String| said.parse::<Network>().is_ok();
    fitting.fold(StoreClaim::None, |found, said| match found {
        StoreClaim::Exact => StoreClaim::Exact,
        StoreClaim::None | StoreClaim::WithinRange if is_range(said) => StoreClaim::WithinRange,
        StoreClaim::None | StoreClaim::WithinRange => StoreClaim::Exact,
    })
}

/// Clusters by their names, and how many more there are.
pub(super) fn cluster_list(clusters: &[ClusterId]) -> String {
    let named: Vec<&str> = clusters.iter().take(LISTED_MAX).map(ClusterId::as_str).collect();
    match clusters.len().saturating_sub(LISTED_MAX) {
        // More than can be asked about, of which the first may not be reached.
        0 if named.is_empty() => "many clusters".to_owned(),
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests;
