//! Exports of a running server's records, and what a server elsewhere knows after an import.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use rcgen::KeyPair;
use tests::audit_log::{AuditLog, note};
use tests::binaries::binary;
use tests::enroll::{self, AttestationClient, at, token};
use tests::pki::Issued;
use tests::process::{Invocation, run};
use tests::rig::{GROUP, Rig, ask};
use tonic::Code;

const PATH: &str = "/clusters/edge-a/version";
/// The cluster has no tunnel; its caller is known all the same.
const NOT_CONNECTED: u16 = 503;
const SOCKET: [&str; 2] = ["--socket", "admin/admin.sock"];
/// The limit for `tombolo` to end.
const DONE_MAX: Duration = Duration::from_secs(60);
const STATE: &str = "server.state";
const IMPORT: [&str; 5] = ["server", "import", "records.jsonl", "--config", "server.yaml"];

#[tokio::test]
async fn a_server_restored_elsewhere_keeps_revocations_and_used_tokens() {
    let (mut rig, listener) = enroll::start("").await;
    let (ann, ben) = (rig.caller("ann", &[GROUP]).await, rig.caller("ben", &[GROUP]).await);
    at(&rig, &["cluster", "create", "edge-b"]).await;
    at(&rig, &["cluster", "delete", "edge-b", "--yes"]).await;
    at(&rig, &["user", "revoke", "--name", "ann"]).await;
    let ((used, _), (unused, _)) = (token(&rig, "edge-a").await, token(&rig, "edge-a").await);
    let [key, other] = [(); 2].map(|()| KeyPair::generate().expect("a key"));
    let mut agent = AttestationClient::connect(&rig, &listener).await;
    let issued = agent.enroll(&used, &key).await.expect("a certificate");
    let agents = at(&rig, &["agent", "list"]).await;

    export(&rig, "records.jsonl").await;
    rig.kill_server();
    // Another machine has the configuration and the certificates, and no state.
    fs::remove_dir_all(rig.path().join(STATE)).expect("it is ours");
    let imported = rig.tombolo(&IMPORT).await;
    rig.start_server().await;

    assert!(imported.contains("enrollment tokens that were not used are left out"), "{imported}");
    assert_eq!([status(&rig, &ann).await, status(&rig, &ben).await], [401, NOT_CONNECTED]);
    let mut agent = AttestationClient::connect(&rig, &listener).await;
    assert_eq!(agent.enroll(&used, &other).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(agent.enroll(&used, &key).await.expect("the same again").chain, issued.chain);
    assert_eq!(agent.enroll(&unused, &other).await.unwrap_err().code(), Code::PermissionDenied);
    let listed = at(&rig, &["agent", "list"]).await;
    assert!(agents.lines().all(|line| listed.contains(line)), "{agents}{listed}");
    let reserved = rig.tombolo_fails(&[&["cluster", "create", "edge-b"], SOCKET.as_slice()].concat()).await;
    assert!(reserved.contains("edge-b"), "{reserved}");
}

/// The role operator is shown by `every_admin_method_answers_the_permitted_roles_and_refuses_the_others`.
#[tokio::test]
async fn an_export_is_private_and_stands_in_the_audit_log() {
    let rig = Rig::start().await;

    export(&rig, "records.jsonl").await;

    let file = rig.path().join("records.jsonl");
    assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
    let detail = AuditLog::found(&rig, |log| {
        let exported = log.lines().iter().find(|line| {
            line["verb"] == "export"
                && line["stage"] == "ResponseComplete"
                && note(line, "listener") == "admin"
        })?;
        Some(note(exported, "detail").to_owned())
    })
    .await;
    assert_eq!(detail, "the store");
    let again = [&["server", "export", "--out", "records.jsonl"], SOCKET.as_slice()].concat();
    assert!(rig.tombolo_fails(&again).await.contains("--force"));
}

/// As by `kubectl exec ... > records.jsonl`: nothing but the records is at standard output.
#[tokio::test]
async fn an_export_at_standard_output_is_the_same_as_in_a_file() {
    let rig = Rig::start().await;
    let words = [&["server", "export", "--out", "-"], SOCKET.as_slice()].concat();
    let invocation = Invocation::of(binary("tombolo")).arguments(words).in_directory(rig.path());

    let output = run(&invocation, DONE_MAX).await.expect("tombolo runs");
    export(&rig, "records.jsonl").await;

    assert!(output.status.success(), "{output:?}");
    let file = fs::read_to_string(rig.path().join("records.jsonl")).expect("it is ours");
    let piped = String::from_utf8(output.stdout).expect("a text");
    // The first line has the time.
    assert_eq!(piped.split_once('\n').map(|(_, rest)| rest), file.split_once('\n').map(|(_, rest)| rest));
    assert!(String::from_utf8_lossy(&output.stderr).contains("records were written"));
    assert!(!rig.path().join("-").exists());
}

/// Its process would go on with records that nobody sees any more.
#[tokio::test]
async fn the_records_of_a_running_server_are_not_replaced() {
    let mut rig = Rig::start().await;
    at(&rig, &["cluster", "create", "edge-a"]).await;
    export(&rig, "records.jsonl").await;

    let refused = rig.tombolo_fails(&IMPORT).await;

    assert!(refused.contains("stop its tunnel-server first"), "{refused}");
    rig.kill_server();
    let refused = rig.tombolo_fails(&IMPORT).await;
    assert!(refused.contains("an import is for an empty store"), "{refused}");
    rig.start_server().await;
}

async fn export(rig: &Rig, file: &str) {
    let output = at(rig, &["server", "export", "--out", file]).await;
    assert!(output.contains("tombolo server import"), "{output}");
}

async fn status(rig: &Rig, caller: &Issued) -> u16 {
    ask(rig.gateway(), &rig.server_ca(), Some(caller), "GET", PATH, &[]).await.expect("an answer").status
}
