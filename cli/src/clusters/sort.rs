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
        ClusterSort::Version => cluster.tunnels.iter().filter_map(|tunnel| release(&tunnel.version)).min(),
    }
}

/// A version as a number that grows with it: `1.2.3`, and less for a pre-release of it, such as `1.2.3-rc1`. `None` for other texts.
fn release(version: &str) -> Option<u64> {
    const PART_BITS: u32 = 20;
    let (version, _build) = version.split_once('+').unwrap_or((version, ""));
    let (numbers, is_final) = match version.split_once('-') {
        Some((numbers, _)) => (numbers, 0),
        None => (version, 1),
    };
    let mut parts = numbers.split('.').map(|part| part.parse::<u64>().ok());
    let (major, minor, patch) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() {
        return None;
    }
    let of = |part: u64| part.min((1 << PART_BITS) - 1);
    let shifted = |part, places| of(part) << (places * PART_BITS + 1);
    Some(shifted(major, 2) | shifted(minor, 1) | shifted(patch, 0) | is_final)
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
            tunnels: vec![Tunnel { version: "0.10.0".to_owned(), ..tunnel(5, 1, 9, 50) }],
            ..never("near")
        };
        let old = Tunnel { version: "0.9.0".to_owned(), ..tunnel(20, 0, 2, 60) };
        let two = vec![old, Tunnel { version: "0.11.0".to_owned(), ..tunnel(30, 0, 2, 40) }];
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
            (ClusterSort::Version, "far near away never"),
        ] {
            let mut clusters = [never("never"), near.clone(), far.clone(), away.clone()];

            sort(&mut clusters, column);

            let names: Vec<&str> = clusters.iter().map(|cluster| cluster.name.as_str()).collect();
            assert_eq!(names.join(" "), order, "{column:?}");
        }
        assert_eq!(ClusterSort::value_variants().len(), 10, "a column without a row above");
    }

    #[test]
    fn versions_are_ordered_by_their_numbers_and_not_as_texts() {
        let ordered = ["0.2.0", "0.9.1", "0.10.0-rc1", "0.10.0", "0.10.1+build-7", "1.0.0", "1.0.9999999"];
        let numbers: Vec<u64> = ordered.iter().map(|version| release(version).unwrap()).collect();
        assert!(numbers.windows(2).all(|two| two[0] < two[1]), "{numbers:?}");
        for none in ["", "1.0", "1.0.0.0", "v1.0.0", "one", "1.0.x", "99999999999999999999.0.0"] {
            assert_eq!(release(none), None, "{none}");
        }
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
