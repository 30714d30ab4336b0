//! The clusters of a network, and their limit.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::super::networks::NetworkIndex;
use super::*;

/// A cluster is in the networks of its description until it is described otherwise or deleted.
#[tokio::test]
async fn a_network_has_its_described_clusters_also_after_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    for (cluster, networks) in
        [("edge-b", &["plant-7", "lab"][..]), ("edge-a", &["plant-7", "plant-7"]), ("edge-c", &["plant-7"])]
    {
        directory.create_cluster(id(cluster), within(networks), at(5)).await.unwrap();
    }
    directory.create_cluster(id("edge-d"), ClusterSpecUpdate::default(), at(5)).await.unwrap();
    assert_eq!(clusters_of(&directory, "plant-7"), ["edge-a", "edge-b", "edge-c"]);

    directory.update_cluster(id("edge-b"), within(&["lab"])).await.unwrap();
    directory.update_cluster(id("edge-d"), within(&["plant-7"])).await.unwrap();
    directory.delete_cluster(id("edge-c"), at(6), NAME_RESERVED).await.unwrap();

    assert_eq!(clusters_of(&directory, "plant-7"), ["edge-a", "edge-d"]);
    assert_eq!(clusters_of(&directory, "lab"), ["edge-b"]);
    assert!(clusters_of(&directory, "plant-8").is_empty());
    drop(directory);
    let directory = open(&state).unwrap();
    assert_eq!(clusters_of(&directory, "plant-7"), ["edge-a", "edge-d"]);
}

#[tokio::test]
async fn the_number_of_clusters_in_a_network_is_limited() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    // In one transaction, because a transaction for each is slow.
    let filled = directory.change(|transaction| {
        for number in 1..NETWORK_CLUSTERS_MAX {
            let record = Cluster { networks: vec!["plant-7".to_owned()], ..Cluster::new(UnixSeconds(5)) };
            transaction.put(&format!("edge-{number}"), &record)?;
        }
        Ok::<_, StoreError>(())
    });
    filled.await.unwrap();
    let create =
        async |name: &str| directory.create_cluster(id(name), within(&["lab", "plant-7"]), at(5)).await;

    create("last").await.unwrap();
    let refused = create("one-more").await.unwrap_err();

    assert!(refused.to_string().contains("1000 clusters are in the network \"plant-7\""), "{refused}");
    directory.create_cluster(id("other"), ClusterSpecUpdate::default(), at(5)).await.unwrap();
    let update = async |name: &str| directory.update_cluster(id(name), within(&["plant-7"])).await;
    assert!(matches!(update("other").await, Err(ClusterError::NetworkFull(_))));
    update("last").await.expect("it is in it already");
    assert_eq!(clusters_of(&directory, "plant-7").len(), NETWORK_CLUSTERS_MAX);
    directory.delete_cluster(id("last"), at(6), NAME_RESERVED).await.unwrap();
    update("other").await.expect("there is room again");
}

/// An older version could store more clusters in a network. They can still be updated and taken out of it.
#[tokio::test]
async fn no_part_of_a_network_beyond_the_limit_is_searched() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    let filled = directory.change(|transaction| {
        for number in 0..=NETWORK_CLUSTERS_MAX {
            let record = Cluster { networks: vec!["plant-7".to_owned()], ..Cluster::new(UnixSeconds(5)) };
            transaction.put(&format!("edge-{number}"), &record)?;
        }
        Ok::<_, StoreError>(())
    });
    filled.await.unwrap();

    assert!(clusters_of(&directory, "plant-7").is_empty());
    // Its clusters can still be updated, and leave it.
    directory.update_cluster(id("edge-0"), ClusterSpecUpdate::default()).await.unwrap();
    directory.update_cluster(id("edge-0"), within(&[])).await.unwrap();
    assert_eq!(clusters_of(&directory, "plant-7").len(), NETWORK_CLUSTERS_MAX);
}

proptest! {
    #[test]
    fn the_index_of_networks_follows_the_clusters_descriptions(
        changes in vec((0..4_usize, prop::option::of(subsequence(vec!["a", "b", "c"], 0..4))), 0..20),
        asked in select(vec!["a", "b", "c", "d"]),
    ) {
        let mut networks = NetworkIndex::default();
        let mut records: BTreeMap<ClusterId, Cluster> = BTreeMap::new();
        for (number, names) in changes {
            let cluster = id(&format!("edge-{number}"));
            let now = names.map(|names| Cluster {
                networks: names.iter().map(|name| (*name).to_owned()).collect(),
                ..Cluster::new(UnixSeconds(5))
            });
            networks.apply(&cluster, records.get(&cluster), now.as_ref());
            match now {
                Some(now) => records.insert(cluster, now),
                None => records.remove(&cluster),
            };
        }

        let found: BTreeSet<ClusterId> = networks.of(&asked.parse().unwrap()).cloned().collect();

        let has = |(_, record): &(&ClusterId, &Cluster)| record.networks.iter().any(|name| name == asked);
        prop_assert_eq!(found, records.iter().filter(has).map(|(cluster, _)| cluster.clone()).collect());
    }
}

fn within(networks: &[&str]) -> ClusterSpecUpdate {
    let networks = networks.iter().map(|name| (*name).to_owned()).collect();
    ClusterSpecUpdate { networks: Some(networks), ..ClusterSpecUpdate::default() }
}

fn clusters_of(directory: &Directory, network: &str) -> Vec<String> {
    let entries = directory.clusters_of(&network.parse().unwrap());
    entries.iter().map(|entry| entry.cluster.to_string()).collect()
}
