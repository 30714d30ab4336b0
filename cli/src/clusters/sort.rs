//! The order of clusters in a list, by a column of the table.

use proto::admin::Cluster;

use super::table::{cluster_health, round_trip, time};
use crate::args::ClusterSort;

/// Lost packets are compared by this share of the sent ones.
const LOSS_PARTS: u64 = 1_000_000;

/// Orders clusters by `column`: the smallest, the earliest or the worst first, those without a value last, and equal ones by
/// their names.
pub(super) fn sort(clusters: &mut [Cluster], column: ClusterSort) {
    clusters.sort_by_cached_key(|cluster| {
        let value = value(cluster, column);
        (value.is_none(), value, cluster.name.clone())
    });
}

fn value(cluster: &Cluster, column: ClusterSort) -> Option<u64> {
    let measured = || cluster.tunnels.iter().filter_map(|tunnel| tunnel.measurements);
    let seconds = |at: Option<prost_types::Timestamp>| u64::try_from(time(at)?).ok();
    let is_away = cluster.tunnels.is_empty();
    match column {
        ClusterSort::Name => Some(0),
        ClusterSort::Health => Some(badness(cluster_health(cluster))),
        ClusterSort::Tunnels => u64::try_from(cluster.tunnels.len()).ok(),
        ClusterSort::Rtt => {
            let best = measured().filter_map(|tunnel| round_trip(&tunnel)).min()?;
            u64::try_from(best.as_micros()).ok()
        }
        ClusterSort::Loss => {
            let sent: u64 = measured().map(|tunnel| tunnel.packets_sent).fold(0, u64::saturating_add);
            let lost: u64 = measured().map(|tunnel| tunnel.packets_lost).fold(0, u64::saturating_add);
            lost.saturating_mul(LOSS_PARTS).checked_div(sent)
        }
        ClusterSort::Streams if is_away => None,
        ClusterSort::Streams => Some(measured().map(|tunnel| u64::from(tunnel.streams_open)).sum()),
        ClusterSort::Age => cluster.tunnels.iter().filter_map(|tunnel| seconds(tunnel.since)).min(),
        ClusterSort::LastSeen => seconds(cluster.last_seen),
        ClusterSort::Created => seconds(cluster.created),
    }
}

/// The worst is the smallest, so that it comes first.
fn badness(health: &str) -> u64 {
    let worst_first = ["Away", "Lost", "Unknown", "Draining", "Suspect", "Live"];
    worst_first.iter().zip(0..).find(|(name, _)| **name == health).map_or(0, |(_, place)| place)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;
    use prost_types::Timestamp;
    use proto::admin::{Health, Measurements, Tunnel};

    use super::*;

    #[test]
    fn clusters_are_ordered_by_each_column_and_then_by_name() {
        let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
        let never = |name: &str| Cluster { name: name.to_owned(), ..Cluster::default() };
        let away = Cluster { last_seen: at(100), created: at(3), ..never("away") };
        let near = Cluster {
            last_seen: at(900),
            created: at(1),
            tunnels: vec![tunnel(5, 1, 9, 50)],
            ..never("near")
        };
        let two = vec![tunnel(20, 0, 2, 60), tunnel(30, 0, 2, 40)];
        let far = Cluster { last_seen: at(900), created: at(2), tunnels: two, ..never("far") };
        for (column, order) in [
            (ClusterSort::Name, "away far near never"),
            (ClusterSort::Health, "away never far near"),
            (ClusterSort::Tunnels, "away never near far"),
            (ClusterSort::Rtt, "near far away never"),
            (ClusterSort::Loss, "far near away never"),
            (ClusterSort::Streams, "far near away never"),
            (ClusterSort::Age, "far near away never"),
            (ClusterSort::LastSeen, "away far near never"),
            (ClusterSort::Created, "near far away never"),
        ] {
            let mut clusters = [never("never"), near.clone(), far.clone(), away.clone()];

            sort(&mut clusters, column);

            let names: Vec<&str> = clusters.iter().map(|cluster| cluster.name.as_str()).collect();
            assert_eq!(names.join(" "), order, "{column:?}");
        }
        assert_eq!(ClusterSort::value_variants().len(), 9, "a column without a row above");
    }

    fn tunnel(milliseconds: u64, packets_lost: u64, streams_open: u32, since: i64) -> Tunnel {
        let round_trip = std::time::Duration::from_millis(milliseconds).try_into().ok();
        Tunnel {
            health: Health::Live.into(),
            since: Some(Timestamp { seconds: since, nanos: 0 }),
            measurements: Some(Measurements { round_trip, packets_sent: 100, packets_lost, streams_open }),
            ..Tunnel::default()
        }
    }
}
