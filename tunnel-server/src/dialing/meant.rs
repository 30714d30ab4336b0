//! Which cluster a caller means who says an address and, in place of a cluster, a network or several clusters.
//!
//! Every way in where that can be said asks here. One that has the address and where this caller may dial it is meant; several are
//! refused, and nobody chooses for the caller. Clusters that it may not reach are as if they were not there.

use std::collections::BTreeMap;

use policy::{ClusterFacts, Network, Target, TargetEntry, may_advertise};
use proto::ClusterId;
use tracing::info;

use super::{Dials, NotConnected};
use crate::directory::{Cluster, ClusterEntry, NetworkName};
use crate::identity::Caller;
use crate::permit::{Allowed, Delegation, Dial, Edition, NotDelegated, Permit};

/// Of so many clusters at most that policy allows the cluster is asked about them that is asked too, if one is.
const CONCURRENT_REVIEWS_MAX: usize = 16;

/// So many are named at most to whom an address is ambiguous.
const NAMED_MAX: usize = 8;

/// Where a caller says that a target is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Within {
    /// In this cluster, whatever other has it.
    Cluster(ClusterId),
    /// In one of these, or of those of these networks.
    OneOf(Vec<ClusterId>, Vec<NetworkName>),
}

/// A cluster that may be meant, and whether its agents advertise the target; `None`, where nothing is known of that.
type Possible = (ClusterEntry, Option<bool>);

impl Dials {
    /// The permit for the one cluster at which `caller` may be connected to `target`.
    ///
    /// # Errors
    /// There is none, or there are several, or it cannot be told.
    pub(super) async fn meant(
        &self,
        caller: &Caller,
        (clusters, networks): (&[ClusterId], &[NetworkName]),
        target: &Target,
    ) -> Result<Permit<Dial>, NotConnected> {
        let directory = self.0.registry.directory();
        let named = clusters.iter().filter_map(|cluster| directory.entry(cluster));
        let entries = named.chain(networks.iter().flat_map(|network| directory.clusters_of(network)));
        let each_once: BTreeMap<ClusterId, ClusterEntry> =
            entries.map(|entry| (entry.cluster.clone(), entry)).collect();
        let said_of = |cluster: &ClusterId| self.0.registry.advertised(cluster, target);
        let possible: Vec<Possible> =
            each_once.into_iter().map(|(cluster, entry)| (entry, said_of(&cluster))).collect();
        let edition = self.0.policy.edition();
        let permitted = permitted(&edition, &self.0.delegation, caller, target, possible).await;
        let meant = only(permitted?, target);
        if let Err(NotConnected::Ambiguous(target, among)) = &meant {
            let networks: Vec<&str> = networks.iter().map(NetworkName::as_str).collect();
            let among = listed(among);
            info!(networks = networks.join(", "), %target, among, "refused: an address that several clusters have");
        }
        meant
    }
}

/// What both who decides about callers allow, and whether all was asked about.
struct Permitted {
    permits: Vec<Permit<Dial>>,
    is_all: bool,
}

/// The clusters that have the target, as far as is known, and at which this caller may dial it.
fn allowed(
    edition: &Edition,
    caller: &Caller,
    target: &Target,
    possible: impl IntoIterator<Item = Possible>,
) -> Vec<Allowed<Dial>> {
    let claiming = possible.into_iter().filter(|(entry, advertised)| claims(entry, target, *advertised));
    let allowed = claiming.filter_map(|(ClusterEntry { cluster, record, .. }, _)| {
        let facts = ClusterFacts { labels: record.labels.clone() };
        edition.authorize_dial(caller, Dial { cluster, target: target.clone() }, &facts).ok()
    });
    allowed.collect()
}

async fn permitted(
    edition: &Edition,
    delegation: &Delegation,
    caller: &Caller,
    target: &Target,
    possible: impl IntoIterator<Item = Possible>,
) -> Result<Permitted, NotDelegated> {
    let allowed = allowed(edition, caller, target, possible);
    let is_all = allowed.len() <= CONCURRENT_REVIEWS_MAX;
    let mut permits = Vec::new();
    for allowed in allowed.into_iter().take(CONCURRENT_REVIEWS_MAX) {
        match delegation.grant(allowed).await {
            Ok(permit) => permits.push(permit),
            // As if it were not there.
            Err(NotDelegated::Forbidden { .. }) => {}
            Err(away @ NotDelegated::Away) => return Err(away),
        }
    }
    Ok(Permitted { permits, is_all })
}

/// The one that there is.
fn only(permitted: Permitted, target: &Target) -> Result<Permit<Dial>, NotConnected> {
    let Permitted { permits, is_all } = permitted;
    let one: Result<[Permit<Dial>; 1], _> = permits.try_into();
    match one {
        Ok([permit]) if is_all => Ok(permit),
        Ok([permit]) => Err(NotConnected::Ambiguous(target.clone(), vec![permit.what().cluster.clone()])),
        Err(none) if none.is_empty() && is_all => Err(NotConnected::Nowhere(target.clone())),
        Err(several) => {
            let among = several.iter().map(|permit| permit.what().cluster.clone()).collect();
            Err(NotConnected::Ambiguous(target.clone(), among))
        }
    }
}

/// Whether a cluster has the target. What people say of it in full holds whatever its agents say, and while they are away: nobody
/// else's agent takes the address over meanwhile. A range is what agents advertise of it; all of it, where they were here and have
/// said nothing since this server started.
fn claims(entry: &ClusterEntry, target: &Target, advertised: Option<bool>) -> bool {
    match said(&entry.record, target) {
        Said::Nothing => false,
        Said::InFull => true,
        Said::WithinRange => advertised.unwrap_or_else(|| entry.last_seen.is_some()),
    }
}

/// How people let a cluster have a target.
enum Said {
    Nothing,
    WithinRange,
    InFull,
}

fn said(record: &Cluster, target: &Target) -> Said {
    let wanted = TargetEntry::Exactly(target.clone());
    let fitting = record.advertise.iter().filter(|said| may_advertise(said, &wanted));
    let is_range = |said: &String| said.parse::<Network>().is_ok();
    fitting.fold(Said::Nothing, |found, said| match found {
        Said::InFull => Said::InFull,
        Said::Nothing | Said::WithinRange if is_range(said) => Said::WithinRange,
        Said::Nothing | Said::WithinRange => Said::InFull,
    })
}

/// Clusters by their names, and how many more there are.
pub(super) fn listed(clusters: &[ClusterId]) -> String {
    let named: Vec<&str> = clusters.iter().take(NAMED_MAX).map(ClusterId::as_str).collect();
    match clusters.len().saturating_sub(NAMED_MAX) {
        // More than can be asked about, of which the first may not be reached.
        0 if named.is_empty() => "many clusters".to_owned(),
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests;
