//! Metrics of the elections among the servers that share their records.

use metrics::{describe_gauge, gauge};
use proto::text_enum;

const LEADER: &str = "tombolo_server_leader";

text_enum! {
    /// An election, as the metric names it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ElectionName {
        /// The leader keeps the Services of clusters in a host cluster.
        Publisher = "publisher",
        /// The leader removes expired records.
        Janitor = "janitor",
    }
}

pub(super) fn describe() {
    describe_gauge!(LEADER, "1 if this server does what one of the servers does for all, by election.");
    for election in [ElectionName::Publisher, ElectionName::Janitor] {
        leads(election, false);
    }
}

/// Records whether this server leads in an election.
pub fn leads(election: ElectionName, leads: bool) {
    gauge!(LEADER, "election" => election.as_str()).set(if leads { 1.0 } else { 0.0 });
}
