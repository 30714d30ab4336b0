//! Addresses that are assigned to clusters, and kept.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;

const RANGE: &str = "100.100.0.0/29";

fn range(network: &str, clusters: &[&str]) -> AddressRange {
    let clusters = clusters.iter().map(|name| id(name)).collect();
    AddressRange { network: network.parse().unwrap(), clusters }
}

async fn given(directory: &Directory, ranges: Vec<AddressRange>, now: u64) -> BTreeMap<String, String> {
    let given = directory.assign_addresses(ranges, at(now)).await.unwrap();
    given.into_iter().map(|(cluster, given)| (cluster.to_string(), given.address.to_string())).collect()
}

fn expected(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(cluster, address)| ((*cluster).to_owned(), (*address).to_owned())).collect()
}

/// The address stays the same whichever other clusters are listed.
#[tokio::test]
async fn each_cluster_keeps_an_address_of_its_own_over_restarts() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    let first = given(&directory, vec![range(RANGE, &["edge-b", "edge-c"])], 5).await;
    assert_eq!(first, expected(&[("edge-b", "100.100.0.1"), ("edge-c", "100.100.0.2")]));
    drop(directory);

    let directory = open(&state).unwrap();
    let again =
        directory.assign_addresses(vec![range(RANGE, &["edge-a", "edge-b", "edge-c"])], at(6)).await.unwrap();
    let new: Vec<_> =
        again.iter().filter(|(_, given)| given.is_new).map(|(cluster, _)| cluster.as_str()).collect();
    assert_eq!(new, ["edge-a"]);
    assert_eq!(again[&id("edge-a")].address.to_string(), "100.100.0.3");
    assert_eq!(
        given(&directory, vec![range("fd00::/64", &["edge-d"])], 7).await,
        expected(&[("edge-d", "fd00::1")])
    );
}

/// Until then it belongs to the deleted cluster. An address of a cluster that nobody created is free at once.
#[tokio::test]
async fn an_address_is_free_once_its_clusters_name_is_no_longer_reserved() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    directory.create_cluster(id("edge-a"), ClusterSpecUpdate::default(), at(5)).await.unwrap();
    given(&directory, vec![range(RANGE, &["edge-a"])], 5).await;
    let next = |cluster: &'static str, now| given(&directory, vec![range(RANGE, &[cluster])], now);

    assert_eq!(next("not-listed", 5).await, expected(&[("not-listed", "100.100.0.2")]));
    directory.delete_cluster(id("edge-a"), at(DAY), NAME_RESERVED).await.unwrap();
    assert_eq!(
        next("edge-b", DAY * 91 - 1).await,
        expected(&[("edge-b", "100.100.0.2")]),
        "an unknown one's is free"
    );
    assert_eq!(next("edge-c", DAY * 91).await, expected(&[("edge-c", "100.100.0.1")]));
}

/// A cluster that is moved to another range gets its old address again when the old range is back.
#[tokio::test]
async fn another_range_has_other_addresses_and_the_old_range_the_old_ones() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    for name in ["edge-a", "edge-b"] {
        directory.create_cluster(id(name), ClusterSpecUpdate::default(), at(5)).await.unwrap();
    }
    let both = ["edge-a", "edge-b"];
    let old = given(&directory, vec![range(RANGE, &both)], 5).await;

    let moved = given(&directory, vec![range("100.101.0.0/24", &both)], 6).await;
    assert_eq!(moved, expected(&[("edge-a", "100.101.0.1"), ("edge-b", "100.101.0.2")]));
    // Its old address can be in somebody's kubeconfig.
    let beside =
        given(&directory, vec![range("100.101.0.0/24", &["edge-a"]), range(RANGE, &["edge-c"])], 6).await;
    assert_eq!(beside, expected(&[("edge-a", "100.101.0.1"), ("edge-c", "100.100.0.3")]));
    assert_eq!(given(&directory, vec![range(RANGE, &both)], 7).await, old);
}

