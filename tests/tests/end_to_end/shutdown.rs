//! SIGTERM to a server and to an agent: running requests are finished, and the exit code gives the result.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tests::dial::dial;
use tests::fake_api::{Behaviour, FakeApi, RecordedRequest, WatchFeed};
use tests::process::Process;
use tests::rig::{Agent, ApiServer, Rig, TOKEN, ask};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A watch at the fake, by way of the gateway.
const WATCH: &str = "/clusters/edge-a/api/v1/pods?watch=1";
/// The limit for anything to arrive at the fake.
const ARRIVE_MAX: Duration = Duration::from_secs(20);
/// Well within the grace period of 30 s: a process that ends so soon has not waited for it.
const SOON: Duration = Duration::from_secs(15);

#[tokio::test]
async fn an_idle_server_ends_soon_and_with_0() {
    let mut trial = ShutdownTrial::start("", "").await;

    assert_eq!(stop(trial.rig.server(), Signal::TERM).await, Some(0));
}

#[tokio::test]
async fn a_draining_server_finishes_running_requests_and_takes_no_new_ones() {
    let mut trial = ShutdownTrial::start("", "").await;
    let (caller, _) = trial.watch("half of it, ").await;
    let agent_logged = trial.rig.agent_log("edge-a").len();

    trial.rig.server().signal(Signal::TERM).expect("the server runs");
    trial.rig.draining(trial.rig.probes()).await;
    trial.rig.logged("edge-a.log", agent_logged, "the server is stopping").await;
    let new = ask(trial.rig.gateway(), &trial.rig.server_ca(), None, "GET", "/clusters", &[]).await;
    assert!(!matches!(&new, Ok(reply) if reply.status != 503), "{new:?}");

    assert_eq!(trial.feed.push("and the rest"), 1);
    trial.feed.end();
    let received = caller.await.expect("the caller lives");
    assert!(received.is_complete() && received.0.contains("and the rest"), "{received:?}");
    assert_eq!(ended(trial.rig.server(), SOON).await, Some(0));

    // The agent is not stopped by that: it dials until there is a server again.
    trial.rig.start_server().await;
    trial.rig.connected("edge-a").await;
}

#[tokio::test]
async fn a_server_cuts_off_at_the_end_of_its_grace_period_and_ends_with_3() {
    let mut trial = ShutdownTrial::start("drainGraceSeconds: 2", "").await;
    let (caller, _) = trial.watch("one event").await;

    assert_eq!(stop(trial.rig.server(), Signal::TERM).await, Some(3));
    assert_cut_off(&caller.await.expect("the caller lives"));
}

#[tokio::test]
async fn a_second_signal_ends_a_server_at_once_with_4() {
    let mut trial = ShutdownTrial::start("", "").await;
    let (caller, _) = trial.watch("one event").await;

    trial.rig.server().signal(Signal::TERM).expect("the server runs");
    trial.rig.draining(trial.rig.probes()).await;
    assert_eq!(stop(trial.rig.server(), Signal::TERM).await, Some(4));
    assert_cut_off(&caller.await.expect("the caller lives"));
}

