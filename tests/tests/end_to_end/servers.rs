//! An agent with several servers, and servers with several addresses.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tests::fake_api::{Behaviour, FakeApi};
use tests::rig::{Agent, ApiServer, ProcessEnvironment, Rig, free_port};
use tokio::time::sleep;

/// The name of every cluster in these tests.
const CLUSTER: &str = "edge-a";
/// A request that the fake answers.
const PATH: &str = "/clusters/edge-a/api";
/// The limit for any step of a test. Builds of other tests may run beside.
const DONE_MAX: Duration = Duration::from_secs(60);
/// The pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[tokio::test]
async fn an_agent_serves_at_every_server_and_outlives_the_loss_of_any_one() {
    let mut trial = ServersTrial::start().await;
    let mut other = trial.rig.peer("other", "").await;
    let servers = [trial.rig.gateway().to_string(), other.gateway.to_string()];
    let agent = trial.agent(&servers, None).await;
    trial.answers(trial.rig.gateway()).await;
    trial.answers(other.gateway).await;

    trial.rig.kill_server();
    for _ in 0..20 {
        assert_eq!(trial.rig.ask_at(other.gateway, PATH).await.status, 200);
    }
    trial.rig.ready(agent.probes).await;
    trial.rig.start_server().await;
    trial.answers(trial.rig.gateway()).await;
    other.kill();
    for _ in 0..20 {
        assert_eq!(trial.rig.ask_with_token("GET", PATH, &[]).await.status, 200);
    }
    trial.rig.ready(agent.probes).await;
}

/// Servers that are added later are found, too.
#[tokio::test]
async fn a_name_with_two_addresses_leads_to_two_servers() {
    let trial = ServersTrial::start().await;
    let port = trial.rig.gateway().port();
    let second = SocketAddr::from(([127, 0, 0, 2], port));
    let hosts = trial.hosts(&["127.0.0.1"]);
    let agent = trial.agent(&[format!("gateway.test:{port}")], Some(hosts)).await;
    trial.answers(trial.rig.gateway()).await;

    let _peer = trial.rig.peer_at(second, "other", "").await;
    trial.hosts(&["127.0.0.1", "127.0.0.2"]);
    trial.answers(second).await;
    assert_eq!(trial.tunnels(&agent).await, 2.0);

    // An address that is taken away is left in peace while its tunnel lives, and not dialed again after.
    trial.hosts(&["127.0.0.1"]);
    trial.rig.logged("edge-a.log", 0, "DNS no longer lists an address of the server").await;
    assert_eq!(trial.rig.ask_at(second, PATH).await.status, 200);
}