#[tokio::test]
async fn the_broadcast_address_of_a_smaller_range_is_not_assigned_there() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    let three = ["edge-a", "edge-b", "edge-c"];
    let before = given(&directory, vec![range(RANGE, &three)], 5).await;
    assert_eq!(before["edge-c"], "100.100.0.3");

    let after = given(&directory, vec![range("100.100.0.0/30", &["edge-b", "edge-c"])], 6).await;

    assert_eq!(after, expected(&[("edge-b", "100.100.0.2"), ("edge-c", "100.100.0.1")]));
}

#[tokio::test]
async fn a_full_range_assigns_no_address_and_reports_who_keeps_them() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    directory.create_cluster(id("edge-a"), ClusterSpecUpdate::default(), at(5)).await.unwrap();
    given(&directory, vec![range("10.0.0.0/30", &["edge-a"])], 5).await;

    let full = directory
        .assign_addresses(vec![range("10.0.0.0/30", &["edge-b", "edge-c"])], at(6))
        .await
        .unwrap_err();

    let text = full.to_string();
    for word in ["10.0.0.0/30", "edge-c", "1 of its 2", "tombolo cluster delete"] {
        assert!(text.contains(word), "{text}");
    }
    // None of the failed assignment was kept, not even the part with room.
    let given = directory.assign_addresses(vec![range("10.0.0.0/30", &["edge-c"])], at(6)).await.unwrap();
    assert!(given[&id("edge-c")].is_new && given[&id("edge-c")].address.to_string() == "10.0.0.2");
}

#[test]
fn the_number_of_kept_addresses_is_limited() {
    let directory = Directory::copy(tempfile::tempdir().unwrap().path()).unwrap();
    let clusters = |count: usize| (0..count).map(|number| id(&format!("edge-{number}"))).collect();
    let range = |count| AddressRange { network: "10.0.0.0/16".parse().unwrap(), clusters: clusters(count) };

    let beyond = directory.assign_addresses_blocking(&[range(ADDRESSES_KEPT_MAX + 1)], at(5));
    assert!(matches!(beyond, Err(AddressError::TooMany)), "{beyond:?}");
    let most = directory.assign_addresses_blocking(&[range(ADDRESSES_KEPT_MAX)], at(5)).unwrap();
    assert_eq!(most.len(), ADDRESSES_KEPT_MAX);
}

/// A dry run shows the addresses that would be assigned while the server has the store open.
#[tokio::test]
async fn a_copy_of_an_open_store_assigns_addresses_and_writes_nothing() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    given(&directory, vec![range(RANGE, &["edge-a"])], 5).await;
    let before = std::fs::read(file(&state)).unwrap();

    let copy = Directory::copy(state_dir(state.path()).path()).unwrap();
    let would = copy.assign_addresses_blocking(&[range(RANGE, &["edge-a", "edge-b"])], at(6)).unwrap();

    let assigned = |name: &str| (would[&id(name)].address.to_string(), would[&id(name)].is_new);
    assert_eq!(assigned("edge-a"), ("100.100.0.1".to_owned(), false));
    assert_eq!(assigned("edge-b"), ("100.100.0.2".to_owned(), true));
    assert_eq!(std::fs::read(file(&state)).unwrap(), before);
    let nowhere = tempfile::tempdir().unwrap();
    let of_none = Directory::copy(nowhere.path())
        .unwrap()
        .assign_addresses_blocking(&[range(RANGE, &["edge-a"])], at(6));
    assert!(of_none.unwrap()[&id("edge-a")].is_new && nowhere.path().read_dir().unwrap().next().is_none());
}

