//! Exports of the records, taken while they are written, and imported elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::records::export::{ExportReader, NotAnExport};
use ::records::file::{ExistingFile, NewFile, table};
use ::records::layout::Place;
use proto::spiffe::AgentId;

use super::enrolling::agent;
use super::*;

/// The number of exports that are taken while somebody writes.
const COPIES: usize = 20;

#[tokio::test]
async fn an_export_keeps_revocations_used_tokens_addresses_and_names() {
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

    let restored = imported_elsewhere(&exported(&directory).await);

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

/// Each revocation was acknowledged before the label that counts it was written. An export of parts of two moments would
/// have a count without its revocations.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_taken_during_writes_has_the_records_of_one_moment() {
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
            copies.push(exported(&directory).await);
        }
        is_over.store(true, Ordering::Relaxed);
        copies
    };

    let (_, copies) = tokio::join!(writing, copying);

    let agent = AgentId::parse("spiffe://tombolo/cluster/edge-b/agent/x", "tombolo").unwrap();
    let mut seen = 0;
    for copy in copies {
        let restored = imported_elsewhere(&copy);
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

#[tokio::test]
async fn an_export_of_imported_records_is_the_same_text() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    for number in 0..1_000 {
        let _ = directory.mark_seen(&id(&format!("edge-{number}")), at(6));
    }
    directory.save().await.unwrap();
    directory.create_token(id("edge-1"), Duration::from_secs(900), at(10)).await.unwrap();
    directory.revoke(Revoked::Serial("abc".to_owned()), at(10)).await.unwrap();
    let first = exported(&directory).await;

    let again = exported(&imported_elsewhere(&first)).await;

    assert!(first.len() > 2 * 64 * 1024, "it has several pieces: {}", first.len());
    assert_eq!(String::from_utf8(again).unwrap(), String::from_utf8(first).unwrap());
}

#[tokio::test]
async fn an_export_lacks_no_table_of_a_newer_server() {
    let state = tempfile::tempdir().unwrap();
    drop(open(&state).unwrap());
    let database = ::records::file::builder().open(file(&state)).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(table("newer")).unwrap().insert("a", b"1".as_slice()).unwrap();
    write.commit().unwrap();
    drop(database);
    let directory = open(&state).unwrap();

    let refused = directory.export(DOMAIN.to_owned(), TAKEN.to_owned(), ()).await;

    assert!(matches!(refused.err(), Some(StoreError::UnknownTable(_))));
}

#[tokio::test]
async fn an_export_gives_its_slot_back_at_its_end() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    let slot = Arc::new(());
    let begun =
        async || directory.export(DOMAIN.to_owned(), TAKEN.to_owned(), Arc::clone(&slot)).await.unwrap();
    let free = async || {
        while Arc::strong_count(&slot) > 1 {
            tokio::task::yield_now().await;
        }
    };

    let mut export = begun().await;
    while export.next().await.is_some() {}
    free().await;
    drop(begun().await);
    free().await;
}

/// A reader that hangs must not keep a slot for ever.
#[tokio::test(start_paused = true)]
async fn an_export_that_nobody_reads_ends() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    for number in 0..2_000 {
        let _ = directory.mark_seen(&id(&format!("{number:0>60}")), at(6));
    }
    let slot = Arc::new(());

    let mut export = directory.export(DOMAIN.to_owned(), TAKEN.to_owned(), Arc::clone(&slot)).await.unwrap();
    while Arc::strong_count(&slot) > 1 {
        tokio::time::advance(Duration::from_secs(1)).await;
    }

    let mut last = export.next().await;
    while let Some(Ok(_)) = last {
        last = export.next().await;
    }
    assert!(last.is_none_or(|last| matches!(last, Err(StoreError::NotRead))));
}

/// `tombolo server import` tells by this lock that a server runs.
#[test]
fn an_open_store_is_locked_for_other_programs_and_a_closed_one_is_not() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    let other = || ExistingFile::open(file(&state).parent().unwrap(), "directory.redb");

    assert!(other().is_err());
    drop(directory);
    assert!(other().unwrap().is_some());
}

const DOMAIN: &str = "example.org";
const TAKEN: &str = "2026-11-27T09:04:17Z";

async fn exported(directory: &Directory) -> Vec<u8> {
    let mut export = directory.export(DOMAIN.to_owned(), TAKEN.to_owned(), ()).await.unwrap();
    let mut text = Vec::new();
    while let Some(piece) = export.next().await {
        text.extend(piece.unwrap());
    }
    text
}

fn imported_elsewhere(text: &[u8]) -> Directory {
    let state = tempfile::tempdir().unwrap();
    let directory = state_dir(state.path());
    let mut new = NewFile::begin(directory.path(), "directory.redb").unwrap();
    let mut reader = ExportReader::default();
    let put = |place: &Place<'_>, record: &[u8]| {
        new.put(place, record).unwrap();
        Ok::<_, NotAnExport>(())
    };
    reader.read(text, put).unwrap();
    assert_eq!(reader.end().unwrap().0.trust_domain, DOMAIN);
    new.finish().unwrap();
    // The open file stays readable after its folder is removed.
    Directory::open(&directory).expect("an import opens")
}
