//! Restarts, crashes and damage of the store.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::*;
use crate::directory::records::UnixSeconds;

const DAY: u64 = 24 * 60 * 60;

mod addresses;
mod attesting;
mod crash;
mod describing;
mod dialing;
mod enrolling;
mod exporting;
mod networking;
mod revoking;
mod sweeping;

#[tokio::test]
async fn a_cluster_that_was_seen_is_known_after_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    let (edge, other) = (id("edge-a"), id("edge-b"));

    assert!(!directory.was_seen(&edge));
    assert_eq!(directory.mark_seen(&edge, at(5)), SeenOutcome::First);
    assert_eq!(directory.mark_seen(&edge, at(6)), SeenOutcome::Again);
    directory.save().await.unwrap();
    drop(directory);

    let directory = open(&state).unwrap();
    assert!(directory.was_seen(&edge) && !directory.was_seen(&other));
    assert_eq!(directory.last_seen(&edge), Some(at(6)));
    assert_eq!(directory.mark_seen(&edge, at(7)), SeenOutcome::Again);
}

#[test]
fn an_earlier_time_changes_nothing_unless_the_clock_was_set_back() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    let edge = id("edge-a");
    let _ = directory.mark_seen(&edge, at(50));
    let _ = directory.mark_seen(&edge, at(40));
    assert_eq!(directory.last_seen(&edge), Some(at(50)));

    let _ = directory.mark_seen(&edge, at(u64::MAX >> 10));
    let _ = directory.mark_seen(&edge, at(60));
    assert_eq!(directory.last_seen(&edge), Some(at(60)));
}

#[tokio::test]
async fn no_more_than_the_limit_is_remembered() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    directory.set_clusters_max(20);
    for n in 0..20 {
        assert_eq!(directory.mark_seen(&id(&format!("{n:0>63}")), at(u64::MAX >> 10)), SeenOutcome::First);
    }

    assert_eq!(directory.mark_seen(&id("one-more"), at(0)), SeenOutcome::Full);
    assert!(!directory.was_seen(&id("one-more")));
    let made = directory.create_cluster(id("one-more"), ClusterSpecUpdate::default(), at(0)).await;
    assert!(matches!(made, Err(ClusterError::Full(20))), "{made:?}");
    directory.save().await.unwrap();
    drop(directory);
    assert!(open(&state).unwrap().was_seen(&id(&format!("{:0>63}", 0))));
}

#[tokio::test]
async fn what_is_damaged_is_refused_and_left_alone() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    let _ = directory.mark_seen(&id("edge-a"), at(5));
    directory.save().await.unwrap();
    drop(directory);
    let complete = std::fs::read(file(&state)).unwrap();
    let record = complete.windows(9).rposition(|bytes| bytes == b"\"created\"").expect("the record");
    let flipped = complete.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == record + 4)).collect();
    for damaged in [Vec::new(), b"nonsense".to_vec(), complete[..complete.len() / 2].to_vec(), flipped] {
        std::fs::write(file(&state), &damaged).unwrap();

        let error = open(&state).unwrap_err();

        assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
        assert!(error.to_string().contains("move it away"), "{error}");
        assert!(std::fs::read(file(&state)).unwrap() == damaged, "it was touched");
    }
    std::fs::write(file(&state), &complete).unwrap();
    assert!(open(&state).unwrap().was_seen(&id("edge-a")));
}

#[test]
fn one_process_holds_a_state_directory() {
    let state = tempfile::tempdir().unwrap();
    let _held = open(&state).unwrap();

    assert!(matches!(open(&state).unwrap_err(), StoreError::InUse(_)));
}

#[test]
fn others_cannot_read_the_file() {
    use std::os::unix::fs::PermissionsExt as _;

    let state = tempfile::tempdir().unwrap();
    let _directory = open(&state).unwrap();

    assert_eq!(std::fs::metadata(file(&state)).unwrap().permissions().mode() & 0o777, 0o600);
}

fn open(state: &tempfile::TempDir) -> Result<Directory, StoreError> {
    Directory::open(&state_dir(state.path()))
}

fn state_dir(path: &Path) -> StateDir {
    StateDir::open(&path.join("state")).unwrap()
}

fn file(state: &tempfile::TempDir) -> std::path::PathBuf {
    state.path().join("state/directory.redb")
}

fn id(name: &str) -> ClusterId {
    name.parse().unwrap()
}

fn at(seconds: u64) -> SystemTime {
    UnixSeconds(seconds).time().unwrap()
}