/// An event in the life of clusters, of the configuration or of the server.
#[derive(Debug, Clone)]
enum LifeEvent {
    Create(&'static str),
    Delete(&'static str, u64),
    Pass(u64),
    Restart,
    /// A start with these clusters in the ranges.
    Start(Vec<Vec<&'static str>>, usize),
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Ranges that can be configured. The two of one start never overlap; those of two starts can.
const NETWORKS: [[&str; 2]; 3] =
    [["10.0.0.0/29", "fd00::/125"], ["10.0.0.8/29", "10.0.0.0/29"], ["10.0.0.0/28", "10.0.1.0/29"]];

fn event() -> impl Strategy<Value = LifeEvent> {
    let name = || select(NAMES.to_vec());
    let start =
        (subsequence(NAMES.to_vec(), 0..=6), 0..=6_usize, 0..3_usize).prop_map(|(names, cut, ranges)| {
            let (one, other) = names.split_at(cut.min(names.len()));
            LifeEvent::Start(vec![one.to_vec(), other.to_vec()], ranges)
        });
    prop_oneof![
        2 => name().prop_map(LifeEvent::Create),
        2 => (name(), 1..100_u64).prop_map(|(name, days)| LifeEvent::Delete(name, days)),
        1 => (1..60_u64).prop_map(LifeEvent::Pass),
        1 => Just(LifeEvent::Restart),
        4 => start,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Clusters are created, deleted and listed at random, and the server restarts at random.
    #[test]
    fn no_cluster_gets_an_address_that_another_known_one_has_or_had(
        events in prop::collection::vec(event(), 1..24),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(run(events))?;
    }
}

/// Runs the events, and remembers the cluster of each address while its name is not free.
async fn run(events: Vec<LifeEvent>) -> Result<(), TestCaseError> {
    let state = tempfile::tempdir().unwrap();
    let mut directory = Some(open(&state).unwrap());
    let mut days = 1;
    // The last cluster of each address, and the end of the reservation of each deleted cluster.
    let mut had: BTreeMap<IpAddr, ClusterId> = BTreeMap::new();
    let mut reserved: BTreeMap<ClusterId, u64> = BTreeMap::new();
    let mut made: BTreeSet<ClusterId> = BTreeSet::new();
    for event in events {
        let open_one = directory.as_ref().unwrap();
        match event {
            LifeEvent::Create(name) => {
                if open_one
                    .create_cluster(id(name), ClusterSpecUpdate::default(), at(days * DAY))
                    .await
                    .is_ok()
                {
                    made.insert(id(name));
                    reserved.remove(&id(name));
                }
            }
            LifeEvent::Delete(name, for_days) => {
                let for_long = Duration::from_secs(for_days * DAY);
                if open_one.delete_cluster(id(name), at(days * DAY), for_long).await.is_ok() {
                    made.remove(&id(name));
                    reserved.insert(id(name), days + for_days);
                }
            }
            LifeEvent::Pass(more) => days += more,
            LifeEvent::Restart => {
                drop(directory.take());
                directory = Some(open(&state).unwrap());
            }
            LifeEvent::Start(lists, which) => {
                let networks = NETWORKS[which];
                let ranges: Vec<_> =
                    lists.iter().zip(networks).map(|(names, network)| range(network, names)).collect();
                let Ok(given) = open_one.assign_addresses(ranges.clone(), at(days * DAY)).await else {
                    continue;
                };
                let again = open_one.assign_addresses(ranges.clone(), at(days * DAY)).await.unwrap();
                let is_known = |cluster: &ClusterId| {
                    made.contains(cluster) || reserved.get(cluster).is_some_and(|until| days < *until)
                };
                for (cluster, AssignedAddress { address, .. }) in &given {
                    prop_assert_eq!(again[cluster], AssignedAddress { address: *address, is_new: false });
                    let own = ranges.iter().find(|range| range.clusters.contains(cluster)).unwrap();
                    prop_assert!(own.network.has_host(*address), "{} {}", own.network, address);
                    if let Some(before) = had.get(address) {
                        prop_assert!(
                            before == cluster || !is_known(before),
                            "{address} was {before}'s, and is {cluster}'s"
                        );
                    }
                }
                let addresses: BTreeSet<_> = given.values().map(|given| given.address).collect();
                prop_assert_eq!(addresses.len(), given.len());
                prop_assert_eq!(given.len(), lists.concat().len());
                // A freed address stays free, even if the cluster's name comes back.
                had.retain(|_, before| is_known(before) || given.contains_key(before));
                had.extend(given.into_iter().map(|(cluster, given)| (given.address, cluster)));
            }
        }
    }
    Ok(())
}
