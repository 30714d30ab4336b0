//! The clusters that are reachable right now, and the tunnels that lead to them.

mod admission;
mod advertised;
mod agent_limits;
mod agent_version;
mod carrying_tunnel;
mod duplicate_check;
mod given_up;
mod inquiries;
mod live_since;
mod newest_process;
mod own_server;
mod peer_probe;
mod peer_status;
mod peers;
mod questions;
mod route;
mod servers;
mod status;
mod tunnels;
mod wait_queue;
mod waiters;
mod way;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use daemon::Home;
use dashmap::DashMap;
use proto::greeting::{Advertised, BootNonce, Greeting};
use proto::session::Health;
use proto::spiffe::AgentId;
use proto::wire::{StreamQuery, StreamReport};
use proto::{Capabilities, CloseCode, ClusterId};
use tokio::sync::watch;
use tokio::time::Instant;
use transport::Tunnel;

use crate::config::CopiedKey;
use crate::directory::{AgentCredential, Directory, NotAdmitted, SeenOutcome, StoreError};
use advertised::LastAdvertised;
use agent_version::agent_version;
use inquiries::{Inquiries, ProcessInquiry};
use live_since::LiveSince;
use peer_status::PeerSessions;
use peers::TunnelsAtPeers;
use tunnels::{Candidate, ClusterTunnels, Selectable, TunnelEntry};
use waiters::Waiters;
use way::last_heard;

pub use agent_limits::{
    AGENTS_PER_CLUSTER_MAX, LimitReached, SURGE_AGENTS_MAX, TUNNELS_PER_AGENT_MAX, TUNNELS_PER_CLUSTER_MAX,
};
pub(crate) use carrying_tunnel::{CarryingTunnel, TunnelNumber};
pub use duplicate_check::{DuplicateCheck, PROBATION, SeenProcesses};
pub use given_up::SILENT_BESIDE_LIVE_MAX;
pub use own_server::{OwnServer, OwnServerParts};
pub use peer_status::ClockOffset;
pub use peers::{PeerRegistration, PeerSession, TooManyTunnels};
pub use questions::QUESTIONS_MAX;
pub(crate) use route::never_begun;
pub use route::{RouteError, STABLE_AFTER};
pub use servers::{PeerDifferences, PeerReach, ServerState, ServerStatus};
pub use status::{ClusterStatus, RemoteTunnelStatus, TunnelStatus};
pub use wait_queue::{WaitOutcomes, WaitQueue};
pub use way::Route;

/// The tunnels of all clusters. Clones share one registry.
#[derive(Clone)]
pub struct Registry(Arc<SharedRegistry>);

struct SharedRegistry {
    by_cluster: DashMap<ClusterId, ClusterTunnels<RegisteredTunnel>>,
    /// The tunnels of other servers.
    at_peers: TunnelsAtPeers,
    /// The sessions that other servers have dialed.
    peer_sessions: PeerSessions,
    directory: Directory,
    copied_key: CopiedKey,
    /// Most tunnels of all clusters together.
    tunnels_max: usize,
    next_ticket: AtomicU64,
    tunnel_count: AtomicU64,
    changes: watch::Sender<()>,
    waiters: Waiters,
    last_advertised: LastAdvertised,
    inquiries: Inquiries,
}

/// A tunnel in the registry, with what the registry needs to route through it.
#[derive(Clone)]
struct RegisteredTunnel {
    tunnel: Tunnel,
    credential: AgentCredential,
    home: Home,
    advertised: Arc<Mutex<Advertised>>,
    live: Arc<LiveSince>,
    /// The number of the tunnel among those that its process has dialed.
    sequence: u64,
    inquiry: Arc<ProcessInquiry>,
    /// The version of the agent's software, or nothing.
    version: Arc<str>,
    capabilities: Capabilities,
}

/// The reason why a tunnel was not registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// A limit on the number of agents or tunnels is reached.
    #[error(transparent)]
    LimitReached(#[from] LimitReached),
    /// The directory does not admit the tunnel's agent.
    #[error(transparent)]
    NotAdmitted(#[from] NotAdmitted),
    /// This server has had no news from etcd, so it cannot know whether the agent is admitted.
    #[error(
        "this server has had no news from etcd for {seconds} s, so it cannot know who is revoked; dial another server"
    )]
    NotFresh {
        /// The age of its memory.
        seconds: u64,
    },
}

/// Guard of a registered tunnel. Dropping it removes exactly this tunnel from the registry.
#[must_use = "the tunnel is struck off when this is dropped"]
pub struct Registration {
    registry: Registry,
    cluster: ClusterId,
    ticket: u64,
    advertised: Arc<Mutex<Advertised>>,
    live: Arc<LiveSince>,
    sequence: u64,
    inquiry: Arc<ProcessInquiry>,
    is_first: bool,
}

