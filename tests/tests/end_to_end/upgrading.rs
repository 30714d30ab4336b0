//! This release beside the one before it: servers with agents, configurations, and the store.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tests::binaries::binary;
use tests::carrier::Carrier;
use tests::enroll::at;
use tests::fake_api::FakeApi;
use tests::process::{Invocation, run};
use tests::rig::{Agent, ApiServer, GROUP, Rig, ask};

/// The limit for any step of a test. Builds of other tests may run beside.
const DONE_MAX: Duration = Duration::from_secs(60);
const PATH: &str = "/clusters/edge-a/version";
/// The fake API server knows no path.
const SERVED: u16 = 404;
const STATE: &str = "server.state";

/// The agent is then upgraded in its place: the new one reads the same configuration and state.
#[tokio::test]
#[ignore = "soak: the release before is built first, by .ci/previous"]
async fn an_agent_of_the_release_before_serves_and_is_upgraded_in_place() {
    for carrier in [Carrier::Quic, Carrier::Http2] {
        let (mut rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
        let api_server = ApiServer::of_fake(&rig, &api);
        rig.take_program("tunnel-agent", previous("tunnel-agent"));
        let before = agent(&rig, &api_server, carrier).await;
        serves(&rig).await;
        before.process.stop(DONE_MAX).await.expect("it ends");
        rig.disconnected("edge-a").await;

        rig.leave_programs();
        let _after = agent(&rig, &api_server, carrier).await;

        serves(&rig).await;
    }
}

/// So agents may be upgraded first, too. The server is then upgraded under them.
#[tokio::test]
#[ignore = "soak: the release before is built first, by .ci/previous"]
async fn an_agent_of_this_release_serves_at_the_server_before_and_after() {
    for carrier in [Carrier::Quic, Carrier::Http2] {
        let (mut rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
        let api_server = ApiServer::of_fake(&rig, &api);
        with_server_before(&mut rig).await;
        let _agent = agent(&rig, &api_server, carrier).await;
        serves(&rig).await;

        rig.kill_server();
        rig.leave_programs();
        rig.start_server().await;

        rig.connected("edge-a").await;
        serves(&rig).await;
    }
}

/// The configuration is the same file: the server before has accepted it.
#[tokio::test]
#[ignore = "soak: the release before is built first, by .ci/previous"]
async fn this_server_reads_configuration_and_records_of_the_one_before() {
    let mut rig = Rig::start().await;
    let (ann, ben) = (rig.caller("ann", &[GROUP]).await, rig.caller("ben", &[GROUP]).await);
    with_server_before(&mut rig).await;
    make_records(&rig).await;
    let listed = at(&rig, &["cluster", "list", "-o", "name"]).await;

    rig.kill_server();
    rig.leave_programs();
    rig.start_server().await;

    assert_eq!(at(&rig, &["cluster", "list", "-o", "name"]).await, listed);
    assert_eq!(status(&rig, Some(&ann)).await, 401);
    assert_ne!(status(&rig, Some(&ben)).await, 401);
}

/// A form of records that the server before cannot read needs a new schema version, which that server names.
#[tokio::test]
#[ignore = "soak: the release before is built first, by .ci/previous"]
async fn the_server_before_reads_these_records_or_says_who_wrote_them() {
    let mut rig = Rig::start().await;
    let ann = rig.caller("ann", &[GROUP]).await;
    make_records(&rig).await;
    rig.kill_server();
    rig.take_program("tunnel-server", previous("tunnel-server"));

    let code = rig.starts_or_ends().await;

    match code {
        None => assert_eq!(status(&rig, Some(&ann)).await, 401),
        Some(code) => {
            let log = rig.server_log();
            assert!(code == 1 && log.contains("was written by a newer tunnel-server"), "{code}: {log}");
        }
    }
}

#[tokio::test]
#[ignore = "soak: the release before is built first, by .ci/previous"]
async fn the_example_of_a_servers_configuration_before_is_valid_today() {
    let rig = Rig::start().await;
    let examples = previous_release().join("source/deploy/examples");
    for file in ["server.yaml", "policy.yaml"] {
        fs::copy(examples.join(file), rig.path().join(format!("before-{file}"))).expect("the example");
    }
    let text = fs::read_to_string(rig.path().join("before-server.yaml")).expect("it was copied");
    rig.write("before-server.yaml", &text.replace("policy.yaml", "before-policy.yaml"));

    let invocation = Invocation::of(binary("tunnel-server"))
        .arguments(["--config", "before-server.yaml", "--dry-run"])
        .in_directory(rig.path());
    let output = run(&invocation, DONE_MAX).await.expect("it ends");

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Starts the server before with a state directory of its own.
async fn with_server_before(rig: &mut Rig) {
    rig.kill_server();
    fs::remove_dir_all(rig.path().join(STATE)).expect("it is ours");
    rig.take_program("tunnel-server", previous("tunnel-server"));
    rig.start_server().await;
}

/// Makes a record of each kind that an administrator can make without an agent.
async fn make_records(rig: &Rig) {
    at(rig, &["cluster", "create", "edge-a", "--label", "site=a"]).await;
    at(rig, &["cluster", "create", "edge-b"]).await;
    at(rig, &["cluster", "delete", "edge-b", "--yes"]).await;
    at(rig, &["user", "revoke", "--name", "ann"]).await;
    at(rig, &["agent", "revoke", "--serial", "0f"]).await;
    at(rig, &["user", "dial-token", "create", "--user", "ann", "--cluster", "edge-a", "--out", "dial-token"])
        .await;
}

async fn agent(rig: &Rig, api_server: &ApiServer, carrier: Carrier) -> Agent {
    let agent = rig.agent_with("edge-a", api_server, &format!("carrier: {}\n", carrier.as_str())).await;
    rig.connected("edge-a").await;
    agent
}

async fn serves(rig: &Rig) {
    assert_eq!(rig.ask_with_token("GET", PATH, &[]).await.status, SERVED);
}

async fn status(rig: &Rig, caller: Option<&tests::pki::Issued>) -> u16 {
    ask(rig.gateway(), &rig.server_ca(), caller, "GET", PATH, &[]).await.expect("an answer").status
}

fn previous(program: &str) -> PathBuf {
    previous_release().join("bin").join(program)
}

/// The folder that `.ci/previous` has printed.
fn previous_release() -> PathBuf {
    let folder = std::env::var_os("TOMBOLO_PREVIOUS").expect(
        "TOMBOLO_PREVIOUS names no release: run `export TOMBOLO_PREVIOUS=$(.ci/previous | tail -n 1)`",
    );
    Path::new(&folder).to_owned()
}
