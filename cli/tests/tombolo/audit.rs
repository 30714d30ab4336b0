//! `tombolo audit verify`: what it says of a log, and with which exit code.

use audit::{ChainKey, Completion, EndReason, Event, Log, Settings, SigningKey, Sync, Target, User};

use crate::workdir::{WorkDir, assert_says, stdout};

/// The log's one file.
const FILE: &str = "log/audit-00000000000000000001.log";

#[test]
fn a_log_as_it_was_written_is_said_to_be_so_and_one_that_was_changed_is_not() {
    let workdir = WorkDir::new();
    written(&workdir);

    let said = workdir.succeeds("audit verify log --key chain.key --public-key log/audit.pub");
    assert_says(&said, "as they were written");
    assert_says(&said, "checkpoints vouch for them up to line");
    let json = workdir.succeeds("audit verify log --public-key log/audit.pub -o json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["verified"], &json["chained"]), (&true.into(), &false.into()));

    workdir.write(FILE, workdir.text(FILE).replace("alice", "malle"));
    let changed = workdir.fails("audit verify log --key chain.key");
    assert_says(&changed, "audit-00000000000000000001.log, line 3, does not fit its code");
    let changed = workdir.run("audit verify log --public-key log/audit.pub -o json").code(1);
    assert_says(&stdout(changed), r#""verified":false"#);
}

#[test]
fn where_nothing_can_be_said_the_exit_code_is_2_and_the_words_say_why() {
    let workdir = WorkDir::new();
    written(&workdir);
    for (command, words) in [
        ("audit verify log", "name the chain's key"),
        ("audit verify log --key log/audit.pub", "not a key of an audit log"),
        ("audit verify log --public-key chain.key", "chain.key"),
        ("audit verify nowhere --key chain.key", "cannot read nowhere"),
    ] {
        assert_says(&workdir.usage_error(command), words);
    }
}

/// A log of two exchanges in `log`, and its key in `chain.key`.
fn written(workdir: &WorkDir) {
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
        log.reserved(event, Completion::new(None, EndReason::Clean)).unwrap();
    }
    drop(running);
}