impl Registry {
    /// Creates a registry of at most `tunnels_max` tunnels, which stores the clusters it has seen in `directory`. If two
    /// processes use one certificate, `copied_key` decides which of them stays.
    #[must_use]
    pub fn new(directory: Directory, copied_key: CopiedKey, tunnels_max: usize) -> Self {
        Self(Arc::new(SharedRegistry {
            by_cluster: DashMap::new(),
            at_peers: TunnelsAtPeers::default(),
            peer_sessions: PeerSessions::default(),
            directory,
            copied_key,
            tunnels_max,
            next_ticket: AtomicU64::new(0),
            tunnel_count: AtomicU64::new(0),
            changes: watch::Sender::new(()),
            waiters: Waiters::default(),
            last_advertised: LastAdvertised::default(),
            inquiries: Inquiries::default(),
        }))
    }

    /// Checks whether the process `boot` of this agent may register one more tunnel. The result can be outdated
    /// by the time of the registration.
    ///
    /// # Errors
    /// `RegisterError` if the agent is not admitted or a limit is reached.
    pub fn may_register(
        &self,
        agent: &AgentId,
        boot: BootNonce,
        credential: &AgentCredential,
    ) -> Result<(), RegisterError> {
        self.check_freshness(agent.cluster())?;
        self.0.directory.admits(agent, credential)?;
        if self.0.tunnel_count.load(Ordering::Relaxed) >= self.tunnels_max() as u64 {
            return Err(LimitReached::ServerTunnels(self.tunnels_max()).into());
        }
        if let Some(tunnels) = self.0.by_cluster.get(agent.cluster()) {
            tunnels.room_for(agent, boot)?;
        }
        Ok(())
    }

    /// Registers a greeted tunnel. It receives exchanges once [`Registration::check_duplicates`] has found
    /// that it may.
    ///
    /// # Errors
    /// `RegisterError` if the agent is not admitted or a limit is reached.
    pub fn register(
        &self,
        greeting: &Greeting,
        credential: AgentCredential,
        tunnel: Tunnel,
        home: Home,
    ) -> Result<Registration, RegisterError> {
        let counted = self.0.tunnel_count.fetch_add(1, Ordering::Relaxed);
        // From here on dropping the guard decrements the count.
        let cluster = greeting.agent.cluster().clone();
        let alive_max =
            usize::try_from(counted).unwrap_or(usize::MAX).saturating_add(1).min(self.tunnels_max());
        let (sequence, inquiry) =
            (greeting.sequence, self.0.inquiries.of_process(&greeting.agent, greeting.boot, alive_max));
        let mut registration = Registration {
            registry: self.clone(),
            cluster: cluster.clone(),
            ticket: self.next_ticket(),
            advertised: Arc::new(Mutex::new(greeting.advertised.clone())),
            live: Arc::new(LiveSince::new(Some(Instant::now()))),
            sequence,
            inquiry: Arc::clone(&inquiry),
            is_first: false,
        };
        if counted >= self.tunnels_max() as u64 {
            return Err(LimitReached::ServerTunnels(self.tunnels_max()).into());
        }
        let now = SystemTime::now();
        let (advertised, live) = (Arc::clone(&registration.advertised), Arc::clone(&registration.live));
        let entry = TunnelEntry {
            ticket: registration.ticket,
            agent: greeting.agent.clone(),
            boot: greeting.boot,
            since: now,
            tunnel: RegisteredTunnel {
                tunnel,
                credential: credential.clone(),
                home,
                advertised,
                live,
                sequence,
                inquiry,
                version: agent_version(&greeting.software),
                capabilities: greeting.capabilities,
            },
            last_chosen: Arc::default(),
            on_probation: self.has_earlier_elsewhere(&greeting.agent, greeting.boot),
            key_copied: false,
        };
        let replaced = self.0.by_cluster.entry(cluster.clone()).or_default().insert(entry)?;
        replaced.iter().for_each(|replaced| make_room(replaced, greeting.boot));
        // After the insertion, so that `disconnect_refused` cannot miss a tunnel that was revoked meanwhile.
        self.0.directory.admits(&greeting.agent, &credential)?;
        registration.is_first = self.0.directory.mark_seen(&cluster, now) == SeenOutcome::First;
        self.changed(&cluster);
        Ok(registration)
    }

