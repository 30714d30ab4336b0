//! Which clusters are here, as a scrape finds it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use daemon::metrics::lines::Lines;
use proto::ClusterId;

const CONNECTED: &str = "tombolo_server_cluster_connected";
const AGENTS: &str = "tombolo_server_agents_connected";

/// How long a cluster that is away is told of: over a long weekend, so that an alert stands until somebody comes. Whoever
/// has taken a cluster away for good is rid of the alert by then.
pub const AWAY_TOLD_MAX: Duration = Duration::from_secs(72 * 3600);

/// When scrapes last found each cluster here.
#[derive(Debug, Default)]
pub struct Census(Mutex<BTreeMap<ClusterId, Instant>>);

/// A cluster that this server knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Its name.
    pub cluster: ClusterId,
    /// Whether new requests reach it.
    pub connected: bool,
    /// Its agents that hold a tunnel.
    pub agents: usize,
}

impl Census {
    /// Tells of every known cluster but those that have been away for [`AWAY_TOLD_MAX`]. What was away when this process
    /// began counts as away since then.
    pub fn tell(&self, lines: &mut Lines, known: &[Known], now: Instant) {
        let told = self.here_or_missed(known, now);
        let help = "1 if new requests reach the cluster, 0 if it is known and away.";
        let mut connected = lines.gauge(CONNECTED, help);
        for known in &told {
            connected.is(&[("cluster", known.cluster.as_str())], u8::from(known.connected));
        }
        let mut agents = lines.gauge(AGENTS, "Agents of the cluster that hold a tunnel now.");
        for known in &told {
            agents.is(&[("cluster", known.cluster.as_str())], known.agents);
        }
    }

    fn here_or_missed<'a>(&self, known: &'a [Known], now: Instant) -> Vec<&'a Known> {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *found);
        let mut told = Vec::with_capacity(known.len());
        for known in known {
            let is_here = known.connected || known.agents > 0;
            let last = before.get(&known.cluster).copied().filter(|_| !is_here).unwrap_or(now);
            found.insert(known.cluster.clone(), last);
            if now.saturating_duration_since(last) < AWAY_TOLD_MAX {
                told.push(known);
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_is_away_is_told_of_over_a_weekend_and_then_no_more() {
        let (census, began) = (Census::default(), Instant::now());
        let (here, away) = ([known("a", true, 1)], [known("a", false, 0)]);
        let left = began + AWAY_TOLD_MAX * 10;

        assert_eq!(census.here_or_missed(&here, began), [&here[0]]);
        assert_eq!(census.here_or_missed(&here, left), [&here[0]], "however long it is here");
        assert_eq!(census.here_or_missed(&away, left + AWAY_TOLD_MAX / 2), [&away[0]]);
        assert!(census.here_or_missed(&away, left + AWAY_TOLD_MAX).is_empty());
        assert!(census.here_or_missed(&away, left + AWAY_TOLD_MAX * 2).is_empty());
        assert_eq!(census.here_or_missed(&here, left + AWAY_TOLD_MAX * 2), [&here[0]], "back again");
    }

    #[test]
    fn a_cluster_of_an_earlier_run_that_has_not_come_back_is_missed() {
        let (census, away) = (Census::default(), [known("a", false, 0)]);

        assert_eq!(census.here_or_missed(&away, Instant::now()), [&away[0]]);
    }

    fn known(cluster: &str, connected: bool, agents: usize) -> Known {
        Known { cluster: cluster.parse().unwrap(), connected, agents }
    }
}
