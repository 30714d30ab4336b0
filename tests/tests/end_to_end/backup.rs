//! Backups of a running server's records, and what a server elsewhere knows after a restore.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use proto::admin::BACKUP_MAGIC;
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

    backup(&rig, "backup.redb").await;
    rig.kill_server();
    // Another machine has the configuration and the certificates, and no state.
    fs::remove_dir_all(rig.path().join(STATE)).expect("it is ours");
    rig.tombolo(&["server", "restore", "backup.redb", "--state-dir", STATE]).await;
    rig.start_server().await;

    assert_eq!([status(&rig, &ann).await, status(&rig, &ben).await], [401, NOT_CONNECTED]);
    let mut agent = AttestationClient::connect(&rig, &listener).await;
    assert_eq!(agent.enroll(&used, &other).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(agent.enroll(&used, &key).await.expect("the same again").chain, issued.chain);
    agent.enroll(&unused, &other).await.expect("a token that was not used is still good");
    let listed = at(&rig, &["agent", "list"]).await;
    assert!(agents.lines().all(|line| listed.contains(line)), "{agents}{listed}");
    let reserved = rig.tombolo_fails(&[&["cluster", "create", "edge-b"], SOCKET.as_slice()].concat()).await;
    assert!(reserved.contains("edge-b"), "{reserved}");
}

/// The role operator is shown by `every_admin_method_answers_the_permitted_roles_and_refuses_the_others`.
#[tokio::test]
async fn a_backup_is_private_and_stands_in_the_audit_log() {
    let rig = Rig::start().await;

    backup(&rig, "backup.redb").await;

    let file = rig.path().join("backup.redb");
    assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
    let bytes = fs::read(&file).expect("it is ours").len();
    let detail = AuditLog::found(&rig, |log| {
        let copied = log.lines().iter().find(|line| {
            line["verb"] == "copy" && line["stage"] == "ResponseComplete" && note(line, "listener") == "admin"
        })?;
        Some(note(copied, "detail").to_owned())
    })
    .await;
    assert_eq!(detail, format!("the store, {bytes} bytes"));
    let again = [&["server", "backup", "--out", "backup.redb"], SOCKET.as_slice()].concat();
    assert!(rig.tombolo_fails(&again).await.contains("--force"));
}

/// As by `kubectl exec ... > backup.redb`: nothing but the records is at standard output.
#[tokio::test]
async fn a_backup_at_standard_output_is_the_same_as_in_a_file() {
    let rig = Rig::start().await;
    let words = [&["server", "backup", "--out", "-"], SOCKET.as_slice()].concat();
    let invocation = Invocation::of(binary("tombolo")).arguments(words).in_directory(rig.path());

    let output = run(&invocation, DONE_MAX).await.expect("tombolo runs");

    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.starts_with(BACKUP_MAGIC), "{} bytes", output.stdout.len());
    assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("{} bytes", output.stdout.len())));
    assert!(!rig.path().join("-").exists());
    fs::write(rig.path().join("piped.redb"), &output.stdout).expect("a file can be written");
    rig.tombolo(&["server", "restore", "piped.redb", "--state-dir", "other.state"]).await;
}

/// Its process would go on with records that nobody sees any more.
#[tokio::test]
async fn the_records_of_a_running_server_are_not_replaced() {
    let mut rig = Rig::start().await;
    backup(&rig, "backup.redb").await;
    let restore = ["server", "restore", "backup.redb", "--state-dir", STATE];

    let refused = rig.tombolo_fails(&[restore.as_slice(), &["--replace"]].concat()).await;

    assert!(refused.contains("stop its tunnel-server first"), "{refused}");
    rig.kill_server();
    assert!(rig.tombolo_fails(&restore).await.contains("--replace"));
    rig.tombolo(&[restore.as_slice(), &["--replace"]].concat()).await;
    assert!(rig.path().join(STATE).join("directory.redb.replaced").exists());
    rig.start_server().await;
}

/// A part of a backup must not pass for all of it.
#[tokio::test]
async fn a_server_does_not_start_with_a_part_of_a_backup() {
    let mut rig = Rig::start().await;
    backup(&rig, "backup.redb").await;
    let whole = fs::read(rig.path().join("backup.redb")).expect("it is ours");
    fs::write(rig.path().join("part.redb"), &whole[..whole.len() / 2]).expect("a file can be written");
    rig.kill_server();
    rig.tombolo(&["server", "restore", "part.redb", "--state-dir", STATE, "--replace"]).await;

    assert_eq!(rig.start_server_and_fail().await, Some(1));

    let store = Path::new(STATE).join("directory.redb");
    assert!(rig.server_log().contains(&format!("{} is damaged", rig.path().join(store).display())));
}

async fn backup(rig: &Rig, file: &str) {
    let output = at(rig, &["server", "backup", "--out", file]).await;
    assert!(output.contains("tombolo server restore"), "{output}");
}

async fn status(rig: &Rig, caller: &Issued) -> u16 {
    ask(rig.gateway(), &rig.server_ca(), Some(caller), "GET", PATH, &[]).await.expect("an answer").status
}