    /// The directory, which stores agents and revocations.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.0.directory
    }

    /// Notifies the subscribers of [`changes`](Self::changes) that the directory's record of a cluster has
    /// changed.
    pub fn directory_changed(&self, cluster: &ClusterId) {
        self.changed(cluster);
    }

    /// The number of tunnels to this server.
    #[must_use]
    pub fn tunnels_here(&self) -> usize {
        usize::try_from(self.0.tunnel_count.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// A receiver that is notified whenever a tunnel has opened, closed or changed state. Measurements do not
    /// count as changes, and a change of a tunnel's address may be missed.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.changes.subscribe()
    }

    /// Writes the clusters that the registry has seen, and the times at which they were last seen.
    ///
    /// # Errors
    /// `StoreError` if the state directory cannot be written.
    pub async fn save(&self) -> Result<(), StoreError> {
        self.0.directory.save().await
    }

    fn remove(&self, cluster: &ClusterId, ticket: u64) {
        self.0.tunnel_count.fetch_sub(1, Ordering::Relaxed);
        let struck = self.0.by_cluster.get_mut(cluster).and_then(|mut tunnels| tunnels.remove(ticket));
        let emptied = self.0.by_cluster.remove_if(cluster, |_, tunnels| tunnels.entries().is_empty());
        if let Some(entry) = struck
            && self.0.directory.was_seen(cluster)
        {
            if emptied.is_some() {
                self.0.last_advertised.keep(cluster, &entry.tunnel, &self.0.directory);
            }
            let _meeting = self.0.directory.mark_seen(cluster, last_heard(&entry.tunnel.tunnel));
        }
        self.changed(cluster);
    }

    /// The number of one more tunnel, here or at another server.
    fn next_ticket(&self) -> u64 {
        self.0.next_ticket.fetch_add(1, Ordering::Relaxed)
    }

    fn changed(&self, cluster: &ClusterId) {
        self.0.changes.send_replace(());
        self.0.waiters.changed(cluster);
    }
}

impl Registration {
    /// Returns true if this server has never seen the cluster before, so that the registry should be saved.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.is_first
    }

    /// Closes silent tunnels of this cluster whose agent has greeted again as another process. Unlike tunnels
    /// on a dark link these cannot recover, so that their callers would wait for nothing. A tunnel that is
    /// still heard stays open, because its process may be shutting down in good order.
    pub fn close_superseded(&self) {
        let tunnels = self.registry.0.by_cluster.get(&self.cluster);
        let left: Vec<RegisteredTunnel> = tunnels.map_or_else(Vec::new, |tunnels| {
            let silent = tunnels.superseded().filter(|old| old.tunnel.health() == Health::Suspect);
            silent.cloned().collect()
        });
        for old in left {
            old.inquiry.abandon();
            old.tunnel.close(CloseCode::Lost);
        }
    }

    /// Stores the newer certificate of the agent. The caller checks afterwards whether it is admitted, so
    /// that no revocation falls in between.
    pub fn set_credential(&self, credential: AgentCredential) {
        if let Some(mut tunnels) = self.registry.0.by_cluster.get_mut(&self.cluster)
            && let Some(entry) = tunnels.entry_mut(self.ticket)
        {
            entry.tunnel.credential = credential;
        }
    }

    /// Stores what the agent advertises now, in place of the greeting's endpoints.
    pub fn set_advertised(&self, advertised: Advertised) {
        *self.advertised.lock().unwrap_or_else(PoisonError::into_inner) = advertised;
        self.registry.changed(&self.cluster);
    }

    /// Records a change of the tunnel's health.
    pub fn health_changed(&self, health: Health) {
        self.live.send_replace((health == Health::Live).then(Instant::now));
        self.registry.changed(&self.cluster);
    }

    /// The next query to send over this tunnel: about streams of a silent tunnel of the same process.
    pub async fn query_due(&self) -> StreamQuery {
        self.inquiry.query_due(self.sequence, &mut self.live.subscribe()).await
    }

    /// Takes the agent's answer to a query.
    pub fn reported(&self, report: &StreamReport) {
        self.inquiry.handle_report(report);
    }

    /// Has the agent told over another tunnel that this one was closed for good.
    pub fn tell_closed(&self) {
        self.inquiry.close(self.sequence);
    }

    /// Records that the tunnel has begun to drain.
    pub fn draining_began(&self) {
        // Exchanges on this tunnel check for a successor now.
        self.live.send_modify(|_| ());
        self.registry.changed(&self.cluster);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.live.send_replace(None);
        self.registry.remove(&self.cluster, self.ticket);
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("cluster", &self.cluster).field("ticket", &self.ticket).finish()
    }
}

impl Selectable for RegisteredTunnel {
    fn candidate(&self) -> Candidate {
        let live_since = *self.live.borrow();
        Candidate {
            health: self.tunnel.health(),
            draining: self.tunnel.is_draining(),
            carrier: self.tunnel.carrier(),
            live_for: live_since.map_or(Duration::ZERO, |since| since.elapsed()),
            has_flapped: self.tunnel.flapped_at().is_some(),
            min_rtt: self.tunnel.min_rtt(),
            streams: self.tunnel.streams_open(),
        }
    }
}

/// Closes a tunnel that took no exchanges, for a new one of its agent's process `boot`.
fn make_room(replaced: &TunnelEntry<RegisteredTunnel>, boot: BootNonce) {
    let RegisteredTunnel { tunnel, inquiry, sequence, .. } = &replaced.tunnel;
    if replaced.boot == boot {
        inquiry.close(*sequence);
    } else if !tunnel.is_draining() {
        inquiry.abandon();
    }
    tunnel.close(CloseCode::Lost);
}