/// If that tunnel is lost, the agent makes the next one.
#[tokio::test]
async fn a_server_with_two_addresses_gets_one_tunnel() {
    let trial = ServersTrial::start().await;
    let any = SocketAddr::from(([0, 0, 0, 0], free_port().port()));
    let mut peer = trial.rig.peer_at(any, "other", "").await;
    let hosts = trial.hosts(&["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    let agent = trial.agent(&[format!("gateway.test:{}", any.port())], Some(hosts)).await;

    for round in 1..=2 {
        trial.logged_times("reached by another address already", 2 * round).await;
        trial.until("one tunnel is left", async || trial.tunnels(&agent).await == 1.0).await;
        let first = SocketAddr::from(([127, 0, 0, 1], any.port()));
        assert_eq!(trial.rig.ask_at(first, PATH).await.status, 200);
        peer.kill();
        peer.start(&trial.rig).await;
    }
}

#[tokio::test]
async fn an_unreachable_address_delays_no_connection() {
    let trial = ServersTrial::start().await;
    // IPv6 that leads nowhere, an address where no server is, and then the right one.
    let hosts = trial.hosts(&["100::1", "127.0.0.9", "127.0.0.1"]);
    let port = trial.rig.gateway().port();
    let agent = trial.agent(&[format!("gateway.test:{port}")], Some(hosts)).await;

    trial.answers(trial.rig.gateway()).await;

    let opened = trial.rig.agent_log(CLUSTER);
    let lines: Vec<&str> =
        opened.lines().filter(|line| line.contains("dialing") || line.contains("opened")).collect();
    println!("{lines:#?}");
    trial.rig.ready(agent.probes).await;
}

#[tokio::test]
async fn addresses_missing_from_dns_are_dialed_until_it_has_others() {
    let mut trial = ServersTrial::start().await;
    let hosts = trial.hosts(&["127.0.0.1"]);
    let port = trial.rig.gateway().port();
    let _agent = trial.agent(&[format!("gateway.test:{port}")], Some(hosts)).await;
    trial.answers(trial.rig.gateway()).await;

    trial.hosts(&[]);
    trial.rig.logged("edge-a.log", 0, "addresses could not be found").await;
    trial.rig.kill_server();
    trial.rig.start_server().await;

    trial.answers(trial.rig.gateway()).await;
}

#[tokio::test]
async fn servers_with_copied_state_or_one_name_are_noticed() {
    let trial = ServersTrial::start().await;
    let copied = trial.rig.path().join("copied.state");
    std::fs::create_dir(&copied).expect("a folder");
    let keys = trial.rig.path().join("server.state/endpoint.keys");
    std::fs::copy(keys, copied.join("endpoint.keys")).expect("the server has keys");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&copied, mode).expect("a mode");
    let copied = trial.rig.peer("copied", "").await;
    let namesake = trial.rig.peer("namesake", "serverId: copied\n").await;
    let servers = [trial.rig.gateway(), copied.gateway, namesake.gateway].map(|address| address.to_string());

    let agent = trial.agent(&servers, None).await;

    trial.rig.logged("edge-a.log", 0, "have the same keys").await;
    trial.rig.logged("edge-a.log", 0, "two servers call themselves copied").await;
    // They are noticed, and used.
    assert_eq!(trial.tunnels(&agent).await, 3.0);
}

/// A server, and an API server for agents.
struct ServersTrial {
    rig: Rig,
    api: FakeApi,
}

impl ServersTrial {
    async fn start() -> Self {
        let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
        api.on("/api", Behaviour::json("{}"));
        Self { rig, api }
    }

    /// An agent of these servers, with an `/etc/hosts` of its own.
    async fn agent(&self, servers: &[String], hosts: Option<PathBuf>) -> Agent {
        let around = ProcessEnvironment { hosts, ..ProcessEnvironment::default() };
        let more = format!("servers: {servers:?}\n");
        self.rig.agent_amid(&around, CLUSTER, &ApiServer::of_fake(&self.rig, &self.api), &more).await
    }

    /// Sets the addresses of `gateway.test` from now on.
    fn hosts(&self, addresses: &[&str]) -> PathBuf {
        let lines = addresses.iter().map(|address| format!("{address} gateway.test\n"));
        self.rig.write("hosts", &lines.collect::<String>())
    }

    /// Waits until the gateway at this address answers for the cluster.
    async fn answers(&self, gateway: SocketAddr) {
        let is_answered = async || self.rig.ask_at(gateway, PATH).await.status == 200;
        self.until("the cluster is reached", is_answered).await;
    }

    /// Tunnels that the agent counts.
    async fn tunnels(&self, agent: &Agent) -> f64 {
        let metrics = self.rig.metrics(agent.probes).await;
        let counts = metrics.lines().filter(|line| line.starts_with("tombolo_agent_tunnels_connected{"));
        counts.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    /// Waits until the agent has logged this so often.
    async fn logged_times(&self, text: &str, times: usize) {
        let logged = || self.rig.agent_log(CLUSTER).matches(text).count();
        self.until(text, async || logged() >= times).await;
    }

    async fn until(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        let deadline = Instant::now() + DONE_MAX;
        while !is_so().await {
            assert!(Instant::now() < deadline, "never: {what}\n{}", self.rig.agent_log(CLUSTER));
            sleep(LOOK_EVERY).await;
        }
    }
}
