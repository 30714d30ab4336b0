//! Long trials of three servers under load. Each prints its figures in one line that begins with `soak`.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use tests::check::bystanders::p99;
use tests::etcd::EtcdCluster;
use tests::fake_api::{Behaviour, FakeApi, Store};
use tests::members::{join, join_first};
use tests::rig::{Agent, ApiServer, Peer, Rig};

use tokio::sync::Mutex;

use crate::{has_tunnel, until};

mod client;
mod killed;
mod load;
mod once;
mod revoked;
mod rolling;
mod twenty;
mod watcher;
mod without_etcd;

/// The collection that is read, written and watched.
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The time after which a request counts as hanging.
const HANGS_AFTER: Duration = Duration::from_secs(15);

/// The trials run one after the other, because each needs all of a machine.
static ALONE: Mutex<()> = Mutex::const_new(());

/// The median of some times, their 99th percentile, and the longest one.
#[derive(Debug, Clone, Copy, Default)]
struct Spread {
    p50: Duration,
    p99: Duration,
    longest: Duration,
}

/// Three servers with sessions between all, and a fake API server with a collection and a pod that echoes.
struct Trio {
    rig: Rig,
    second: Peer,
    third: Peer,
    etcd: EtcdCluster,
    api: FakeApi,
    store: Store,
}

impl Spread {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let p50 = times.get(times.len() / 2).copied().unwrap_or_default();
        Self { p50, p99: p99(&times), longest: times.last().copied().unwrap_or_default() }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = [self.p50, self.p99, self.longest].map(|time| time.as_secs_f64());
        write!(f, "p50 {:.3} s, p99 {:.3} s, longest {:.3} s", seconds[0], seconds[1], seconds[2])
    }
}

impl Trio {
    async fn start() -> Self {
        let (etcd, mut rig) = (EtcdCluster::start().await, Rig::start_logging("info", "").await);
        join_first(&mut rig, &etcd).await;
        let (second, third) = (join(&rig, &etcd, "second").await, join(&rig, &etcd, "third").await);
        let (api, store) = collection().await;
        Self { rig, second, third, etcd, api, store }
    }

    /// The gateway and the probes of each server.
    fn servers(&self) -> [(SocketAddr, SocketAddr); 3] {
        let of_peer = |peer: &Peer| (peer.gateway, peer.probes);
        [(self.rig.gateway(), self.rig.probes()), of_peer(&self.second), of_peer(&self.third)]
    }

    /// An agent of `edge-a` with a tunnel to each of these servers.
    async fn agent(&self, gateways: &[SocketAddr]) -> Agent {
        let names = gateways.iter().map(|gateway| format!("\"{gateway}\"")).collect::<Vec<_>>().join(", ");
        let servers = format!("servers: [{names}]\n");
        let agent = self.rig.agent_with("edge-a", &ApiServer::of_fake(&self.rig, &self.api), &servers).await;
        self.rig.ready(agent.probes).await;
        until("it has all tunnels", async || {
            let metrics = self.rig.metrics(agent.probes).await;
            gateways.iter().all(|gateway| has_tunnel(&metrics, *gateway))
        })
        .await;
        let path = format!("/clusters/edge-a{CONFIGMAPS}");
        for (gateway, _) in self.servers() {
            let is_served = async || self.rig.ask_at(gateway, &path).await.status == 200;
            until("it is reached through every server", is_served).await;
        }
        agent
    }
}

/// A fake API server with a collection, one object in it, and a pod that echoes.
async fn collection() -> (FakeApi, Store) {
    let (api, store) = (FakeApi::start().await.expect("a fake starts"), Store::new());
    store.put("read", "first");
    api.on(CONFIGMAPS, Behaviour::Store(store.clone()));
    api.on("/api/v1/namespaces/default/pods", Behaviour::upgrade());
    (api, store)
}
