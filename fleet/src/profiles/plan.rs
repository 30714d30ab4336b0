//! Compares the clusters of the gateway with the profiles of the host cluster. It asks and writes nothing.

use std::collections::BTreeMap;

use kube::core::DynamicObject;
use time::OffsetDateTime;

use super::access::Access;
use super::profile::{self, Profile};
use crate::gateway::Cluster;
use crate::metrics::Write;

/// One write to the host cluster.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    pub(super) kind: Write,
    pub(super) name: String,
    /// The object to apply; null for a deletion.
    pub(super) object: serde_json::Value,
}

/// The work that is left until the profiles say what the gateway says.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The writes, for each name in the order in which they are made.
    pub(super) steps: Vec<Step>,
    /// The names of clusters whose profile belongs to another manager.
    pub(super) foreign: Vec<String>,
    /// The names of our profiles without a cluster.
    pub(super) missing: Vec<String>,
}

/// Compares. Profiles of other managers are left alone.
pub(super) fn compare(
    manager: &str,
    access: &Access,
    clusters: &[Cluster],
    present: &[DynamicObject],
    now: OffsetDateTime,
) -> Round {
    let mut by_name: BTreeMap<&str, &DynamicObject> =
        present.iter().filter_map(|object| Some((object.metadata.name.as_deref()?, object))).collect();
    let mut round = Round::default();
    for cluster in clusters {
        let wanted = Profile::of(cluster, manager, access);
        match by_name.remove(wanted.name.as_str()) {
            Some(found) if !profile::is_of(found, manager) => round.foreign.push(wanted.name),
            found => round.steps.extend(steps(&wanted, found, now)),
        }
    }
    let ours = by_name.into_iter().filter(|(_, object)| profile::is_of(object, manager));
    round.missing = ours.map(|(name, _)| name.to_owned()).collect();
    round
}

fn steps(wanted: &Profile, found: Option<&DynamicObject>, now: OffsetDateTime) -> Vec<Step> {
    let step = |kind, object| Step { kind, name: wanted.name.clone(), object };
    let mut steps = Vec::new();
    if !found.is_some_and(|found| wanted.is_applied(found)) {
        steps.push(step(Write::Apply, wanted.object()));
    }
    if !found.is_some_and(|found| wanted.is_told(found)) {
        steps.push(step(Write::Status, wanted.status(found, now)));
    }
    steps
}

#[cfg(test)]
mod tests;
