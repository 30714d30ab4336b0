//! Three servers that are restarted one after the other under load.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tests::check::writes::repeated;
use tests::etcd::EtcdCluster;
use tests::fake_api::{FakeApi, Store};
use tests::members::{join_first_listed, join_listed};
use tests::rig::{Agent, ApiServer, Peer, Rig};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::client::{Balancer, KubeClient};
use super::load::SteadyLoad;
use super::watcher::Watchers;
use super::{ALONE, CONFIGMAPS, collection};
use crate::{has_tunnel, until};

const AGENTS: usize = 5;
const INFORMERS: usize = 100;
const READS_EACH_SECOND: u32 = 50;
const WRITES_EACH_SECOND: u32 = 5;

/// Clients with a connection each.
const CLIENTS: usize = 10;

/// The pause of an operator between a server that is ready and the next one that is stopped.
const PAUSE: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A balancer sends each connection to the next server that said it was ready.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: restarts three servers under load, two minutes"]
async fn restarts_in_turn_fail_no_request_and_lose_no_event() {
    let _alone = ALONE.lock().await;
    let mut site = ListedTrio::start().await;
    let (rig, clusters, servers) = (&site.rig, &site.clusters, site.servers);
    let balancer = Arc::new(Balancer::in_turns(&servers));
    let looking = tokio::spawn({
        let balancer = Arc::clone(&balancer);
        async move { balancer.look().await }
    });
    let clients = || KubeClient::several(CLIENTS, &balancer, &rig.server_ca());
    let path = |cluster: &String| format!("/clusters/{cluster}{CONFIGMAPS}");
    let mut watchers = Watchers::new();
    let informers = clients();
    for number in 0..INFORMERS {
        watchers.begin(&informers[number % CLIENTS], path(&clusters[number % AGENTS]));
    }
    until("every watcher has a watch", async || watchers.are_established()).await;
    let paths = clusters.iter().map(|cluster| format!("{}/read", path(cluster))).collect();
    let reads = SteadyLoad::reads(clients(), paths, READS_EACH_SECOND);
    let writes = SteadyLoad::writes(clients(), clusters.clone(), WRITES_EACH_SECOND);
    let counted = AgentsCounted::begin(&site.agents, servers);
    sleep(PAUSE).await;

    site.restart_in_turn(&balancer).await;

    let without = counted.end().await;
    let (reads, writes) = (reads.end().await, writes.end().await);
    let watches = watchers.end(&site.store.emitted()).await;
    let written_twice = repeated(&site.api.requests()).len();
    println!(
        "soak rolling-restart: {} reads, {} failed, {} sent again, {}; {} writes, {} failed, {written_twice} twice, {}; {} informers, {} lost, \
         {} twice, {} listed anew, {} clean ends, {} errors, {} refusals, silent {}; {} connections refused; {without} looks at an agent \
         found no tunnel",
        reads.served,
        reads.failed.len(),
        reads.repeated,
        reads.took,
        writes.served,
        writes.failed.len(),
        writes.took,
        watches.watchers,
        watches.lost,
        watches.twice,
        watches.lists,
        watches.ends.1,
        watches.ends.0,
        watches.refusals,
        watches.silences,
        balancer.refused()
    );
    looking.abort();
    reads.check();
    writes.check();
    watches.check();
    assert!(
        writes.marks.iter().all(|mark| site.store.times_written(mark) == 1),
        "a write was answered and not made"
    );
    assert_eq!((written_twice, without, balancer.refused()), (0, 0, 0));
}

/// Three servers with addresses of their own, and agents that know the name of the first one.
struct ListedTrio {
    rig: Rig,
    peers: [Peer; 2],
    servers: [(SocketAddr, SocketAddr); 3],
    agents: Vec<Agent>,
    clusters: Vec<String>,
    api: FakeApi,
    store: Store,
    _etcd: EtcdCluster,
}

impl ListedTrio {
    async fn start() -> Self {
        let (etcd, mut rig) = (EtcdCluster::start().await, Rig::start_logging("info", "").await);
        join_first_listed(&mut rig, &etcd).await;
        let peers = [join_listed(&rig, &etcd, "second").await, join_listed(&rig, &etcd, "third").await];
        let (api, store) = collection().await;
        let of_peer = |peer: &Peer| (peer.gateway, peer.probes);
        let servers = [(rig.gateway(), rig.probes()), of_peer(&peers[0]), of_peer(&peers[1])];
        let (mut agents, mut clusters) = (Vec::new(), Vec::new());
        for number in 0..AGENTS {
            let cluster = format!("edge-{number}");
            agents.push(rig.agent_with(&cluster, &ApiServer::of_fake(&rig, &api), "").await);
            clusters.push(cluster);
        }
        for agent in &agents {
            rig.ready(agent.probes).await;
            until("it has two tunnels", async || tunnels(&rig.metrics(agent.probes).await, &servers) == 2)
                .await;
        }
        Self { rig, peers, servers, agents, clusters, api, store, _etcd: etcd }
    }

    /// Restarts one server after the other, each once the balancer has found the one before it ready.
    async fn restart_in_turn(&mut self, balancer: &Balancer) {
        assert_eq!(Rig::ends_with(self.rig.server(), Signal::TERM).await, Some(0));
        self.rig.start_server().await;
        for peer in &mut self.peers {
            until("all are ready", async || balancer.are_all_ready()).await;
            sleep(PAUSE).await;
            let process = peer.process.as_mut().expect("it runs");
            assert_eq!(Rig::ends_with(process, Signal::TERM).await, Some(0));
            peer.start(&self.rig).await;
        }
        sleep(PAUSE).await;
    }
}

/// Looks again and again whether each agent has a tunnel.
struct AgentsCounted(JoinHandle<usize>, watch::Sender<bool>);

impl AgentsCounted {
    fn begin(agents: &[Agent], servers: [(SocketAddr, SocketAddr); 3]) -> Self {
        let probes: Vec<SocketAddr> = agents.iter().map(|agent| agent.probes).collect();
        let (over, is_over) = watch::channel(false);
        let counting = async move {
            let mut without = 0;
            while !*is_over.borrow() {
                for probes in &probes {
                    let metrics = metrics(*probes).await;
                    without += usize::from(tunnels(&metrics, &servers) == 0);
                }
                sleep(LOOK_EVERY).await;
            }
            without
        };
        Self(tokio::spawn(counting), over)
    }

    /// The looks that found an agent without a tunnel.
    async fn end(self) -> usize {
        self.1.send_replace(true);
        self.0.await.expect("it does not panic")
    }
}

async fn metrics(probes: SocketAddr) -> String {
    tests::rig::plain(probes, "/metrics").await.expect("the probes answer")
}

/// The tunnels to these servers that an agent's metrics show.
fn tunnels(metrics: &str, servers: &[(SocketAddr, SocketAddr)]) -> usize {
    servers.iter().filter(|(gateway, _)| has_tunnel(metrics, *gateway)).count()
}
