//! Twenty servers and 200 agents, each a process of its own. Five servers are killed at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tests::cpu_time::cpu_time_of;
use tests::etcd::EtcdCluster;
use tests::fake_api::FakeApi;
use tests::members::{join_first_listed, join_listed};
use tests::process::Process;
use tests::rig::{Agent, ApiServer, Peer, Rig, plain};
use tests::rng::Rng;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::client::{Balancer, KubeClient};
use super::{ALONE, CONFIGMAPS, Spread, collection};

const SERVERS: usize = 20;
const KILLED: usize = 5;
const AGENTS: usize = 200;
/// Agents that are started at once.
const BATCH: usize = 10;
/// The number of an agent's tunnels, by default.
const TUNNELS: usize = 2;

const REQUESTS: usize = 10_000;
const CALLERS: usize = 16;
/// The servers are killed once this many requests have begun.
const KILLED_AT: usize = REQUESTS / 3;

const IDLE_FOR: Duration = Duration::from_secs(30);
const CONNECTED_MAX: Duration = Duration::from_secs(900);
const LOOK_EVERY: Duration = Duration::from_secs(1);
const SEED: u64 = 31;

struct Installation {
    rig: Rig,
    peers: Vec<Peer>,
    agents: Vec<Agent>,
    etcd: EtcdCluster,
}

/// Callers that send requests to random servers for random clusters.
struct RandomCallers {
    clients: Vec<Arc<KubeClient>>,
    /// Servers that were not killed. Callers send nothing to the others.
    alive: Vec<AtomicBool>,
    begun: AtomicUsize,
}

/// A request whose caller got an error.
struct Failure {
    began: Instant,
    ended: Instant,
    error: String,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: twenty servers and 200 agents are as many processes, ten minutes"]
async fn five_of_twenty_servers_are_killed_and_no_later_request_fails() {
    let _alone = ALONE.lock().await;
    let (api, _store) = collection().await;
    let mut all = Installation::start(&api).await;
    let connected = all.connected(SERVERS).await;
    let before = all.etcd.revision().await;
    let (cores, etcd_cores) = all.idle_cores().await;
    let changes = all.etcd.revision().await - before;
    let resident = all.resident();
    let callers = Arc::new(RandomCallers::new(&all));
    let asking = Arc::clone(&callers).begin();

    while callers.begun.load(Ordering::Relaxed) < KILLED_AT {
        sleep(Duration::from_millis(5)).await;
    }
    let first_killed = SERVERS - KILLED;
    callers.alive[first_killed..].iter().for_each(|alive| alive.store(false, Ordering::Relaxed));
    let killed = Instant::now();
    // The rig's own server is the first one.
    all.peers[first_killed - 1..].iter_mut().for_each(Peer::kill);

    let (took, failures) = RandomCallers::end(asking).await;
    let in_flight = failures.iter().filter(|one| one.began <= killed && killed <= one.ended).count();
    let later: Vec<&Failure> =
        failures.iter().filter(|one| one.began > killed || one.ended < killed).collect();
    let again = all.connected(SERVERS - KILLED).await;
    println!(
        "soak twenty-servers: {AGENTS} agents had two tunnels each after {:.0} s; largest server {} KiB; all servers {cores:.2} cores and etcd \
         {etcd_cores:.2} at rest, {changes} changes; {REQUESTS} requests, {in_flight} failed in flight, {} later, {took}; two tunnels each again \
         {:.0} s after the kill",
        connected.as_secs_f64(),
        resident / 1024,
        later.len(),
        again.as_secs_f64()
    );
    let errors: Vec<_> =
        later.iter().take(5).map(|one| (one.began.duration_since(killed), &one.error)).collect();
    assert!(later.is_empty(), "{errors:?}");
    assert_eq!(changes, 0, "heartbeats are not written");
}

impl Installation {
    async fn start(api: &FakeApi) -> Self {
        let (etcd, mut rig) = (EtcdCluster::start().await, Rig::start_logging("info", "").await);
        join_first_listed(&mut rig, &etcd).await;
        let mut peers = Vec::new();
        for number in 1..SERVERS {
            peers.push(join_listed(&rig, &etcd, &format!("server-{number}")).await);
        }
        let api_server = ApiServer::of_fake(&rig, api);
        let (mut agents, numbers) = (Vec::new(), (0..AGENTS).collect::<Vec<_>>());
        for batch in numbers.chunks(BATCH) {
            let start = batch
                .iter()
                .map(async |number| rig.agent_with(&format!("edge-{number}"), &api_server, "").await);
            agents.extend(futures::future::join_all(start).await);
        }
        Self { rig, peers, agents, etcd }
    }

