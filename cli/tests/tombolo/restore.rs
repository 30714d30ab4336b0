//! Tests of `tombolo server restore`, and of its refusals.

use std::fs::File;

use proto::admin::BACKUP_MAGIC;

use crate::workdir::{WorkDir, assert_says, stderr, stdout};

fn with_backup() -> WorkDir {
    let workdir = WorkDir::new();
    workdir.write("backup.redb", [BACKUP_MAGIC, b"of the server"].concat());
    workdir
}

#[test]
fn a_backup_is_put_into_a_new_private_state_directory() {
    let workdir = with_backup();

    workdir.succeeds("server restore backup.redb --state-dir lib/server");

    assert_eq!(workdir.mode("lib/server"), 0o700);
    assert_eq!(workdir.mode("lib/server/directory.redb"), 0o600);
    let read = |name: &str| std::fs::read(workdir.path(name)).unwrap();
    assert_eq!(read("lib/server/directory.redb"), read("backup.redb"));
}

#[test]
fn records_are_replaced_only_if_asked_and_are_kept_beside() {
    let workdir = with_backup();
    workdir.succeeds("server restore backup.redb --state-dir state");
    workdir.write("later.redb", [BACKUP_MAGIC, b"later"].concat());

    assert_says(&workdir.fails("server restore later.redb --state-dir state"), "--replace");
    assert_says(
        &workdir.succeeds("server restore later.redb --state-dir state --replace"),
        "directory.redb.replaced",
    );

    let read = |name: &str| std::fs::read(workdir.path(name)).unwrap();
    assert_eq!(read("state/directory.redb"), read("later.redb"));
    assert_eq!(read("state/directory.redb.replaced"), read("backup.redb"));
    assert_eq!(workdir.mode("state/directory.redb.replaced"), 0o600);
    let again = workdir.fails("server restore backup.redb --state-dir state --replace");
    assert_says(&again, "move it away first");
    assert_eq!(read("state/directory.redb.replaced"), read("backup.redb"), "the oldest records are not lost");
}

#[test]
fn a_backup_from_standard_input_is_restored_like_one_from_a_file() {
    let workdir = with_backup();
    let bytes = std::fs::read(workdir.path("backup.redb")).unwrap();
    let restore = |input: &[u8]| {
        let line = ["server", "restore", "-", "--state-dir", "state"];
        workdir.command(line).write_stdin(input.to_vec()).assert()
    };

    assert_says(&stderr(restore(b"other").code(1)), "standard input is not a backup of a server");
    assert_says(&stdout(restore(&bytes).success()), "has the records of standard input");

    assert_eq!(std::fs::read(workdir.path("state/directory.redb")).unwrap(), bytes);
    assert!(!workdir.path("-").exists());
}

#[test]
fn a_store_in_use_is_not_replaced() {
    let workdir = with_backup();
    workdir.succeeds("server restore backup.redb --state-dir state");
    let held = File::open(workdir.path("state/directory.redb")).unwrap();
    held.lock().unwrap();

    let refused = workdir.fails("server restore backup.redb --state-dir state --replace");

    assert_says(&refused, "stop its tunnel-server first");
}

#[test]
fn a_file_of_another_kind_is_not_restored() {
    let workdir = WorkDir::new();
    for (name, text) in [("empty", ""), ("other", "apiVersion: v1"), ("part", "redb")] {
        workdir.write(name, text);

        let refused = workdir.fails(&format!("server restore {name} --state-dir state"));

        assert_says(&refused, "is not a backup of a server");
        assert!(!workdir.path("state").exists(), "nothing is made");
    }
    assert_says(&workdir.fails("server restore none --state-dir state"), "cannot read none");
}
