//! A cluster whose agent has a tunnel to one server, reached through the others.

use futures::StreamExt as _;
use futures::stream;
use tests::caller::{Http1Caller, head};
use tests::etcd::EtcdCluster;
use tests::fake_api::{Answer, Behaviour, FakeApi, Store};
use tests::faulty_relay::TcpRelay;
use tests::members::{join_first, join_first_through, join_over, join_with};
use tests::rig::{Agent, ApiServer, GROUP, Peer, Rig, ask, free_port};

use crate::{PATH, SERVED, SOCKET, until};

/// The streams that a server carried for the others.
const RELAYED: &str = "tombolo_server_relayed_requests_total";

/// Requests of the long trial, and those that wait at once.
const REQUESTS: u32 = 30_000;
const CALLERS: usize = 8;

#[tokio::test]
async fn every_server_serves_a_cluster_whose_agent_is_at_another_one() {
    let trial = HopTrial::start().await;
    let large = "x".repeat(3 * 1024 * 1024);
    let answer = Answer { status: 200, headers: Vec::new(), body: large.clone().into() };
    trial.api.otherwise(Behaviour::Answer(answer));

    for _ in 0..20 {
        for gateway in trial.gateways() {
            let answer = trial.rig.ask_at(gateway, "/clusters/edge-a/large").await;
            assert_eq!((answer.status, answer.body.matches('x').count()), (200, large.len()));
        }
    }

    trial.rig.connected("edge-a").await;
    assert!(trial.rig.metric(trial.other.probes, RELAYED).await >= 20.0);
    let folder = trial.rig.path().join("other.state/audit");
    let files = std::fs::read_dir(folder).expect("a folder").flatten();
    let log: String = files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect();
    assert!(log.contains("\"username\":\"peer:first\"") && log.contains("\"verb\":\"relay\""), "{log}");
}

/// The address of the first server passes TCP alone.
#[tokio::test]
async fn servers_reach_each_other_by_http2_where_udp_does_not_pass() {
    let (etcd, api) = (EtcdCluster::start().await, FakeApi::start().await.expect("a fake starts"));
    let mut rig = Rig::start().await;
    let listen = free_port();
    let relay = TcpRelay::start(listen).await.expect("a relay");
    join_first_through(&mut rig, &etcd, (listen, relay.address())).await;
    let other = join_over(&rig, &etcd, "other", "http2").await;
    let servers = format!("servers: [\"{}\"]\n", other.gateway);
    let _agent = rig.agent_with("edge-a", &ApiServer::of_fake(&rig, &api), &servers).await;
    let gateway = rig.gateway();

    until("it is reached", async || rig.ask_at(gateway, PATH).await.status == SERVED).await;

    let large = "x".repeat(3 * 1024 * 1024);
    let answer = Answer { status: 200, headers: Vec::new(), body: large.clone().into() };
    api.otherwise(Behaviour::Answer(answer));
    let answer = rig.ask_at(gateway, "/clusters/edge-a/large").await;
    assert_eq!((answer.status, answer.body.matches('x').count()), (200, large.len()));
}

#[tokio::test]
async fn the_next_server_serves_when_the_one_with_the_tunnel_is_killed() {
    let mut trial = HopTrial::start().await;
    let third = trial.peer("third").await;
    let servers = format!("servers: [\"{}\"]\n", third.gateway);
    let _second_agent =
        trial.rig.agent_of_id("edge-a", "spare", &ApiServer::of_fake(&trial.rig, &trial.api), &servers).await;
    let (rig, gateway) = (&trial.rig, third.gateway);
    until("the spare agent is there", async || rig.ask_at(gateway, PATH).await.status == SERVED).await;

    trial.other.kill();

    let (rig, gateway) = (&trial.rig, trial.rig.gateway());
    until("it is reached through the third", async || rig.ask_at(gateway, PATH).await.status == SERVED).await;
}

/// Balancers send each connection to any of the servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: 30,000 requests, each over a connection of its own"]
async fn thousands_of_requests_in_turns_over_three_servers_are_all_served() {
    let trial = HopTrial::start().await;
    let third = trial.peer("third").await;
    let [first, second] = trial.gateways();
    let gateways = [first, second, third.gateway];
    let (rig, servers) = (&trial.rig, gateways.iter().copied().cycle());
    let ask = |(_, gateway)| async move { rig.ask_at(gateway, PATH).await.status };

    let answers =
        stream::iter((0..REQUESTS).zip(servers)).map(ask).buffer_unordered(CALLERS).collect::<Vec<_>>().await;

    let refused = answers.iter().filter(|status| **status != SERVED);
    assert_eq!(refused.count(), 0, "of {REQUESTS}");
    // Those of two servers take a hop.
    let relayed = trial.rig.metric(trial.other.probes, RELAYED).await;
    assert!(relayed >= f64::from(REQUESTS) / 3.0 * 2.0, "{relayed}");
    println!("{REQUESTS} requests in turns over three servers: 0 failed, {relayed} by a hop");
}

