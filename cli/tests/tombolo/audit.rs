//! Tests of `tombolo audit verify`: its messages and exit codes for good, changed and unverifiable logs.

use audit::{ChainKey, Completion, EndReason, Event, Log, Settings, SigningKey, Sync, Target, User};

use crate::workdir::{WorkDir, assert_says, stdout};

/// The only file of the log.
const FILE: &str = "log/audit-00000000000000000001.log";

#[test]
fn an_unchanged_log_is_verified_and_a_changed_one_is_reported() {
    let workdir = WorkDir::new();
    write_log(&workdir);

    let said = workdir.succeeds("audit verify log --key chain.key --public-key log/audit.pub");
    assert_says(&said, "as they were written");
    assert_says(&said, "checkpoints vouch for them up to line");
    let json = workdir.succeeds("audit verify log --public-key log/audit.pub -o json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["verified"], &json["chained"]), (&true.into(), &false.into()));

    workdir.write(FILE, workdir.text(FILE).replace("alice", "malle"));
    let changed = workdir.fails("audit verify log --key chain.key");
    assert_says(&changed, "audit-00000000000000000001.log, line 3, does not match its MAC");
    let changed = workdir.run("audit verify log --public-key log/audit.pub -o json").code(1);
    assert_says(&stdout(changed), r#""verified":false"#);
}

/// The key alone looks at the checkpoints beside the log, and says what it does not show.
#[test]
fn a_cut_end_is_noticed_by_the_chain_key_alone() {
    let workdir = WorkDir::new();
    write_log(&workdir);
    let said = workdir.succeeds("audit verify log --key chain.key");
    assert_says(&said, "their signatures were not verified: name the public key with --public-key");
    let json = workdir.succeeds("audit verify log --key chain.key -o json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["covered"], &json["signed"]), (&json["last"], &0.into()));

    let text = workdir.text(FILE);
    let cut = text.trim_end().rsplit_once('\n').expect("several lines").0;
    workdir.write(FILE, format!("{cut}\n"));

    for command in ["audit verify log --key chain.key", &format!("audit verify {FILE} --key chain.key")] {
        assert_says(&workdir.fails(command), "the end was cut off");
    }
    std::fs::remove_file(workdir.path("log/checkpoints.jsonl")).unwrap();
    let said = workdir.succeeds("audit verify log --key chain.key");
    assert_says(&said, "there are no checkpoints, so a cut end is not noticed");
}

/// Most readers copy the first example of the help.
#[test]
fn the_first_example_of_audit_verify_uses_both_keys_and_kept_checkpoints() {
    let help = WorkDir::new().succeeds("audit verify --help");
    let (_, examples) = help.split_once("Examples:").expect("examples");
    let first = examples.split("tombolo audit verify").nth(1).expect("an example");
    for flag in ["--key", "--checkpoints", "--public-key"] {
        assert!(first.contains(flag), "{flag}: {first}");
    }
}

#[test]
fn an_unverifiable_log_ends_with_exit_code_2_and_the_reason() {
    let workdir = WorkDir::new();
    write_log(&workdir);
    for (command, words) in [
        ("audit verify log", "name the chain's key"),
        ("audit verify log --key log/audit.pub", "not a key of an audit log"),
        ("audit verify log --public-key chain.key", "chain.key"),
        ("audit verify nowhere --key chain.key", "cannot read nowhere"),
    ] {
        assert_says(&workdir.usage_error(command), words);
    }
}

/// Writes a log of two requests to `log`, and its key in `chain.key`.
fn write_log(workdir: &WorkDir) {
    let (chain, signing) = (ChainKey::generate().unwrap(), SigningKey::generate().unwrap());
    workdir.write("chain.key", chain.to_bytes());
    let settings = Settings {
        server: "server-1".to_owned(),
        directory: workdir.path("log"),
        target: Target::Files { bytes_max: audit::FILE_BYTES_MIN, kept: audit::FILES_MIN },
        sync: Sync::Interval,
    };
    let (log, running) = Log::open(&settings, &chain, &signing).unwrap();
    for user in ["alice", "bob"] {
        let user = User { username: user.to_owned(), ..User::default() };
        let event = Event::new("revoke", "/", user);
        log.write_reserved(event, Completion::new(None, EndReason::Clean)).unwrap();
    }
    drop(running);
}
