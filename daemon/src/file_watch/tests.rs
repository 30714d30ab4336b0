//! Tests of all forms of a file's change.

use std::fs;
use std::os::unix::fs::symlink;

use tokio::time::timeout;

use super::*;

/// Shorter than a polling interval, so that only an event ends the wait.
const NOTICED_MAX: Duration = Duration::from_secs(9);

#[tokio::test]
async fn writes_renames_removal_and_creation_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("policy.yaml"), folder.path().join("other.yaml"));
    fs::write(&path, "a").unwrap();
    let mut watch = FileWatch::new(&path);

    fs::write(&path, "b").unwrap();
    noticed(&mut watch).await;
    fs::write(&other, "c").unwrap();
    fs::rename(&other, &path).unwrap();
    noticed(&mut watch).await;
    fs::remove_file(&path).unwrap();
    noticed(&mut watch).await;
    fs::write(&path, "d").unwrap();
    noticed(&mut watch).await;
}

#[tokio::test]
async fn kubernetes_swap_of_the_data_link_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let within = |name: &str| folder.path().join(name);
    for (generation, text) in [("..1", "a"), ("..2", "b")] {
        fs::create_dir(within(generation)).unwrap();
        fs::write(within(generation).join("policy.yaml"), text).unwrap();
    }
    symlink("..1", within("..data")).unwrap();
    symlink("..data/policy.yaml", within("policy.yaml")).unwrap();
    let mut watch = FileWatch::new(&within("policy.yaml"));

    symlink("..2", within("..data_tmp")).unwrap();
    fs::rename(within("..data_tmp"), within("..data")).unwrap();

    noticed(&mut watch).await;
    assert_eq!(fs::read_to_string(within("policy.yaml")).unwrap(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_file_is_polled_without_events() {
    let started = tokio::time::Instant::now();
    let mut watch = FileWatch::new(Path::new("/nowhere/policy.yaml"));

    watch.changed().await;
    watch.changed().await;

    assert_eq!(started.elapsed(), 2 * POLL_EVERY);
}

#[test]
fn reads_and_changes_of_other_files_are_ignored() {
    let event = |kind, name: &str| Event::new(kind).add_path(Path::new("/etc/tombolo").join(name));
    let files = [OsString::from("policy.yaml"), OsString::from("admins.yaml")];
    let written = EventKind::Modify(notify::event::ModifyKind::Any);
    assert!(may_change(&event(written, "policy.yaml"), &files));
    assert!(may_change(&event(written, "admins.yaml"), &files));
    assert!(may_change(&event(written, "..data"), &files));
    assert!(may_change(&Event::new(EventKind::Other), &files));
    assert!(!may_change(&event(written, "server.yaml"), &files));
    assert!(!may_change(&event(EventKind::Access(notify::event::AccessKind::Any), "policy.yaml"), &files));
}

async fn noticed(watch: &mut FileWatch) {
    timeout(NOTICED_MAX, watch.changed()).await.expect("a notice");
}
