//! The client of etcd, with three real members that are killed, cut off from their quorum, or have forgotten.

use std::time::Duration;

use daemon::Scope;
use etcd::{
    Change, Client, CommitError, Compacted, Compare, Error, KeyRange, LeaseEnded, Outcome, PAGE_KEYS,
    Revision, WatchUpdate, Write,
};
use tests::etcd::{EtcdCluster, MEMBERS};
use tokio::time::timeout;

/// The limit for what etcd does by itself: an election, the end of a lease.
const DONE_MAX: Duration = Duration::from_secs(30);

/// Keys that are written while members are killed.
const WRITES: usize = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_is_made_once_and_a_conflict_changes_nothing() {
    let cluster = EtcdCluster::start().await;
    let client = cluster.client(&Scope::here());
    let put = |key: &str, value: &str| Write::Put(key.into(), value.into());

    let made = client.commit(vec![Compare::Absent(b"a/1".to_vec())], vec![put("a/1", "one")]).await.unwrap();
    let Outcome::Made(first) = made else { panic!("{made:?}") };
    let again = client.commit(vec![Compare::Absent(b"a/1".to_vec())], vec![put("a/1", "two")]).await.unwrap();
    assert_eq!(again, Outcome::Conflict);

    let unchanged = Compare::Unchanged(b"a/1".to_vec(), first);
    let changes = vec![put("a/1", "three"), put("a/2", "four")];
    assert!(matches!(client.commit(vec![unchanged.clone()], changes).await.unwrap(), Outcome::Made(_)));
    assert_eq!(client.commit(vec![unchanged], vec![put("a/1", "five")]).await.unwrap(), Outcome::Conflict);

    // A range notices what was added and what was changed, and not what was removed.
    let range = KeyRange::prefix("a/");
    let read = client.list(&range, None).await.unwrap().revision;
    let nothing_newer = || vec![Compare::NothingNewer(range.clone(), read)];
    client.commit(Vec::new(), vec![Write::Remove(b"a/2".to_vec())]).await.unwrap();
    assert!(matches!(client.commit(nothing_newer(), Vec::new()).await.unwrap(), Outcome::Made(_)));
    client.commit(Vec::new(), vec![put("a/3", "six")]).await.unwrap();
    assert_eq!(client.commit(nothing_newer(), vec![put("a/1", "seven")]).await.unwrap(), Outcome::Conflict);

    assert_eq!(values(&client, "a/").await, [("a/1", "three"), ("a/3", "six")].map(owned));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_range_is_read_in_pages_of_one_revision() {
    let cluster = EtcdCluster::start().await;
    let client = cluster.client(&Scope::here());
    let keys = usize::try_from(PAGE_KEYS).unwrap() * 2 + 7;
    for chunk in (0..keys).collect::<Vec<_>>().chunks(etcd::TRANSACTION_OPERATIONS_MAX) {
        let puts = chunk.iter().map(|key| Write::Put(format!("p/{key:06}").into(), b"old".to_vec()));
        client.commit(Vec::new(), puts.collect()).await.unwrap();
    }
    let range = KeyRange::prefix("p/");
    let before = client.list(&range, None).await.unwrap();

    client.commit(Vec::new(), vec![Write::Put(b"p/999999".to_vec(), b"new".to_vec())]).await.unwrap();

    assert_eq!((before.entries.len(), client.count(&range).await.unwrap()), (keys, keys + 1));
    assert_eq!(client.list(&range, Some(before.revision)).await.unwrap(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_tells_every_change_once_while_members_are_killed_in_turn() {
    let mut cluster = EtcdCluster::start().await;
    let scope = Scope::here();
    let (client, writer) = (cluster.client(&scope), cluster.client(&scope));
    let mut watch = client.watch(KeyRange::prefix("w/"), revision(&client).await);
    let writing = tokio::spawn(async move {
        for number in 0..WRITES {
            let key = format!("w/{number:04}").into_bytes();
            let write = || Write::Put(key.clone(), b"x".to_vec());
            // A write whose outcome is unknown is made again only if the key is not there.
            while writer.commit(vec![Compare::Absent(key.clone())], vec![write()]).await.is_err() {}
        }
    });

    let mut told: Vec<Change> = Vec::new();
    let mut killed = 0;
    while told.len() < WRITES {
        if let WatchUpdate::Changes(changes) =
            timeout(DONE_MAX, watch.next()).await.expect("in time").unwrap()
        {
            told.extend(changes);
        }
        if killed < MEMBERS && told.len() > killed * WRITES / 4 {
            if killed > 0 {
                cluster.start_member(killed - 1).await;
            }
            cluster.kill_member(killed);
            killed += 1;
        }
    }

    writing.await.unwrap();
    let keys: Vec<_> = told.iter().map(|change| String::from_utf8(change.key.clone()).unwrap()).collect();
    let expected: Vec<_> = (0..WRITES).map(|number| format!("w/{number:04}")).collect();
    assert_eq!((keys, killed), (expected, MEMBERS));
    assert!(told.is_sorted_by(|one, other| one.revision < other.revision));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_says_how_far_it_is_complete_and_when_it_cannot_go_on() {
    let cluster = EtcdCluster::start().await;
    let client = cluster.client(&Scope::here());
    let begun = revision(&client).await;
    let mut watch = client.watch(KeyRange::prefix("c/"), begun);
    for number in 0..10 {
        let put = Write::Put(format!("other/{number}").into_bytes(), b"x".to_vec());
        client.commit(Vec::new(), vec![put]).await.unwrap();
    }
    let reached = revision(&client).await;

    // A request before the stream is open asks nothing.
    let complete = async {
        loop {
            watch.request_progress();
            match timeout(Duration::from_millis(100), watch.next()).await {
                Ok(Ok(WatchUpdate::Complete(revision))) if revision >= reached => return,
                Ok(Ok(WatchUpdate::Complete(_))) | Err(_) => {}
                Ok(other) => panic!("{other:?}"),
            }
        }
    };
    timeout(DONE_MAX, complete).await.expect("in time");

    cluster.compact(reached.0).await;
    let mut late = client.watch(KeyRange::prefix("c/"), begun);
    let told = timeout(DONE_MAX, late.next()).await.expect("in time");
    assert_eq!(told, Err(Compacted(reached)));
    let old = client.list(&KeyRange::prefix("c/"), Some(begun)).await;
    assert!(matches!(old, Err(Error::Compacted)), "{old:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leased_key_is_removed_when_its_lease_is_not_kept_alive() {
    let cluster = EtcdCluster::start().await;
    let client = cluster.client(&Scope::here());
    let lease = client.grant(Duration::from_secs(2)).await.unwrap();
    let put = Write::PutLeased(b"l/server".to_vec(), b"here".to_vec(), lease);
    client.commit(Vec::new(), vec![put]).await.unwrap();
    let mut watch = client.watch(KeyRange::prefix("l/"), revision(&client).await);
    assert_eq!(client.keep_alive(lease).await.unwrap(), Ok(()));

    let told = timeout(DONE_MAX, watch.next()).await.expect("in time").unwrap();

    let WatchUpdate::Changes(changes) = told else { panic!("{told:?}") };
    assert_eq!((changes[0].key.as_slice(), &changes[0].value), (b"l/server".as_slice(), &None));
    assert_eq!(client.keep_alive(lease).await.unwrap(), Err(LeaseEnded));
    client.revoke(lease).await.expect("an ended lease is no error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_quorum_nothing_is_read_and_afterwards_everything_goes_on() {
    let mut cluster = EtcdCluster::start().await;
    let client = cluster.client(&Scope::here());
    let put = |value: &str| vec![Write::Put(b"q".to_vec(), value.into())];
    client.commit(Vec::new(), put("before")).await.unwrap();
    cluster.kill_member(0);
    cluster.kill_member(1);

    let read = client.list(&KeyRange::key("q"), None).await;
    let written = client.commit(Vec::new(), put("meanwhile")).await;

    assert!(matches!(read, Err(Error::NoAnswer { .. })), "{read:?}");
    assert!(matches!(written, Err(CommitError::Unknown(_) | CommitError::NotMade(_))), "{written:?}");
    cluster.start_member(0).await;
    let written =
        timeout(DONE_MAX, async { while client.commit(Vec::new(), put("after")).await.is_err() {} });
    written.await.expect("in time");
    assert_eq!(values(&client, "q").await, [("q", "after")].map(owned));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_member_tells_its_state_to_a_client_with_a_certificate_alone() {
    let cluster = EtcdCluster::start().await;
    let (client, outsider) = {
        let scope = Scope::here();
        (cluster.client(&scope), cluster.client_without_certificate(&scope))
    };
    for endpoint in cluster.endpoints() {
        let status = client.status(&endpoint).await.unwrap();
        assert!(status.has_leader && !status.is_learner && status.check().is_ok(), "{status:?}");
        assert!(outsider.status(&endpoint).await.is_err());
    }
}

async fn revision(client: &Client) -> Revision {
    client.list(&KeyRange::key("none"), None).await.unwrap().revision
}

async fn values(client: &Client, prefix: &str) -> Vec<(String, String)> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let entries = client.list(&KeyRange::prefix(prefix), None).await.unwrap().entries;
    entries.into_iter().map(|entry| (text(entry.key), text(entry.value))).collect()
}

fn owned((key, value): (&str, &str)) -> (String, String) {
    (key.to_owned(), value.to_owned())
}