#[tokio::test]
async fn an_idle_agent_ends_soon_and_with_0_and_its_cluster_is_away() {
    let mut trial = ShutdownTrial::start("", "").await;

    assert_eq!(stop(&mut trial.agent.process, Signal::TERM).await, Some(0));
    trial.rig.disconnected("edge-a").await;
    // Its word that it stops and its goodbye may come together, and then the goodbye says both.
    trial.rig.logged("server.log", 0, "reason=drained").await;
    assert_eq!(trial.tunnels().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_draining_agent_finishes_running_requests_and_gets_no_new_ones() {
    let mut trial = ShutdownTrial::start("parking: { limitSeconds: 1 }", "").await;
    let (caller, _) = trial.watch("half of it, ").await;

    trial.agent.process.signal(Signal::TERM).expect("the agent runs");
    trial.rig.logged("server.log", 0, "the agent is stopping").await;
    trial.rig.draining(trial.agent.probes).await;
    // It is still there, with what it finishes, and is nobody's way any more.
    let tunnels = trial.tunnels().await;
    assert_eq!((tunnels.len(), &tunnels[0]["draining"]), (1, &Value::Bool(true)), "{tunnels:?}");
    trial.rig.disconnected("edge-a").await;
    let asked = trial.api.requests().len();
    let new = trial.rig.ask_with_token("GET", "/clusters/edge-a/api/v1/new", &[]).await;
    assert!(new.status == 503 && new.body.contains("ClusterNotConnected"), "{new:?}");
    assert_eq!(trial.api.requests().len(), asked);

    assert_eq!(trial.feed.push("and the rest"), 1);
    trial.feed.end();
    let received = caller.await.expect("the caller lives");
    assert!(received.is_complete() && received.0.contains("and the rest"), "{received:?}");
    assert_eq!(ended(&mut trial.agent.process, SOON).await, Some(0));
}

#[tokio::test]
async fn an_agent_cuts_off_at_the_end_of_its_grace_period_and_ends_with_3() {
    let mut trial = ShutdownTrial::start("", "drainGraceSeconds: 2").await;
    let (caller, watched) = trial.watch("one event").await;

    assert_eq!(stop(&mut trial.agent.process, Signal::TERM).await, Some(3));
    assert_cut_off(&caller.await.expect("the caller lives"));
    trial.api.wait_for_hangup(watched.id, ARRIVE_MAX).await.expect("the API server is told");
    trial.rig.disconnected("edge-a").await;
}

#[tokio::test]
async fn a_second_signal_ends_an_agent_at_once_with_4() {
    let mut trial = ShutdownTrial::start("", "").await;
    let (caller, watched) = trial.watch("one event").await;

    trial.agent.process.signal(Signal::TERM).expect("the agent runs");
    trial.rig.draining(trial.agent.probes).await;
    assert_eq!(stop(&mut trial.agent.process, Signal::TERM).await, Some(4));
    assert_cut_off(&caller.await.expect("the caller lives"));
    trial.api.wait_for_hangup(watched.id, ARRIVE_MAX).await.expect("the API server is told");
    trial.rig.disconnected("edge-a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_to_the_other_agent_of_the_cluster_without_a_failure() {
    let (rig, api, feed) =
        (Rig::start().await, FakeApi::start().await.expect("a fake starts"), WatchFeed::new());
    api.on("/api/v1/pods", Behaviour::Watch(feed.clone()));
    api.on("/version", Behaviour::json("{}"));
    let api_server = ApiServer::of_fake(&rig, &api);
    let agent = rig.agent_of_id("edge-a", "a", &api_server, "").await;
    rig.logged("server.log", 0, "tunnel opened agent=edge-a/a").await;
    let mut trial = ShutdownTrial { rig, agent, api, feed };
    // While it is the only one, so that the one that leaves stays a while.
    let first = trial.watch("one event").await;
    let other = trial.rig.agent_of_id("edge-a", "b", &api_server, "").await;
    trial.rig.logged("server.log", 0, "tunnel opened agent=edge-a/b").await;
    let mut leaving = std::mem::replace(&mut trial.agent, other);
    let watches = [first, trial.watch("another").await];

    leaving.process.signal(Signal::TERM).expect("the agent runs");
    let mut statuses = Vec::new();
    while statuses.len() < 60 || !trial.rig.server_log().contains("the agent is stopping") {
        statuses.push(trial.rig.ask_with_token("GET", "/clusters/edge-a/version", &[]).await.status);
    }
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    assert!(leaving.process.ended().is_none(), "it finishes its watch");
    trial.feed.end();
    for (caller, _) in watches {
        let received = caller.await.expect("the caller lives");
        assert!(received.is_complete(), "{received:?}");
    }
    assert_eq!(ended(&mut leaving.process, SOON).await, Some(0));
}

/// A server, an agent, and a fake API server that knows one watch.
struct ShutdownTrial {
    rig: Rig,
    agent: Agent,
    api: FakeApi,
    feed: WatchFeed,
}

/// The bytes that a caller received, head and chunk sizes included.
#[derive(Debug)]
struct ReceivedResponse(String);

impl ShutdownTrial {
    async fn start(server_more: &str, agent_more: &str) -> Self {
        let rig = Rig::start_with(server_more).await;
        let (api, feed) = (FakeApi::start().await.expect("a fake starts"), WatchFeed::new());
        api.on("/api/v1/pods", Behaviour::Watch(feed.clone()));
        let agent = rig.agent_with("edge-a", &ApiServer::of_fake(&rig, &api), agent_more).await;
        rig.connected("edge-a").await;
        Self { rig, agent, api, feed }
    }

    /// Begins a watch, and returns when its first event has reached the caller. The task returns the rest.
    async fn watch(&self, event: &'static str) -> (JoinHandle<ReceivedResponse>, RecordedRequest) {
        let (gateway, ca) = (self.rig.gateway(), self.rig.server_ca());
        let before = self.api.requests().len() as u64;
        let mut stream = dial(gateway, &ca, &["http/1.1"], None).await.expect("a connection");
        let head = format!(
            "GET {WATCH} HTTP/1.1\r\nHost: {gateway}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("a request is written");
        let is_new = |request: &RecordedRequest| request.id >= before && request.target.contains("watch=1");
        let arrived = self.api.wait_for_request(ARRIVE_MAX, is_new).await.expect("the watch arrives");
        let watches = self.api.requests().iter().filter(|request| request.target.contains("watch=1")).count();
        while self.feed.push(event) < watches {
            tokio::task::yield_now().await;
        }
        let mut received = Vec::new();
        while !String::from_utf8_lossy(&received).contains(event) {
            let read = timeout(ARRIVE_MAX, stream.read_buf(&mut received)).await.expect("the event comes");
            assert_ne!(read.expect("the watch goes on"), 0, "ended before its first event");
        }
        let caller = tokio::spawn(async move {
            // How the connection ends does not matter: only a last chunk would say that nothing is missing.
            let _ = timeout(2 * ARRIVE_MAX, stream.read_to_end(&mut received)).await.expect("an end");
            ReceivedResponse(String::from_utf8_lossy(&received).into_owned())
        });
        (caller, arrived)
    }

    /// The tunnels of the cluster's entry in the list of clusters.
    async fn tunnels(&self) -> Vec<Value> {
        let reply = self.rig.ask_with_token("GET", "/clusters", &[]).await;
        let list: Value = serde_json::from_str(&reply.body).expect("JSON");
        list["items"][0]["status"]["tunnels"].as_array().expect("an entry").clone()
    }
}

/// Sends a signal, and returns the exit code of the process, which must end soon.
async fn stop(process: &mut Process, signal: Signal) -> Option<i32> {
    process.signal(signal).expect("the process runs");
    ended(process, SOON).await
}

async fn ended(process: &mut Process, limit: Duration) -> Option<i32> {
    process.wait(limit).await.unwrap_or_else(|error| panic!("{error}")).code()
}

impl ReceivedResponse {
    /// Returns true if the answer has its last chunk.
    fn is_complete(&self) -> bool {
        self.0.starts_with("HTTP/1.1 200 ") && self.0.ends_with("0\r\n\r\n")
    }
}

fn assert_cut_off(received: &ReceivedResponse) {
    assert!(!received.is_complete(), "an end that looks clean: {received:?}");
}
