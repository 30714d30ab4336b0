//! Tests of `tombolo server import` into a state directory, and of its refusals.

use std::fs;
use std::process::Command;

use records::export::ExportWriter;
use records::file::{ExistingFile, MAGIC, NewFile};
use records::layout::Place;

use crate::workdir::{WorkDir, assert_says, stderr, stdout};

const STORE: &str = "directory.redb";
const TAKEN: &str = "2026-11-27T09:04:17Z";

/// An export with two clusters, and with three tokens of which one was used.
fn export() -> Vec<u8> {
    let mut text = Vec::new();
    let mut writer = ExportWriter::begin("tombolo", TAKEN, &mut text);
    for (path, record) in [
        ("r/tokens/a", r#"{"cluster":"edge-a","used":null}"#),
        ("r/tokens/b", r#"{"cluster":"edge-a","used":{"pin":"x"}}"#),
        ("r/tokens/c", r#"{"cluster":"edge-b","used":null}"#),
        ("w/clusters/edge-a", r#"{"created":5}"#),
        ("w/clusters/edge-b", r#"{"created":6}"#),
    ] {
        writer.record(&Place::parse(path).unwrap(), record.as_bytes(), &mut text).unwrap();
    }
    let _ = writer.end(&mut text);
    text
}

fn with_export() -> WorkDir {
    let workdir = WorkDir::new();
    workdir.write("records.jsonl", export());
    workdir
}

fn count(workdir: &WorkDir, state: &str) -> u64 {
    let found = ExistingFile::open(&workdir.path(state), STORE).unwrap();
    found.expect("it is there").count().unwrap()
}

#[test]
fn records_are_put_into_a_new_private_state_directory() {
    let workdir = with_export();

    let said = workdir.succeeds("server import records.jsonl --state-dir lib/server");

    assert_says(&said, "lib/server/directory.redb has 3 records: 2 clusters, 1 tokens");
    assert_says(&said, "2 enrollment tokens that were not used are left out");
    assert_eq!(workdir.mode("lib/server"), 0o700);
    assert_eq!(workdir.mode("lib/server/directory.redb"), 0o600);
    assert_eq!(count(&workdir, "lib/server"), 3);
}

#[test]
fn unused_tokens_are_kept_if_asked() {
    let workdir = with_export();

    let said = workdir.succeeds("server import records.jsonl --state-dir state --keep-tokens");

    assert_says(&said, "5 records: 2 clusters, 3 tokens");
    assert_eq!(count(&workdir, "state"), 5);
}

/// The command finds what was revoked since, and nothing else.
#[test]
fn the_printed_command_finds_the_revocations_in_the_audit_log() {
    let workdir = with_export();
    let said = workdir.succeeds("server import records.jsonl --state-dir state");
    let Some(command) = said.lines().find(|line| line.contains("jq")) else { panic!("{said}") };
    if Command::new("jq").arg("--version").output().is_err() {
        return;
    }
    let line = |time: &str, stage: &str, method: &str| {
        format!(
            r#"{{"stage":"{stage}","requestReceivedTimestamp":"{time}","requestURI":"/tombolo.admin.v1.Admin/{method}","annotations":{{"tombolo.dev/detail":"of {time}"}}}}"#
        )
    };
    let log = [
        line("2026-11-27T09:04:16.900000Z", "ResponseComplete", "RevokeAgent"),
        line("2026-11-27T09:04:17.000001Z", "ResponseComplete", "RevokeUser"),
        line("2026-11-27T09:04:18.000000Z", "RequestReceived", "RevokeUser"),
        line("2026-11-27T09:04:19.000000Z", "ResponseComplete", "ListAgents"),
        line("2026-11-27T09:04:20.000000Z", "ResponseComplete", "DeleteCluster"),
    ];
    workdir.write("audit.log", log.join("\n"));

    let found = Command::new("sh").args(["-c", command]).current_dir(workdir.path(".")).output().unwrap();

    let found = String::from_utf8(found.stdout).unwrap();
    let details: Vec<_> = found.lines().filter_map(|line| line.split("of ").nth(1)).collect();
    assert_eq!(details, ["2026-11-27T09:04:17.000001Z", "2026-11-27T09:04:20.000000Z"], "{found}");
}

#[test]
fn an_import_from_standard_input_is_like_one_from_a_file() {
    let workdir = WorkDir::new();
    let import = |input: Vec<u8>| {
        let line = ["server", "import", "-", "--state-dir", "state"];
        workdir.command(line).write_stdin(input).assert()
    };

    assert_says(&stderr(import(b"other".to_vec()).code(1)), "standard input is not an export of a server");
    assert_says(&stdout(import(export()).success()), "has 3 records");

    assert_eq!(count(&workdir, "state"), 3);
}

#[test]
fn only_an_empty_store_takes_an_import() {
    let workdir = with_export();
    fs::create_dir(workdir.path("state")).unwrap();
    workdir.command(["server", "import", "records.jsonl", "--state-dir", "empty"]).assert().success();
    let again = workdir.fails("server import records.jsonl --state-dir empty");
    assert_says(&again, "has 3 records already, and an import is for an empty store");

    // As a server leaves it that has met nobody.
    let directory = workdir.path("met-nobody");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    NewFile::begin(&directory, STORE).unwrap().finish().unwrap();
    workdir.succeeds("server import records.jsonl --state-dir met-nobody");
    assert_eq!(count(&workdir, "met-nobody"), 3);
}

#[test]
fn a_store_in_use_takes_no_import() {
    let workdir = with_export();
    workdir.succeeds("server import records.jsonl --state-dir state");
    let _held = ExistingFile::open(&workdir.path("state"), STORE).unwrap();

    let refused = workdir.fails("server import records.jsonl --state-dir state");

    assert_says(&refused, "stop its tunnel-server first");
}

#[test]
fn a_dry_run_checks_everything_and_writes_nothing() {
    let workdir = with_export();
    let dry = "server import records.jsonl --state-dir state --dry-run";

    assert_says(&workdir.succeeds(dry), "would get 3 records: 2 clusters, 1 tokens");
    assert!(!workdir.path("state").exists());
    workdir.succeeds("server import records.jsonl --state-dir state");
    assert_says(&workdir.fails(dry), "has 3 records already");
}

#[test]
fn a_text_that_is_not_a_whole_export_is_refused() {
    let workdir = WorkDir::new();
    let whole = export();
    let ends: Vec<usize> =
        whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    let changed = String::from_utf8(whole.clone()).unwrap().replace("\"created\":5", "\"created\":4");
    for (name, text, why) in [
        ("empty", Vec::new(), "it does not begin as an export"),
        ("other", b"apiVersion: v1\n".to_vec(), "it does not begin as an export"),
        ("cut-off", whole[..ends[3]].to_vec(), "it was cut off after line 4"),
        ("changed", changed.into_bytes(), "it was changed since it was written"),
        ("database", [MAGIC, b"of a server"].concat(), "copy it to directory.redb"),
    ] {
        workdir.write(name, text);

        let refused = workdir.fails(&format!("server import {name} --state-dir state"));

        assert_says(&refused, why);
        assert!(!workdir.path("state").exists(), "nothing is made");
    }
    assert_says(&workdir.fails("server import none --state-dir state"), "cannot read none");
}

#[test]
fn records_of_another_trust_domain_are_refused() {
    let workdir = with_export();

    let refused = workdir.fails("server import records.jsonl --state-dir state --trust-domain example.org");

    assert_says(
        &refused,
        "has the records of the trust domain tombolo, and the servers here are of example.org",
    );
    workdir.write("server.yaml", "kind: ServerConfig\ntrustDomain: example.org\nstateDir: state\n");
    let refused = workdir.fails("server import records.jsonl --config server.yaml");
    assert_says(&refused, "the trust domain tombolo");
}

#[test]
fn the_configuration_names_the_state_directory() {
    let workdir = with_export();
    workdir.write("server.yaml", "kind: ServerConfig\nstateDir: lib\n");

    workdir.succeeds("server import records.jsonl --config server.yaml");

    assert_eq!(count(&workdir, "lib"), 3);
    workdir.write("all.yaml", "kind: ServerConfig\nstateDir: lib-$(serverId)\n");
    workdir.succeeds("server import records.jsonl --config all.yaml --server-id west");
    assert_eq!(count(&workdir, "lib-west"), 3);
    workdir.write("agent.yaml", "kind: AgentConfig\n");
    assert_says(&workdir.fails("server import records.jsonl --config agent.yaml"), "is of kind AgentConfig");
}
