//! Gauges of clusters and their agents, written at each scrape.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use daemon::metrics::exposition::Exposition;
use proto::ClusterId;

const CONNECTED: &str = "tombolo_server_cluster_connected";
const AGENTS: &str = "tombolo_server_agents_connected";

/// The time for which a cluster that is away is still reported. It covers a long weekend, so that an alert
/// lasts until somebody sees it. The alert for a cluster that was removed for good ends by itself.
pub const AWAY_REPORTED_MAX: Duration = Duration::from_secs(72 * 3600);

/// The time at which a scrape last found each cluster connected.
#[derive(Debug, Default)]
pub struct ClusterGauges(Mutex<BTreeMap<ClusterId, Instant>>);

/// A known cluster, and whether it is reachable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterConnectivity {
    /// The name of the cluster.
    pub cluster: ClusterId,
    /// True if new requests reach the cluster.
    pub connected: bool,
    /// The number of agents that have a tunnel.
    pub agents: usize,
}

impl ClusterGauges {
    /// Writes the gauges of every known cluster, except those that have been away for [`AWAY_REPORTED_MAX`].
    /// A cluster that was away when this process started counts as away since then.
    pub fn write(&self, lines: &mut Exposition, clusters: &[ClusterConnectivity], now: Instant) {
        let reported = self.present_or_missed(clusters, now);
        let help = "1 if new requests reach the cluster, 0 if it is known and away.";
        let mut connected = lines.gauge(CONNECTED, help);
        for cluster in &reported {
            connected.sample(&[("cluster", cluster.cluster.as_str())], u8::from(cluster.connected));
        }
        let mut agents = lines.gauge(AGENTS, "Agents of the cluster that have a tunnel now.");
        for cluster in &reported {
            agents.sample(&[("cluster", cluster.cluster.as_str())], cluster.agents);
        }
    }

    fn present_or_missed<'a>(
        &self,
        clusters: &'a [ClusterConnectivity],
        now: Instant,
    ) -> Vec<&'a ClusterConnectivity> {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *found);
        let mut reported = Vec::with_capacity(clusters.len());
        for cluster in clusters {
            let is_here = cluster.connected || cluster.agents > 0;
            let last = before.get(&cluster.cluster).copied().filter(|_| !is_here).unwrap_or(now);
            found.insert(cluster.cluster.clone(), last);
            if now.saturating_duration_since(last) < AWAY_REPORTED_MAX {
                reported.push(cluster);
            }
        }
        reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_away_cluster_is_reported_for_a_weekend_and_no_longer() {
        let (gauges, began) = (ClusterGauges::default(), Instant::now());
        let (here, away) = ([connectivity("a", true, 1)], [connectivity("a", false, 0)]);
        let left = began + AWAY_REPORTED_MAX * 10;

        assert_eq!(gauges.present_or_missed(&here, began), [&here[0]]);
        assert_eq!(gauges.present_or_missed(&here, left), [&here[0]], "however long it is here");
        assert_eq!(gauges.present_or_missed(&away, left + AWAY_REPORTED_MAX / 2), [&away[0]]);
        assert!(gauges.present_or_missed(&away, left + AWAY_REPORTED_MAX).is_empty());
        assert!(gauges.present_or_missed(&away, left + AWAY_REPORTED_MAX * 2).is_empty());
        assert_eq!(gauges.present_or_missed(&here, left + AWAY_REPORTED_MAX * 2), [&here[0]], "back again");
    }

    #[test]
    fn a_cluster_of_an_earlier_run_is_reported_as_away() {
        let (gauges, away) = (ClusterGauges::default(), [connectivity("a", false, 0)]);

        assert_eq!(gauges.present_or_missed(&away, Instant::now()), [&away[0]]);
    }

    fn connectivity(cluster: &str, connected: bool, agents: usize) -> ClusterConnectivity {
        ClusterConnectivity { cluster: cluster.parse().unwrap(), connected, agents }
    }
}
