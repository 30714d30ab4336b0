//! A killed and restarted agent is back soon, and is distinguished from two processes that use one
//! certificate.

use std::time::Instant;

use rustix::process::Signal;
use tests::fake_api::{Behaviour, FakeApi, RecordedRequest};
use tests::rig::{ApiServer, Rig};

use super::{OutageTrial, SOON};

const PATH: &str = "/clusters/edge-a/api/v1/things";
const COPIED: &str = "tombolo_server_agent_keys_copied_total";

/// This holds for every kind of request.
#[tokio::test]
async fn a_restarted_only_agent_serves_from_its_handshake_on() {
    let mut trial = OutageTrial::start("parking: { limitSeconds: 60 }").await;
    trial.api.otherwise(Behaviour::json("{}"));

    // The list knows of a tunnel a moment before the log does.
    trial.rig.logged("server.log", 0, "tunnel opened").await;
    for _ in 0..3 {
        let output = trial.rig.server_log().len();
        trial.agent.process.kill();
        trial.agent = trial.rig.agent_with("edge-a", &ApiServer::of_fake(&trial.rig, &trial.api), "").await;
        trial.rig.logged("server.log", output, "tunnel opened").await;
        let greeted = Instant::now();
        let reply = trial.rig.ask_with_token("POST", PATH, &[]).await;
        assert_eq!(reply.status, 200, "{reply:?}\n{}", trial.rig.server_log());
        println!("served {:?} after its greeting", greeted.elapsed());
    }
    assert_eq!(trial.rig.metric(trial.rig.probes(), COPIED).await, 0.0, "{}", trial.rig.server_log());
}

/// The first process serves on.
#[tokio::test]
async fn a_second_process_with_a_certificate_in_use_is_refused() {
    let trial = OutageTrial::start("parking: { limitSeconds: 60 }").await;
    trial.api.otherwise(Behaviour::json("{}"));
    let other_api = FakeApi::start().await.expect("a fake starts");
    other_api.otherwise(Behaviour::json("{}"));

    let _copy = trial.rig.agent_with("edge-a", &ApiServer::of_fake(&trial.rig, &other_api), "").await;
    trial.rig.logged("server.log", 0, "two processes use one certificate at the same time").await;
    for _ in 0..20 {
        let reply = trial.rig.ask_with_token("POST", PATH, &[("Audit-ID", "ours")]).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }

    assert!(trial.rig.metric(trial.rig.probes(), COPIED).await >= 1.0);
    let listed =
        trial.rig.tombolo(&["clusters", "edge-a", "-o", "wide", "--socket", "admin/admin.sock"]).await;
    assert!(listed.contains("Copied"), "{listed}");
    trial.rig.logged("edge-a.log", 0, "another process answers that uses the same certificate").await;
    let ours = |api: &FakeApi| api.requests().iter().filter(|one| one.target.contains("things")).count();
    assert_eq!((ours(&trial.api), ours(&other_api)), (20, 0), "the copy gets nothing");
}

#[tokio::test]
async fn with_prefer_new_the_first_process_of_a_copied_key_is_refused() {
    let (mut rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    rig.kill_server();
    rig.write_config(|config| config.replacen("tunnel: {", "tunnel: { copiedKey: prefer-new,", 1));
    rig.start_server().await;
    let new_process = FakeApi::start().await.expect("a fake starts");
    new_process.otherwise(Behaviour::json("{}"));
    let _first = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    rig.connected("edge-a").await;

    let _copy = rig.agent_with("edge-a", &ApiServer::of_fake(&rig, &new_process), "").await;

    rig.logged("server.log", 0, "the earlier one is disconnected").await;
    // Only the new process's API server answers this path.
    for _ in 0..20 {
        assert_eq!(rig.ask_with_token("POST", PATH, &[]).await.status, 200);
    }
    assert_eq!(new_process.requests().iter().filter(|one| one.target.contains("things")).count(), 20);
    // If it came back, it would be the new one now.
    assert_eq!(rig.metric(rig.probes(), COPIED).await, 1.0);
}

#[tokio::test]
async fn a_cleanly_stopped_agent_does_not_keep_the_next_one_out() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let feed = tests::fake_api::WatchFeed::new();
    api.on("/api/v1/pods", Behaviour::Watch(feed.clone()));
    api.on("/version", Behaviour::json("{}"));
    let api_server = ApiServer::of_fake(&rig, &api);
    let leaving = rig.agent("edge-a", &api_server).await;
    let mut watcher = tests::caller::Http1Caller::dial(&rig).await;
    let lines = "Connection: close\r\n";
    watcher.write(tests::caller::head("GET", "/clusters/edge-a/api/v1/pods?watch=1", lines)).await;
    let is_watch = |one: &RecordedRequest| one.target.contains("watch=1");
    api.wait_for_request(SOON, is_watch).await.expect("the watch arrives");
    while feed.push("half of it, ") == 0 {
        tokio::task::yield_now().await;
    }
    leaving.process.signal(Signal::TERM).expect("the agent runs");
    rig.logged("server.log", 0, "the agent is stopping").await;

    let _next = rig.agent_with("edge-a", &api_server, "").await;
    let reply = rig.ask_with_token("GET", "/clusters/edge-a/version", &[]).await;

    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(rig.metric(rig.probes(), COPIED).await, 0.0);
    feed.push("and the rest");
    feed.end();
    let (received, end) = watcher.read_to_end().await;
    assert!(
        end.is_ok() && String::from_utf8_lossy(&received).contains("and the rest"),
        "what it finishes is finished"
    );
}
