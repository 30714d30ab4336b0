//! Clusters that are created, described and deleted.

use super::*;

#[tokio::test]
async fn the_description_of_a_cluster_is_kept_over_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    let update = ClusterSpecUpdate {
        set_labels: vec![label("region", "north"), label("tier", "gold")],
        networks: Some(vec!["plant-7".to_owned()]),
        advertise: Some(vec!["192.168.1.10:6443".to_owned()]),
        ..ClusterSpecUpdate::default()
    };
    directory.create_cluster(id("edge-a"), update, at(5)).await.unwrap();
    let update = ClusterSpecUpdate {
        set_labels: vec![label("region", "south")],
        remove_labels: vec!["tier".to_owned()],
        ..ClusterSpecUpdate::default()
    };
    directory.update_cluster(id("edge-a"), update).await.unwrap();
    let before = directory.entries(|_, _| true)[0].record.clone();
    drop(directory);

    let after = open(&state).unwrap().entries(|_, _| true)[0].record.clone();

    assert_eq!(before, after);
    assert_eq!(after.labels.clone().into_iter().collect::<Vec<_>>(), [label("region", "south")]);
    assert_eq!((after.networks.len(), after.advertise.len(), after.created), (1, 1, UnixSeconds(5)));
}

#[tokio::test]
async fn a_cluster_that_was_only_seen_can_be_updated_at_once() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    let _ = directory.mark_seen(&id("edge-a"), at(5));

    let update =
        ClusterSpecUpdate { set_labels: vec![label("region", "north")], ..ClusterSpecUpdate::default() };
    directory.update_cluster(id("edge-a"), update).await.unwrap();

    assert_eq!(directory.last_seen(&id("edge-a")), Some(at(5)));
    assert_eq!(directory.entries(|_, _| true)[0].record.labels["region"], "north");
}

#[tokio::test]
async fn a_deleted_cluster_is_gone_and_its_name_is_reserved_for_a_time() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    let _ = directory.mark_seen(&id("edge-a"), at(5));
    directory.delete_cluster(id("edge-a"), at(DAY), NAME_RESERVED).await.unwrap();
    drop(directory);

    let directory = open(&state).unwrap();
    assert!(!directory.was_seen(&id("edge-a")) && directory.entries(|_, _| true).is_empty());
    let again = |now| directory.create_cluster(id("edge-a"), ClusterSpecUpdate::default(), now);
    let early = again(at(DAY * 91 - 1)).await.unwrap_err();
    assert!(early.to_string().contains("reserved for 1 more days"), "{early}");
    again(at(DAY * 91)).await.unwrap();
    assert!(!directory.was_seen(&id("edge-a")) && directory.entries(|_, _| true).len() == 1);
}

/// The description comes back, also after a restart. Nothing of it is in force while the cluster is deleted.
#[tokio::test]
async fn an_undeleted_cluster_has_its_name_and_description_again() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    let update = ClusterSpecUpdate {
        set_labels: vec![label("region", "north")],
        networks: Some(vec!["plant-7".to_owned()]),
        advertise: Some(vec!["192.168.1.10:6443".to_owned()]),
        ..ClusterSpecUpdate::default()
    };
    directory.create_cluster(id("edge-a"), update, at(5)).await.unwrap();
    let before = directory.entry(&id("edge-a")).unwrap().record;
    directory.delete_cluster(id("edge-a"), at(DAY), NAME_RESERVED).await.unwrap();
    drop(directory);

    let directory = open(&state).unwrap();
    assert!(directory.labels(&id("edge-a")).is_empty() && directory.entry(&id("edge-a")).is_none());
    assert!(directory.clusters_of(&"plant-7".parse().unwrap()).is_empty());
    assert!(!directory.may_advertise(&id("edge-a"), &"192.168.1.10:6443".parse().unwrap()));
    let record = directory.undelete_cluster(id("edge-a"), at(DAY * 91 - 1)).await.unwrap();

    assert_eq!(record, *before);
    assert_eq!(directory.labels(&id("edge-a"))["region"], "north");
    assert_eq!(directory.clusters_of(&"plant-7".parse().unwrap()).len(), 1);
    drop(directory);
    assert_eq!(open(&state).unwrap().entry(&id("edge-a")).unwrap().record, before);
}

#[tokio::test]
async fn only_a_deleted_cluster_is_undeleted_and_not_too_late() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    let undelete = |name: &str, now| directory.undelete_cluster(id(name), now);
    directory.create_cluster(id("edge-a"), ClusterSpecUpdate::default(), at(5)).await.unwrap();
    let _ = directory.mark_seen(&id("edge-b"), at(5));

    for name in ["edge-a", "edge-b"] {
        let refused = undelete(name, at(6)).await;
        assert!(matches!(refused, Err(ClusterError::NotDeleted(_))), "{name}: {refused:?}");
    }
    let never = undelete("edge-c", at(6)).await;
    assert!(matches!(never, Err(ClusterError::NeverDeleted(_))), "{never:?}");
    directory.delete_cluster(id("edge-a"), at(DAY), NAME_RESERVED).await.unwrap();
    let late = undelete("edge-a", at(DAY * 91)).await.unwrap_err();
    assert!(late.to_string().contains("90 days after it was deleted"), "{late}");
    undelete("edge-a", at(DAY * 91 - 1)).await.unwrap();
    assert!(matches!(undelete("edge-a", at(DAY * 2)).await, Err(ClusterError::NotDeleted(_))), "once");
}

#[tokio::test]
async fn an_invalid_description_is_refused_and_changes_nothing() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    let make = |name: &str, update: ClusterSpecUpdate| directory.create_cluster(id(name), update, at(5));
    assert!(matches!(make("www", ClusterSpecUpdate::default()).await, Err(ClusterError::Refused(_))));
    let wrong = [
        ClusterSpecUpdate { set_labels: vec![label("a b", "")], ..ClusterSpecUpdate::default() },
        ClusterSpecUpdate { set_labels: vec![label("a", "ä")], ..ClusterSpecUpdate::default() },
        ClusterSpecUpdate { networks: Some(vec!["Plant".to_owned()]), ..ClusterSpecUpdate::default() },
        ClusterSpecUpdate { advertise: Some(vec!["nowhere".to_owned()]), ..ClusterSpecUpdate::default() },
        ClusterSpecUpdate {
            set_labels: (0..=LABELS_MAX).map(|n| label(&format!("l{n}"), "")).collect(),
            ..ClusterSpecUpdate::default()
        },
    ];
    for update in wrong {
        let made = make("edge-a", update).await;
        assert!(matches!(made, Err(ClusterError::InvalidSpec(_))), "{made:?}");
    }
    assert!(directory.entries(|_, _| true).is_empty());

    make("edge-a", ClusterSpecUpdate::default()).await.unwrap();
    assert!(matches!(make("edge-a", ClusterSpecUpdate::default()).await, Err(ClusterError::Exists(_))));
    let unknown = directory.update_cluster(id("edge-b"), ClusterSpecUpdate::default()).await;
    assert!(matches!(unknown, Err(ClusterError::Unknown(_))), "{unknown:?}");
}

fn label(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}
