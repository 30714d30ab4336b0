//! The state of clusters and of their tunnels, for administrators, callers and metrics.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

use daemon::Home;
use proto::ClusterId;
use proto::greeting::{Advertised, Certificate};
use proto::peering::RemoteTunnel;
use proto::session::Health;
use proto::spiffe::AgentId;
use transport::{Carrier, LinkStats, Tunnel};

use super::peers::TunnelAtPeer;
use super::tunnels::TunnelEntry;
use super::way::last_heard;
use super::{RegisteredTunnel, Registry};
use crate::directory::{self, AgentCredential};

/// The current state of one cluster.
#[derive(Clone)]
pub struct ClusterStatus {
    /// The name of the cluster.
    pub cluster: ClusterId,
    /// The time at which a tunnel of this cluster last opened or closed, if ever. Whole seconds after a
    /// restart of the server.
    pub last_seen: Option<SystemTime>,
    /// The directory's record of the cluster.
    pub record: Arc<directory::Cluster>,
    /// The virtual address that was assigned to the cluster, if it belongs to a range.
    pub given: Option<IpAddr>,
    /// The cluster's tunnels to this server, in the order of their registration.
    pub tunnels: Vec<TunnelStatus>,
    /// The cluster's tunnels to other servers, as these tell of them.
    pub at_peers: Vec<RemoteTunnelStatus>,
    /// True if another server has a tunnel that takes requests of this one.
    pub is_at_peer: bool,
    /// The version of the cluster's API server, as its newest tunnel tells it, or else its last one since this server
    /// started. Empty if none has told it.
    pub kubernetes_version: String,
}

/// The current state of one tunnel.
#[derive(Clone)]
pub struct TunnelStatus {
    /// The identity of the agent.
    pub agent: AgentId,
    /// The certificate of the agent, the newest that it has shown.
    pub credential: AgentCredential,
    /// The source address of the agent's packets.
    pub address: SocketAddr,
    /// The carrier of the tunnel, QUIC or HTTP/2.
    pub carrier: Carrier,
    /// The health of the tunnel as its heartbeats show it.
    pub health: Health,
    /// One side is stopping: running exchanges are finished, and no new ones are sent through the tunnel.
    pub draining: bool,
    /// Another live process uses the same agent certificate at the same time.
    pub key_copied: bool,
    /// The version of the agent's software as it claims, in a safe set of characters. Empty if it claims none.
    pub version: Arc<str>,
    /// The time at which the tunnel was registered.
    pub since: SystemTime,
    /// The time at which the tunnel last received anything.
    pub last_heard: SystemTime,
    /// The endpoints that the agent advertises for its control plane.
    pub endpoints: Vec<String>,
    /// The serving certificates of its API servers, as the agent saw them last.
    pub certificates: Vec<Certificate>,
    /// The version of its API server that the agent tells, or nothing.
    pub kubernetes_version: String,
    /// The runtime that runs the tunnel's exchanges.
    pub home: Home,
    /// The number of streams that carry exchanges now.
    pub streams_open: u32,
    tunnel: Tunnel,
}

/// The current state of a tunnel to another server, as that server tells it.
#[derive(Clone)]
pub struct RemoteTunnelStatus {
    /// The ID of the server that has the tunnel.
    pub server: Arc<str>,
    /// The other server's last word about the tunnel.
    pub told: Arc<RemoteTunnel>,
    /// The worse of the tunnel's health and that of the session with the other server.
    pub health: Health,
    /// The tunnel, or the other server, is stopping.
    pub draining: bool,
}

impl Registry {
    /// Lists the known clusters that `wanted` selects, in the order of their names.
    pub fn list(&self, wanted: impl Fn(&ClusterId, &directory::Cluster) -> bool) -> Vec<ClusterStatus> {
        let clusters = self.0.directory.entries(wanted).into_iter();
        clusters
            .map(|directory::ClusterEntry { cluster, last_seen, record, given }| {
                let entries = self.0.by_cluster.get(&cluster).map(|tunnels| tunnels.entries().to_vec());
                let tunnels: Vec<_> = entries.unwrap_or_default().iter().map(tunnel_status).collect();
                let at_peers: Vec<_> = self.0.at_peers.all(&cluster).iter().map(remote_status).collect();
                let is_at_peer = self.is_at_peer(&cluster);
                let kubernetes_version = newest_version(&tunnels, &at_peers)
                    .unwrap_or_else(|| self.0.last_advertised.kubernetes_version(&cluster));
                ClusterStatus {
                    cluster,
                    last_seen,
                    record,
                    given,
                    tunnels,
                    at_peers,
                    is_at_peer,
                    kubernetes_version,
                }
            })
            .collect()
    }
}

impl ClusterStatus {
    /// Returns true if a new request would find a tunnel. A draining tunnel does not count.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        self.is_at_peer || self.tunnels.iter().any(|tunnel| tunnel.health != Health::Lost && !tunnel.draining)
    }

    /// The time of the last sign of life of the cluster, in whole seconds or finer: now, while a tunnel to another server is live.
    #[must_use]
    pub fn last_heard(&self) -> Option<SystemTime> {
        let here = self.tunnels.iter().map(|tunnel| tunnel.last_heard);
        let at_peers = self.at_peers.iter().filter(|tunnel| tunnel.health == Health::Live);
        here.chain(at_peers.map(|_| SystemTime::now())).chain(self.last_seen).max()
    }

    /// The agents that have a tunnel to this server, with the version that each claimed with its newest one.
    #[must_use]
    pub fn agent_versions(&self) -> BTreeMap<&str, &str> {
        // In the order of their registration, so that the newest comes last.
        self.tunnels.iter().map(|tunnel| (tunnel.agent.instance(), &*tunnel.version)).collect()
    }
}

impl TunnelStatus {
    /// The traffic and the losses of this tunnel until now.
    #[must_use]
    pub fn link(&self) -> LinkStats {
        self.tunnel.link_stats()
    }
}

fn tunnel_status(entry: &TunnelEntry<RegisteredTunnel>) -> TunnelStatus {
    let RegisteredTunnel { tunnel, credential, home, version, .. } = &entry.tunnel;
    let Advertised { endpoints, certificates, kubernetes_version } = entry.tunnel.advertised();
    TunnelStatus {
        agent: entry.agent.clone(),
        credential: credential.clone(),
        address: tunnel.peer_address(),
        carrier: tunnel.carrier(),
        health: tunnel.health(),
        draining: tunnel.is_draining(),
        key_copied: entry.key_copied,
        version: Arc::clone(version),
        since: entry.since,
        last_heard: last_heard(tunnel),
        endpoints,
        certificates,
        kubernetes_version,
        home: *home,
        streams_open: tunnel.streams_open(),
        tunnel: tunnel.clone(),
    }
}

/// The version that the newest of these tunnels tells, those to this server before all others.
fn newest_version(tunnels: &[TunnelStatus], at_peers: &[RemoteTunnelStatus]) -> Option<String> {
    let here = tunnels.iter().rev().map(|tunnel| &tunnel.kubernetes_version);
    let told = at_peers.iter().map(|tunnel| &tunnel.told.advertised.kubernetes_version);
    here.chain(told).find(|version| !version.is_empty()).cloned()
}

fn remote_status(tunnel: &TunnelAtPeer) -> RemoteTunnelStatus {
    RemoteTunnelStatus {
        server: Arc::clone(tunnel.session().shared_server_id()),
        told: tunnel.told(),
        health: tunnel.health(),
        draining: tunnel.is_draining(),
    }
}
