//! Server, agent and API server each are killed without a clean shutdown, and come back.

use std::time::{Duration, Instant};

use tests::fake_api::{Behaviour, FakeApi};
use tests::kube::EdgeCluster;
use tests::rig::{ApiServer, Rig};
use tokio::time::{sleep, timeout};

/// The time that the server stays away in each round.
const OUTAGES: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(3),
    Duration::from_secs(8),
    Duration::from_millis(500),
    Duration::from_secs(3),
];
/// Generous, for machines that build other things meanwhile: what is promised is 5 s, and the figures are
/// printed.
const BACK_MAX: Duration = Duration::from_secs(15);

#[tokio::test]
async fn an_agent_reconnects_to_a_killed_and_restarted_server_by_itself() {
    let (mut rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    api.on("/api", Behaviour::json("{}"));
    let mut agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;

    let mut longest = Duration::ZERO;
    for outage in OUTAGES {
        rig.kill_server();
        sleep(outage).await;
        let restarted = Instant::now();
        rig.start_server().await;
        rig.connected("edge-a").await;
        let back = restarted.elapsed();
        println!("after an outage of {outage:?} the agent was back {back:?} after the server's restart");
        longest = longest.max(back);
        let reply = rig.ask_with_token("GET", "/clusters/edge-a/api", &[]).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    println!("longest: {longest:?}");
    assert!(longest < BACK_MAX, "{longest:?}\n{}", rig.agent_log("edge-a"));
    assert!(agent.process.ended().is_none(), "it is the same agent");
}

#[tokio::test]
async fn a_restarted_agent_serves_at_once_and_its_old_tunnel_gets_nothing_more() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    api.on("/api", Behaviour::json("{}"));
    let api_server = ApiServer::of_fake(&rig, &api);
    let mut killed = rig.agent("edge-a", &api_server).await;
    // The list knows of a tunnel a moment before the log does.
    rig.logged("server.log", 0, "tunnel opened").await;

    for _ in 0..3 {
        killed.process.kill();
        let output = rig.server_log().len();
        let restarted = rig.agent_with("edge-a", &api_server, "").await;
        rig.logged("server.log", output, "tunnel opened").await;
        // The server cannot know yet that the other process is dead; it knows that this one came later.
        for _ in 0..20 {
            let reply = timeout(BACK_MAX, rig.ask_with_token("GET", "/clusters/edge-a/api", &[])).await;
            let logs = || format!("{}\n{}", rig.server_log(), rig.agent_log("edge-a"));
            assert_eq!(reply.unwrap_or_else(|_| panic!("no answer\n{}", logs())).status, 200, "{}", logs());
        }
        killed = restarted;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_may_die_and_return_under_an_open_tunnel() {
    let mut cluster = EdgeCluster::start().await.expect("a cluster starts");
    let account = cluster.create_agent_account().await.expect("an account for the agent");
    let rig = Rig::start().await;
    let _agent = rig.agent("edge-a", &ApiServer::of(&cluster, &account)).await;
    let version = async || rig.ask_with_token("GET", "/clusters/edge-a/version", &[]).await;
    let reply = version().await;
    assert!(reply.status == 200 && reply.body.contains("gitVersion"), "{reply:?}");

    cluster.kill_apiserver();
    let reply = version().await;
    assert!(reply.status == 503 && reply.body.contains("APIServerUnreachable"), "{reply:?}");

    cluster.restart_apiserver().await.expect("the API server comes back");
    let reply = version().await;
    assert!(reply.status == 200 && reply.body.contains("gitVersion"), "{reply:?}");
    let tunnels = rig.server_log().matches("tunnel opened").count();
    assert_eq!(tunnels, 1, "the tunnel stays: {}", rig.server_log());
}
