//! Clusters as people make, describe and delete them.

use super::*;

#[tokio::test]
async fn what_is_said_of_a_cluster_is_there_after_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    let said = Amendment {
        set_labels: vec![label("region", "north"), label("tier", "gold")],
        networks: Some(vec!["plant-7".to_owned()]),
        advertise: Some(vec!["192.168.1.10:6443".to_owned()]),
        ..Amendment::default()
    };
    directory.create_cluster(id("edge-a"), said, at(5)).await.unwrap();
    let said = Amendment {
        set_labels: vec![label("region", "south")],
        remove_labels: vec!["tier".to_owned()],
        ..Amendment::default()
    };
    directory.update_cluster(id("edge-a"), said).await.unwrap();
    let before = directory.entries(|_, _| true)[0].record.clone();
    drop(directory);

    let after = open(&state).unwrap().entries(|_, _| true)[0].record.clone();

    assert_eq!(before, after);
    assert_eq!(after.labels.clone().into_iter().collect::<Vec<_>>(), [label("region", "south")]);
    assert_eq!((after.networks.len(), after.advertise.len(), after.created), (1, 1, UnixSeconds(5)));
}

#[tokio::test]
async fn a_cluster_that_was_only_met_can_be_described_at_once() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    let _ = directory.meet(&id("edge-a"), at(5));

    let said = Amendment { set_labels: vec![label("region", "north")], ..Amendment::default() };
    directory.update_cluster(id("edge-a"), said).await.unwrap();

    assert_eq!(directory.last_seen(&id("edge-a")), Some(at(5)));
    assert_eq!(directory.entries(|_, _| true)[0].record.labels["region"], "north");
}

#[tokio::test]
async fn a_deleted_cluster_is_gone_and_its_name_is_reserved_for_as_long_as_was_said() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    let _ = directory.meet(&id("edge-a"), at(5));
    directory.delete_cluster(id("edge-a"), at(DAY), NAME_RESERVED).await.unwrap();
    drop(directory);

    let directory = open(&state).unwrap();
    assert!(!directory.met(&id("edge-a")) && directory.entries(|_, _| true).is_empty());
    let again = |now| directory.create_cluster(id("edge-a"), Amendment::default(), now);
    let early = again(at(DAY * 91 - 1)).await.unwrap_err();
    assert!(early.to_string().contains("reserved for 1 more days"), "{early}");
    again(at(DAY * 91)).await.unwrap();
    assert!(!directory.met(&id("edge-a")) && directory.entries(|_, _| true).len() == 1);
}

#[tokio::test]
async fn what_cannot_be_is_refused_and_changes_nothing() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    let make = |name: &str, said: Amendment| directory.create_cluster(id(name), said, at(5));
    assert!(matches!(make("www", Amendment::default()).await, Err(ClusterError::Refused(_))));
    let wrong = [
        Amendment { set_labels: vec![label("a b", "")], ..Amendment::default() },
        Amendment { set_labels: vec![label("a", "ä")], ..Amendment::default() },
        Amendment { networks: Some(vec!["Plant".to_owned()]), ..Amendment::default() },
        Amendment { advertise: Some(vec!["nowhere".to_owned()]), ..Amendment::default() },
        Amendment {
            set_labels: (0..=LABELS_MAX).map(|n| label(&format!("l{n}"), "")).collect(),
            ..Amendment::default()
        },
    ];
    for said in wrong {
        let made = make("edge-a", said).await;
        assert!(matches!(made, Err(ClusterError::NotSaid(_))), "{made:?}");
    }
    assert!(directory.entries(|_, _| true).is_empty());

    make("edge-a", Amendment::default()).await.unwrap();
    assert!(matches!(make("edge-a", Amendment::default()).await, Err(ClusterError::Exists(_))));
    let unknown = directory.update_cluster(id("edge-b"), Amendment::default()).await;
    assert!(matches!(unknown, Err(ClusterError::Unknown(_))), "{unknown:?}");
}

fn label(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}