    fn gateways(&self) -> Vec<SocketAddr> {
        std::iter::once(self.rig.gateway()).chain(self.peers.iter().map(|peer| peer.gateway)).collect()
    }

    /// Waits until each agent has two tunnels and these servers have all, and returns how long that took.
    async fn connected(&self, servers: usize) -> Duration {
        let began = Instant::now();
        let probes = std::iter::once(self.rig.probes()).chain(self.peers.iter().map(|peer| peer.probes));
        let probes: Vec<_> = probes.take(servers).collect();
        loop {
            let mut tunnels = 0.0;
            for probes in &probes {
                tunnels += self.rig.metric(*probes, "tombolo_server_tunnels{carrier=\"quic\"}").await;
            }
            let mut without = 0;
            for agent in &self.agents {
                without +=
                    usize::from(open(&plain(agent.probes, "/metrics").await.expect("it runs")) < TUNNELS);
            }
            if tunnels as usize == AGENTS * TUNNELS && without == 0 {
                return began.elapsed();
            }
            assert!(
                began.elapsed() < CONNECTED_MAX,
                "{tunnels} tunnels, {without} agents have less than two"
            );
            sleep(LOOK_EVERY).await;
        }
    }

    fn processes(&self) -> Vec<u32> {
        let of_peer = |peer: &Peer| peer.process.as_ref().and_then(Process::id);
        std::iter::once(self.rig.server_id()).chain(self.peers.iter().filter_map(of_peer)).collect()
    }

    /// The memory of the largest server.
    fn resident(&self) -> u64 {
        let of_peer = |peer: &Peer| peer.process.as_ref().map_or(0, Process::resident_bytes);
        self.peers.iter().map(of_peer).fold(self.rig.resident_bytes(), u64::max)
    }

    /// The CPU time of all servers, and of etcd, while nothing is asked, in cores.
    async fn idle_cores(&self) -> (f64, f64) {
        let (servers, members) = (self.processes(), self.etcd.process_ids());
        let used = |processes: &[u32]| cpu_time_of(processes).expect("they run");
        let (began, before) = (Instant::now(), (used(&servers), used(&members)));
        sleep(IDLE_FOR).await;
        let passed = began.elapsed();
        let cores = |used: Duration| used.as_secs_f64() / passed.as_secs_f64();
        (cores(used(&servers) - before.0), cores(used(&members) - before.1))
    }
}

impl RandomCallers {
    fn new(all: &Installation) -> Self {
        let client = |gateway| {
            let balancer = Arc::new(Balancer::in_order(&[(gateway, gateway)]));
            KubeClient::new(&balancer, all.rig.server_ca())
        };
        let clients: Vec<_> = all.gateways().into_iter().map(client).collect();
        let alive = clients.iter().map(|_| AtomicBool::new(true)).collect();
        Self { clients, alive, begun: AtomicUsize::new(0) }
    }

    fn begin(self: Arc<Self>) -> JoinSet<(Vec<Duration>, Vec<Failure>)> {
        let mut asking = JoinSet::new();
        for number in 0..CALLERS {
            asking.spawn(Arc::clone(&self).ask(Rng::new(SEED + number as u64)));
        }
        asking
    }

    async fn ask(self: Arc<Self>, mut rng: Rng) -> (Vec<Duration>, Vec<Failure>) {
        let (mut took, mut failures) = (Vec::new(), Vec::new());
        while self.begun.fetch_add(1, Ordering::Relaxed) < REQUESTS {
            let server = loop {
                let server = rng.below(SERVERS as u64) as usize;
                if self.alive[server].load(Ordering::Relaxed) {
                    break server;
                }
            };
            let path = format!("/clusters/edge-{}{CONFIGMAPS}/read", rng.below(AGENTS as u64));
            let began = Instant::now();
            let outcome = self.clients[server].read(&path).await;
            took.push(outcome.took);
            if let Some(error) = outcome.error {
                failures.push(Failure { began, ended: Instant::now(), error });
            }
        }
        (took, failures)
    }

    async fn end(asking: JoinSet<(Vec<Duration>, Vec<Failure>)>) -> (Spread, Vec<Failure>) {
        let (took, failures): (Vec<_>, Vec<_>) = asking.join_all().await.into_iter().unzip();
        (Spread::of(took.concat()), failures.into_iter().flatten().collect())
    }
}

/// The open tunnels in an agent's metrics.
fn open(metrics: &str) -> usize {
    let series = metrics.lines().filter(|line| line.starts_with("tombolo_agent_tunnels_connected{"));
    series.filter(|line| line.ends_with(" 1")).count()
}
