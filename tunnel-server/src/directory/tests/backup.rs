//! Copies of the store, taken while it is written, and opened elsewhere.

use std::fs::{File, TryLockError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proto::admin::BACKUP_MAGIC;
use proto::spiffe::AgentId;

use super::enrolling::agent;
use super::*;

/// The number of copies that are taken while somebody writes.
const COPIES: usize = 20;

#[tokio::test]
async fn a_backup_keeps_revocations_used_tokens_addresses_and_names() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    for name in ["edge-a", "edge-b", "edge-c"] {
        directory.create_cluster(id(name), ClusterSpecUpdate::default(), at(5)).await.unwrap();
    }
    directory.revoke(Revoked::Serial("abc".to_owned()), at(10)).await.unwrap();
    let ann = Callers::Named("ann".to_owned());
    directory.revoke_callers(ann.clone(), None, at(10)).await.unwrap();
    let (bearer, _) = directory.create_token(id("edge-a"), Duration::from_secs(900), at(10)).await.unwrap();
    let key = ("pin".to_owned(), "one".to_owned());
    directory.enroll(bearer.clone(), key, agent("chain"), None, at(10)).await.unwrap();
    let range = |clusters: &[&str]| AddressRange {
        network: "100.100.0.0/29".parse().unwrap(),
        clusters: clusters.iter().map(|name| id(name)).collect(),
    };
    let given = directory.assign_addresses(vec![range(&["edge-b", "edge-c"])], at(10)).await.unwrap();
    directory.delete_cluster(id("edge-c"), at(20), NAME_RESERVED).await.unwrap();
    // The time is in memory alone until somebody saves it.
    let _ = directory.mark_seen(&id("edge-a"), at(30));

    let restored = opened_elsewhere(directory.backup(()).await.unwrap().0);

    let other = AgentId::parse("spiffe://tombolo/cluster/edge-a/agent/two", "tombolo").unwrap();
    let revoked = AgentCredential { serial: "abc".to_owned(), issued: UnixSeconds(50) };
    assert!(restored.admits(&other, &revoked).is_err());
    assert!(restored.revoked_callers().iter().any(|(callers, _)| *callers == ann));
    let used = restored.token_grant(bearer, "another".to_owned(), at(40)).await;
    assert!(matches!(used, Err(TokenRefused::Used)), "{used:?}");
    let again = restored.assign_addresses(vec![range(&["edge-a", "edge-b"])], at(40)).await.unwrap();
    assert_eq!(again[&id("edge-b")].address, given[&id("edge-b")].address);
    let reserved = restored.create_cluster(id("edge-c"), ClusterSpecUpdate::default(), at(40)).await;
    assert!(reserved.is_err(), "{reserved:?}");
    assert_eq!(restored.last_seen(&id("edge-a")), Some(at(30)));
}

/// Each revocation was acknowledged before the label that counts it was written. A copy of parts of two moments would
/// have a count without its revocations.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_taken_during_writes_is_the_store_of_one_moment() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    directory.create_cluster(id("edge-a"), ClusterSpecUpdate::default(), at(5)).await.unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let writing = {
        let (directory, is_over) = (directory.clone(), Arc::clone(&is_over));
        async move {
            for count in 1u64.. {
                if is_over.load(Ordering::Relaxed) {
                    return count;
                }
                directory.revoke(Revoked::Serial(format!("{count:x}")), at(5)).await.unwrap();
                let set_labels = vec![("count".to_owned(), count.to_string())];
                let update = ClusterSpecUpdate { set_labels, ..ClusterSpecUpdate::default() };
                directory.update_cluster(id("edge-a"), update).await.unwrap();
            }
            unreachable!("it counts until it is over");
        }
    };
    let copying = async {
        let mut copies = Vec::new();
        for _ in 0..COPIES {
            copies.push(directory.backup(()).await.unwrap().0);
        }
        is_over.store(true, Ordering::Relaxed);
        copies
    };

    let (_, copies) = tokio::join!(writing, copying);

    let agent = AgentId::parse("spiffe://tombolo/cluster/edge-b/agent/x", "tombolo").unwrap();
    let mut seen = 0;
    for copy in copies {
        let restored = opened_elsewhere(copy);
        let entry = restored.entry(&id("edge-a")).expect("the cluster");
        let counted = entry.record.labels.get("count").map_or(0, |count| count.parse().unwrap());
        let is_revoked = |count: u64| {
            let credential = AgentCredential { serial: format!("{count:x}"), issued: UnixSeconds(0) };
            restored.admits(&agent, &credential).is_err()
        };
        assert!((1..=counted).all(is_revoked), "a revocation up to {counted} is missing");
        assert!(!is_revoked(counted + 2), "a revocation of a later moment than {counted} is there");
        assert!(counted >= seen, "the copy has {counted}, and the one before had {seen}");
        seen = counted;
    }
}

/// `tombolo server restore` tells by these bytes that a file is a backup.
#[tokio::test]
async fn a_backup_begins_with_the_bytes_by_which_it_is_known() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();

    assert!(directory.backup(()).await.unwrap().0.starts_with(BACKUP_MAGIC));
}

/// `tombolo server restore` tells by this lock that a server runs.
#[test]
fn an_open_store_is_locked_for_other_programs_and_a_closed_one_is_not() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    let other = File::options().read(true).write(true).open(file(&state)).unwrap();

    assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
    drop(directory);
    assert!(other.try_lock().is_ok());
}

fn opened_elsewhere(backup: Vec<u8>) -> Directory {
    let state = tempfile::tempdir().unwrap();
    let directory = state_dir(state.path());
    std::fs::write(file(&state), backup).unwrap();
    // The open file stays readable after its folder is removed.
    Directory::open(&directory).expect("a backup opens")
}
