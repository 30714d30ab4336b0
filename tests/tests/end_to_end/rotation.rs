//! The servers' root is replaced without a change at any site.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tests::clock::Shift;
use tests::enroll;
use tests::fake_api::{Behaviour, FakeApi};
use tests::rig::{ApiServer, Rig};

/// The limit for an agent to end.
const DONE_MAX: Duration = Duration::from_secs(60);

/// The server's root is exchanged in the meantime.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_that_is_off_during_a_root_rotation_comes_back() {
    let mut rig = Rig::start_with("trust: { bundleFile: pki/trust.bundle }").await;
    let api = FakeApi::start().await.expect("a fake starts");
    api.on("/version", Behaviour::json("{}"));
    let source = ApiServer::of_fake(&rig, &api);
    let moved = move_authority(&rig);
    let agent = rig.agent("edge-a", &source).await;
    rig.logged("edge-a.log", 0, "bundle=1").await;
    drop(agent);

    rotate(&mut rig, &[]).await;
    let agent = rig.agent("edge-a", &source).await;
    rig.logged("edge-a.log", 0, "bundle=2").await;
    drop(agent);

    rotate(&mut rig, &["--finish", "--early"]).await;
    let _agent = rig.agent_with("edge-a", &source, "").await;
    rig.logged("edge-a.log", 0, "bundle=3").await;

    // An agent that was off all the time does not know the new root.
    let _late = rig.agent_with("edge-b", &source, "").await;
    rig.logged("edge-b.log", 0, "the server cannot be trusted").await;
    fs::copy(moved.join("server-ca.crt"), rig.path().join("pki/server-ca.crt")).expect("callers' copy");
    rig.connected("edge-a").await;
    assert_eq!(rig.ask_with_token("GET", "/clusters/edge-a/version", &[]).await.status, 200);
    assert!(!rig.agent_log("edge-b").contains("tunnel opened"), "{}", rig.agent_log("edge-b"));
}

/// A bundle that would leave agents behind is not handed out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_server_gives_agents_its_files_new_root_bundle() {
    let rig = Rig::start_with("trust: { bundleFile: pki/trust.bundle }").await;
    let api = FakeApi::start().await.expect("a fake starts");
    let source = ApiServer::of_fake(&rig, &api);
    let agent = rig.agent("edge-a", &source).await;
    rig.logged("edge-a.log", 0, "bundle=1").await;
    let is_current = "tombolo_server_file_reload_last_successful{file=\"trust_bundle\"}";
    let first = fs::read(rig.path().join("pki/trust.bundle")).expect("a bundle");

    // One of another authority, which no agent would take.
    rig.tombolo(&["ca", "init", "--dir", "elsewhere"]).await;
    fs::copy(rig.path().join("elsewhere/trust.bundle"), rig.path().join("pki/trust.bundle")).expect("a copy");
    rig.measured(is_current, |current| current == 0.0).await;
    drop(agent);
    let agent = rig.agent("edge-a", &source).await;
    fs::write(rig.path().join("pki/trust.bundle"), &first).expect("a file can be written");
    rig.measured(is_current, |current| current == 1.0).await;

    let moved = move_authority(&rig);
    rig.tombolo(&["ca", "rotate", "--dir", "moved", "--role", "server"]).await;
    let from = rig.server_log().len();
    fs::copy(moved.join("trust.bundle"), rig.path().join("pki/trust.bundle")).expect("a copy");
    rig.logged("server.log", from, "its new content is in force").await;
    drop(agent);
    // Agents that know the old root alone come in, and learn of the new one.
    let _agent = rig.agent("edge-a", &source).await;
    rig.logged("edge-a.log", 0, "bundle=2").await;
    assert!(!rig.agent_log("edge-a").contains("was not taken"), "{}", rig.agent_log("edge-a"));
}

/// Both roots are valid then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_off_for_eighty_days_renews_and_learns_the_new_root() {
    let ((mut rig, listener), api) =
        (enroll::start("").await, FakeApi::start().await.expect("a fake starts"));
    let source = ApiServer::of_fake(&rig, &api);
    let _token = enroll::token(&rig, "edge-a").await;
    let agent = enroll::agent(&rig, &listener, "one", "edge-a", &source).await;
    rig.connected("edge-a").await;
    agent.process.stop(DONE_MAX).await.expect("it ends");
    let moved = move_authority(&rig);
    rotate(&mut rig, &[]).await;

    // Its certificate has expired long ago; with the next one it is given the bundle that names both roots.
    rig.set_clocks(Shift::hours(80 * 24));
    let agent = enroll::agent(&rig, &listener, "one", "edge-a", &source).await;
    rig.connected("edge-a").await;
    rig.logged("server.log", 0, "an agent's certificate was renewed").await;
    agent.process.stop(DONE_MAX).await.expect("it ends");

    rotate(&mut rig, &["--finish", "--early"]).await;
    let _back = enroll::agent(&rig, &listener, "one", "edge-a", &source).await;
    rig.logged("one.log", 0, "bundle=3").await;
    fs::copy(moved.join("server-ca.crt"), rig.path().join("pki/server-ca.crt")).expect("callers' copy");
    rig.connected("edge-a").await;
}

/// Copies the authority to another folder. The files of the sites stay unchanged.
fn move_authority(rig: &Rig) -> PathBuf {
    let moved = rig.path().join("moved");
    fs::create_dir(&moved).expect("a folder");
    for entry in fs::read_dir(rig.path().join("pki")).expect("the authority") {
        let entry = entry.expect("a file");
        fs::copy(entry.path(), moved.join(entry.file_name())).expect("a copy");
    }
    moved
}

/// Takes a step in the exchange, and starts the server with what came of it.
async fn rotate(rig: &mut Rig, more: &[&str]) {
    rig.kill_server();
    rig.tombolo(&[&["ca", "rotate", "--dir", "moved", "--role", "server"], more].concat()).await;
    let names = ["--name", "127.0.0.1", "--name", "gateway.test", "--suffix", "clusters.test"];
    let order = ["ca", "issue", "server", "--dir", "moved", "--out", "pki", "--force"];
    rig.tombolo(&[order.as_slice(), &names].concat()).await;
    fs::copy(rig.path().join("moved/trust.bundle"), rig.path().join("pki/trust.bundle")).expect("a copy");
    rig.start_server().await;
}
