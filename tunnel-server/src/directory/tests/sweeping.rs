//! Removal of records that have expired.

use super::*;

const TTL: Duration = Duration::from_secs(600);

#[tokio::test]
async fn a_deleted_cluster_is_forgotten_a_day_after_its_name_is_free() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    for name in ["edge-a", "edge-b", "edge-c"] {
        directory.create_cluster(id(name), ClusterSpecUpdate::default(), at(5)).await.unwrap();
    }
    for name in ["edge-a", "edge-b"] {
        directory.delete_cluster(id(name), at(DAY), NAME_RESERVED).await.unwrap();
    }
    let free = DAY + NAME_RESERVED.as_secs();
    directory.create_cluster(id("edge-b"), ClusterSpecUpdate::default(), at(free)).await.unwrap();

    for (now, is_kept) in [(free + DAY, true), (free + DAY + 1, false)] {
        directory.remove_expired(at(now), || true).await.unwrap();
        assert_eq!(directory.record(&id("edge-a")).is_some(), is_kept, "{now}");
    }

    assert!(directory.entry(&id("edge-b")).is_some(), "another cluster has the name");
    assert!(directory.entry(&id("edge-c")).is_some());
    // The certificates of its agents may last longer than the reservation.
    assert!(directory.are_agents_revoked(&id("edge-a")));
    drop(directory);
    assert!(open(&state).unwrap().record(&id("edge-a")).is_none());
}

#[tokio::test]
async fn more_records_than_one_transaction_takes_are_swept() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    directory.create_cluster(id("edge-a"), ClusterSpecUpdate::default(), at(5)).await.unwrap();
    let (_, token) = directory.create_token(id("edge-a"), TTL, at(5)).await.unwrap();
    let many = expired::SWEPT_AT_ONCE + 1;
    let filled = directory.change(move |transaction| {
        (1..many).try_for_each(|number| transaction.put(&format!("{number:016x}"), &token))
    });
    filled.await.unwrap();
    assert_eq!(directory.tokens().await.unwrap().len(), many);

    directory.remove_expired(at(5 + 2 * DAY), || true).await.unwrap();

    assert_eq!(directory.tokens().await.unwrap().len(), 0);
}

/// It may be that another server leads by now.
#[tokio::test]
async fn nothing_is_swept_without_the_right_to() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    directory.create_cluster(id("edge-a"), ClusterSpecUpdate::default(), at(5)).await.unwrap();
    directory.create_token(id("edge-a"), TTL, at(5)).await.unwrap();
    directory.delete_cluster(id("edge-a"), at(6), Duration::ZERO).await.unwrap();

    directory.remove_expired(at(9 * DAY), || false).await.unwrap();

    assert!(directory.record(&id("edge-a")).is_some());
    let kept = directory.with_store(|store| store.count::<Token>()).await.unwrap();
    assert_eq!(kept, 1);
}
