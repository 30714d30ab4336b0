//! What is remembered over a restart, and what is never forgotten silently.

use super::*;

#[test]
fn a_cluster_once_met_is_known_after_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    let (edge, other) = (id("edge-a"), id("edge-b"));

    assert!(!directory.met(&edge));
    assert_eq!(directory.meet(&edge, at(5)), Meeting::First);
    assert_eq!(directory.meet(&edge, at(6)), Meeting::Again);
    directory.save().unwrap();
    drop(directory);

    let directory = open(&state).unwrap();
    assert!(directory.met(&edge) && !directory.met(&other));
    assert_eq!(directory.meet(&edge, at(7)), Meeting::Again);
}

#[test]
fn the_time_last_seen_is_kept() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    let _ = directory.meet(&id("edge-a"), at(5));
    let _ = directory.meet(&id("edge-a"), at(1_700_000_000));

    directory.save().unwrap();

    assert!(stored(&state).contains("\"edge-a\": 1700000000"), "{}", stored(&state));
}

#[test]
fn what_was_heard_earlier_changes_nothing_unless_the_clock_was_set_back() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    let edge = id("edge-a");
    let _ = directory.meet(&edge, at(50));
    let _ = directory.meet(&edge, at(40));
    assert_eq!(directory.last_seen(&edge), Some(at(50)));

    let _ = directory.meet(&edge, at(u64::MAX >> 10));
    let _ = directory.meet(&edge, at(60));
    assert_eq!(directory.last_seen(&edge), Some(at(60)));
}

#[test]
fn no_more_than_the_limit_is_remembered() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    for n in 0..CLUSTERS_MAX {
        assert_eq!(directory.meet(&id(&format!("{n:0>63}")), at(u64::MAX >> 10)), Meeting::First);
    }

    assert_eq!(directory.meet(&id("one-more"), at(0)), Meeting::Full);
    assert!(!directory.met(&id("one-more")));
    directory.save().unwrap();
    assert!(open(&state).unwrap().met(&id(&format!("{:0>63}", 0))));
}

#[test]
fn what_is_damaged_is_refused_and_left_alone() {
    let state = tempfile::tempdir().unwrap();
    open(&state).unwrap().save().unwrap();
    for text in [
        "",
        "{",
        "[]",
        "{}",
        "{\"clustersLastSeen\":{\"edge-a\":5},\"x\":1}",
        "{\"clustersLastSeen\":{\"edge-a\":-5}}",
        "{\"clustersLastSeen\":{\"Edge\":5}}",
        "{\"clustersLastSeen\":{\"edge-a\":18446744073709551615}}",
    ] {
        std::fs::write(state.path().join("state/clusters.json"), text).unwrap();

        let error = open(&state).unwrap_err().to_string();

        assert!(error.contains("clusters.json") && error.contains("move it away"), "{error}");
        assert_eq!(stored(&state), text);
    }
}

fn open(state: &tempfile::TempDir) -> Result<Directory, DirectoryError> {
    Directory::open(StateDir::open(&state.path().join("state"))?)
}

fn stored(state: &tempfile::TempDir) -> String {
    std::fs::read_to_string(state.path().join("state/clusters.json")).unwrap()
}

fn id(name: &str) -> ClusterId {
    name.parse().unwrap()
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}