/// Its caller notices nothing. Nobody has told this server that the other one is gone: the session is only silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_leaves_a_killed_server_before_its_session_ends() {
    let mut trial = HopTrial::start().await;
    let store = Store::new();
    trial.api.on("/api/v1/namespaces/default/configmaps", Behaviour::Store(store.clone()));
    let mut watch = Http1Caller::dial(&trial.rig).await;
    let target = format!(
        "/clusters/edge-a/api/v1/namespaces/default/configmaps?watch=1&resourceVersion={}",
        store.revision()
    );
    watch.write(head("GET", &target, "")).await;
    assert!(watch.read_head().await.starts_with("HTTP/1.1 200"));
    store.put("before", "1");
    watch.read_until("\"before\"").await;
    let third = trial.peer("third").await;
    let servers = format!("servers: [\"{}\"]\n", third.gateway);
    let api = ApiServer::of_fake(&trial.rig, &trial.api);
    let _spare = trial.rig.agent_of_id("edge-a", "spare", &api, &servers).await;
    let rig = &trial.rig;
    until("the spare agent is there", async || rig.ask_at(third.gateway, PATH).await.status == SERVED).await;

    trial.other.kill();
    store.put("after", "1");

    watch.read_until("\"after\"").await;
    let log = trial.rig.server_log();
    assert!(!log.contains("session of another server ended"), "the watch waited for its end: {log}");
}

/// The peer does not know it yet, as far as this server can tell.
#[tokio::test]
async fn an_agent_revoked_anywhere_gets_no_request_through_a_hop() {
    let trial = HopTrial::start().await;
    trial
        .rig
        .tombolo(&[["agent", "revoke", "--cluster", "edge-a", "--yes"].as_slice(), &SOCKET].concat())
        .await;

    assert_eq!(trial.rig.ask_with_token("GET", PATH, &[]).await.status, 503);
}

#[tokio::test]
async fn a_caller_without_rights_gets_no_further_through_a_hop() {
    let trial = HopTrial::start().await;
    let before = trial.rig.metric(trial.other.probes, RELAYED).await;
    let eve = trial.rig.caller("eve", &["nobody"]).await;

    let refused = ask(trial.rig.gateway(), &trial.rig.server_ca(), Some(&eve), "GET", PATH, &[]).await;

    assert_eq!(refused.expect("an answer").status, 403);
    let after = trial.rig.metric(trial.other.probes, RELAYED).await;
    assert_eq!(before, after);
    let ann = trial.rig.caller("ann", &[GROUP]).await;
    let served = ask(trial.rig.gateway(), &trial.rig.server_ca(), Some(&ann), "GET", PATH, &[]).await;
    assert_eq!(served.expect("an answer").status, SERVED);
}

/// Two servers with a session each way, and an agent with a tunnel to the second one alone.
pub(crate) struct HopTrial {
    pub(crate) rig: Rig,
    pub(crate) other: Peer,
    pub(crate) api: FakeApi,
    etcd: EtcdCluster,
    pub(crate) agent: Agent,
}

impl HopTrial {
    pub(crate) async fn start() -> Self {
        Self::start_with("").await
    }

    /// The same with further keys in the configuration of both servers.
    pub(crate) async fn start_with(more: &str) -> Self {
        let (etcd, api) = (EtcdCluster::start().await, FakeApi::start().await.expect("a fake starts"));
        let mut rig = Rig::start_with(more).await;
        join_first(&mut rig, &etcd).await;
        let other = join_with(&rig, &etcd, "other", more).await;
        let servers = format!("servers: [\"{}\"]\ntunnels: 1\n", other.gateway);
        let agent = rig.agent_with("edge-a", &ApiServer::of_fake(&rig, &api), &servers).await;
        let trial = Self { rig, other, api, etcd, agent };
        for gateway in trial.gateways() {
            let rig = &trial.rig;
            until("it is reached", async || rig.ask_at(gateway, PATH).await.status == SERVED).await;
        }
        trial
    }

    fn gateways(&self) -> [std::net::SocketAddr; 2] {
        [self.rig.gateway(), self.other.gateway]
    }

    /// One more server beside the two.
    pub(crate) async fn peer(&self, id: &str) -> Peer {
        self.peer_with(id, "").await
    }

    /// The same with further keys in its configuration.
    pub(crate) async fn peer_with(&self, id: &str, more: &str) -> Peer {
        join_with(&self.rig, &self.etcd, id, more).await
    }
}
