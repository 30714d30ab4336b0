//! The metrics, under names that begin with `tombolo_fleet_`. `docs/metrics.md` has all of them.

use std::time::{SystemTime, UNIX_EPOCH};

use metrics::{counter, describe_counter, describe_gauge, gauge};

const LEADER: &str = "tombolo_fleet_leader";
const CLUSTERS: &str = "tombolo_fleet_clusters";
const FOREIGN: &str = "tombolo_fleet_foreign_cluster_profiles";
const WRITES: &str = "tombolo_fleet_cluster_profile_writes_total";
const FAILURES: &str = "tombolo_fleet_failures_total";
const LAST_SUCCESS: &str = "tombolo_fleet_last_success_timestamp_seconds";

/// A part of a round: the side that the controller asked or wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The list of the gateway's clusters.
    Gateway,
    /// The profiles of the host cluster.
    Profiles,
}

impl Part {
    /// All parts of a round.
    const ALL: [Self; 2] = [Self::Gateway, Self::Profiles];

    /// The name in metrics and in `/readyz`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Profiles => "cluster-profiles",
        }
    }
}

/// A kind of write to the host cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// Labels and spec of a profile.
    Apply,
    /// The status of a profile.
    Status,
    /// The end of a profile.
    Delete,
}

impl Write {
    /// All kinds of a write.
    const ALL: [Self; 3] = [Self::Apply, Self::Status, Self::Delete];

    /// The value of the label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Status => "status",
            Self::Delete => "delete",
        }
    }
}

/// Describes all metrics, and sets them to 0.
pub fn describe() {
    describe_gauge!(LEADER, "1 if this controller holds the Lease, else 0.");
    describe_gauge!(CLUSTERS, "Clusters that the gateway has listed last.");
    describe_gauge!(FOREIGN, "Profiles of other managers that have the name of a cluster.");
    describe_counter!(WRITES, "Writes of cluster profiles that the host cluster took, by kind.");
    describe_counter!(FAILURES, "Rounds in which a part failed, by part.");
    describe_gauge!(
        LAST_SUCCESS,
        "Time at which all profiles were last as the gateway says, since the epoch."
    );
    [LEADER, CLUSTERS, FOREIGN, LAST_SUCCESS].iter().for_each(|name| gauge!(*name).set(0.0));
    Part::ALL.iter().for_each(|part| counter!(FAILURES, "part" => part.name()).absolute(0));
    Write::ALL.iter().for_each(|kind| counter!(WRITES, "kind" => kind.label()).absolute(0));
}

/// Notes whether this controller holds the Lease.
pub fn leads(is_leader: bool) {
    gauge!(LEADER).set(f64::from(u8::from(is_leader)));
}

/// Notes the clusters of the gateway, and the profiles of others with their names.
#[expect(clippy::cast_precision_loss, reason = "fleets are smaller than 2^52")]
pub fn counted(clusters: usize, foreign: usize) {
    gauge!(CLUSTERS).set(clusters as f64);
    gauge!(FOREIGN).set(foreign as f64);
}

/// Counts a write that the host cluster took.
pub fn written(kind: Write) {
    counter!(WRITES, "kind" => kind.label()).increment(1);
}

/// Counts a round in which a part failed.
pub fn failed(part: Part) {
    counter!(FAILURES, "part" => part.name()).increment(1);
}

/// Notes that all profiles are as the gateway says.
pub fn succeeded(now: SystemTime) {
    gauge!(LAST_SUCCESS).set(now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
}
