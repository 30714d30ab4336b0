//! Damaged files in the state directories: which of them stop a daemon, and the errors.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use daemon::StateFile;
use tests::fake_api::FakeApi;
use tests::rig::{ApiServer, Rig};

/// Losing them costs a stateless reset, and nothing that would be worth a stop.
#[tokio::test]
async fn damaged_endpoint_keys_stop_no_daemon_and_are_kept_beside() {
    let (mut rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let api_server = ApiServer::of_fake(&rig, &api);
    let agent = rig.agent("edge-a", &api_server).await;
    drop(agent);
    rig.kill_server();
    let states = ["server.state", "edge-a.state"].map(|state| rig.path().join(state));
    for (state, damaged) in states.iter().zip(["", "of a wrong length"]) {
        fs::write(state.join("endpoint.keys"), damaged).expect("a file can be written");
    }

    rig.start_server().await;
    let _agent = rig.agent("edge-a", &api_server).await;

    for (state, damaged) in states.iter().zip(["", "of a wrong length"]) {
        assert_eq!(fs::read_to_string(state.join("endpoint.keys.bad")).expect("it is kept"), damaged);
        assert_eq!(fs::read(state.join("endpoint.keys")).expect("new keys").len(), 96);
    }
    for log in [rig.server_log(), rig.agent_log("edge-a")] {
        let warning = log.lines().find(|line| line.contains("endpoint.keys.bad"));
        let warning = warning.unwrap_or_else(|| panic!("{log}"));
        assert!(warning.contains(StateFile::EndpointKeys.cost()), "{warning}");
    }
}

/// It would be worse to go on without them: a log that nobody can verify, revocations that are forgotten.
#[tokio::test]
async fn a_damaged_audit_key_or_store_ends_the_server_with_its_path() {
    let mut rig = Rig::start().await;
    rig.kill_server();
    let state = rig.path().join("server.state");
    for file in [StateFile::AuditChainKey, StateFile::AuditSigningKey, StateFile::Directory] {
        let path = state.join(file.name());
        let whole = fs::read(&path).expect("the server made it");
        fs::write(&path, "damaged").expect("a file can be written");

        let code = rig.start_server_and_fail().await;

        let log = rig.server_log();
        assert_eq!(code, Some(1), "{log}");
        for part in [&*path.display().to_string(), file.cost(), file.remedy()] {
            assert!(log.contains(part), "{part}: {log}");
        }
        assert_eq!(fs::read_to_string(&path).expect("it is left"), "damaged");
        fs::write(&path, whole).expect("a file can be written");
    }
    rig.start_server().await;
}

/// A file that the table in `docs/security.md` does not have would be one that nobody backs up.
#[tokio::test]
async fn daemons_write_no_other_files_than_the_known_ones() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let _agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;

    let mut known: BTreeSet<String> = StateFile::ALL.iter().map(|file| file.name().to_owned()).collect();
    known.insert("audit".to_owned());
    for state in ["server.state", "edge-a.state"] {
        let found = names(&rig.path().join(state));
        assert!(!found.is_empty() && found.is_subset(&known), "{state}: {found:?}");
    }
    let audit = names(&rig.path().join("server.state/audit"));
    let is_known = |name: &String| {
        [audit::CHECKPOINTS_FILE, audit::PUBLIC_KEY_FILE].contains(&name.as_str())
            || (name.starts_with("audit-") && name.ends_with(".log"))
    };
    assert!(audit.iter().all(is_known), "{audit:?}");
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).expect("the daemon made it").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
