//! Which clusters can be reached right now, and through which tunnels.

mod advertised;
mod places;
mod probation;
mod returns;
mod roster;
mod route;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use daemon::Home;
use dashmap::DashMap;
use proto::greeting::{Advertised, Certificate, Greeting};
use proto::session::Health;
use proto::spiffe::AgentId;
use proto::{CloseCode, ClusterId};
use tokio::sync::watch;
use tokio::time::Instant;
use transport::{Carrier, Link, Tunnel};

use crate::config::CopiedKey;
use crate::directory::{self, AgentCredential, Directory, NotAdmitted, SeenOutcome, StoreError};
use advertised::LastSaid;
use returns::Returns;
use roster::{Entry, Roster, Standing};
use route::{LiveSince, last_heard};

pub use places::{Ended, Places};
pub use probation::{PROBATION, Probed};
pub use route::{NoTunnel, Route, SETTLED};

/// Most tunnels of one cluster: a DaemonSet's pods on its control-plane nodes, twice over for a rolling update.
pub const TUNNELS_PER_CLUSTER_MAX: usize = 64;

/// Most tunnels of all clusters.
pub const TUNNELS_MAX: usize = 20_000;

/// The tunnels of all clusters. Clones are the same registry.
#[derive(Clone)]
pub struct Registry(Arc<Inner>);

struct Inner {
    rosters: DashMap<ClusterId, Roster<Enlisting>>,
    directory: Directory,
    copied_key: CopiedKey,
    next_ticket: AtomicU64,
    tunnels: AtomicU64,
    changes: watch::Sender<()>,
    returns: Returns,
    last_said: LastSaid,
}

/// A tunnel as the registry knows it.
#[derive(Clone)]
struct Enlisting {
    tunnel: Tunnel,
    credential: AgentCredential,
    home: Home,
    advertised: Arc<Mutex<Advertised>>,
    live: Arc<LiveSince>,
}

/// Why a tunnel was not enlisted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// `TUNNELS_PER_CLUSTER_MAX`.
    #[error("the cluster has {max} tunnels already, which is the most", max = TUNNELS_PER_CLUSTER_MAX)]
    Cluster,
    /// `TUNNELS_MAX`.
    #[error("the server has {max} tunnels already, which is the most", max = TUNNELS_MAX)]
    Server,
}

/// Why a tunnel is not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotEnlisted {
    /// For want of room.
    #[error(transparent)]
    Full(#[from] Full),
    /// Its agent may not come in.
    #[error(transparent)]
    NotAdmitted(#[from] NotAdmitted),
}

/// What is known of a cluster.
#[derive(Clone)]
pub struct Listed {
    /// Its name.
    pub cluster: ClusterId,
    /// When a tunnel of it last came or went, if ever one did. Whole seconds after a restart.
    pub last_seen: Option<SystemTime>,
    /// What people say of it.
    pub record: Arc<directory::Cluster>,
    /// The address that it was given from a range, if it is in one.
    pub given: Option<IpAddr>,
    /// Its tunnels, in the order in which they came. None: it is away.
    pub tunnels: Vec<ListedTunnel>,
}

/// What is known of a tunnel.
#[derive(Clone)]
pub struct ListedTunnel {
    /// Whose it is.
    pub agent: AgentId,
    /// Where the agent's packets come from.
    pub address: SocketAddr,
    /// What carries it.
    pub carrier: Carrier,
    /// How it does.
    pub health: Health,
    /// One side is stopping: what runs is finished, and nothing new is sent through it.
    pub draining: bool,
    /// Another process uses its agent's certificate at the same time, and answers.
    pub key_copied: bool,
    /// Since when.
    pub since: SystemTime,
    /// Where the cluster says its control plane answers.
    pub endpoints: Vec<String>,
    /// The serving certificates of its API servers, as the agent saw them last.
    pub certificates: Vec<Certificate>,
    /// Where its exchanges run.
    pub home: Home,
    /// Streams that carry exchanges now.
    pub streams_open: u32,
    tunnel: Tunnel,
}

/// Proof that a tunnel is enlisted; dropping it strikes that tunnel, and no newer one, off.
#[must_use = "the tunnel is struck off when this is dropped"]
pub struct Enlisted {
    registry: Registry,
    cluster: ClusterId,
    ticket: u64,
    advertised: Arc<Mutex<Advertised>>,
    live: Arc<LiveSince>,
    is_first: bool,
}

impl Registry {
    /// A registry that remembers in `directory` whom it has met. Of two processes that use one certificate it takes the one
    /// that `copied_key` says.
    #[must_use]
    pub fn new(directory: Directory, copied_key: CopiedKey) -> Self {
        Self(Arc::new(Inner {
            rosters: DashMap::new(),
            directory,
            copied_key,
            next_ticket: AtomicU64::new(0),
            tunnels: AtomicU64::new(0),
            changes: watch::Sender::new(()),
            returns: Returns::default(),
            last_said: LastSaid::default(),
        }))
    }

    /// Whether this agent may come in with one more tunnel. By the time that is enlisted the answer may have changed.
    ///
    /// # Errors
    /// `NotEnlisted`.
    pub fn may_enter(&self, agent: &AgentId, credential: &AgentCredential) -> Result<(), NotEnlisted> {
        self.0.directory.admits(agent, credential)?;
        Ok(self.has_room(agent.cluster())?)
    }

    fn has_room(&self, cluster: &ClusterId) -> Result<(), Full> {
        if self.0.tunnels.load(Ordering::Relaxed) >= TUNNELS_MAX as u64 {
            return Err(Full::Server);
        }
        let roster = self.0.rosters.get(cluster);
        let is_full = roster.is_some_and(|roster| roster.entries().len() >= TUNNELS_PER_CLUSTER_MAX);
        if is_full { Err(Full::Cluster) } else { Ok(()) }
    }

    /// Enters a greeted tunnel, which takes exchanges once [`Enlisted::probe`] has said so.
    ///
    /// # Errors
    /// `NotEnlisted`.
    pub fn enlist(
        &self,
        greeting: &Greeting,
        credential: AgentCredential,
        tunnel: Tunnel,
        home: Home,
    ) -> Result<Enlisted, NotEnlisted> {
        let counted = self.0.tunnels.fetch_add(1, Ordering::Relaxed);
        // From here on a drop gives the count back.
        let cluster = greeting.agent.cluster().clone();
        let mut enlisted = Enlisted {
            registry: self.clone(),
            cluster: cluster.clone(),
            ticket: self.0.next_ticket.fetch_add(1, Ordering::Relaxed),
            advertised: Arc::new(Mutex::new(greeting.advertised.clone())),
            live: Arc::new(LiveSince::new(Some(Instant::now()))),
            is_first: false,
        };
        if counted >= TUNNELS_MAX as u64 {
            return Err(Full::Server.into());
        }
        let now = SystemTime::now();
        let (advertised, live) = (Arc::clone(&enlisted.advertised), Arc::clone(&enlisted.live));
        let entry = Entry {
            ticket: enlisted.ticket,
            agent: greeting.agent.clone(),
            boot: greeting.boot,
            since: now,
            tunnel: Enlisting { tunnel, credential: credential.clone(), home, advertised, live },
            chosen: Arc::default(),
            on_probation: false,
            key_copied: false,
        };
        self.0.rosters.entry(cluster.clone()).or_default().enter(entry).map_err(|()| Full::Cluster)?;
        // Last, so that no revocation falls between this and `put_out`.
        self.0.directory.admits(&greeting.agent, &credential)?;
        enlisted.is_first = self.0.directory.mark_seen(&cluster, now) == SeenOutcome::First;
        self.changed(&cluster);
        Ok(enlisted)
    }

    /// Where agents and revocations are recorded.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.0.directory
    }

    /// Ends every tunnel whose agent is not admitted any more, with everything on it.
    pub fn put_out(&self) {
        let mut refused = Vec::new();
        for roster in &self.0.rosters {
            let is_refused = |entry: &&Entry<Enlisting>| {
                self.0.directory.admits(&entry.agent, &entry.tunnel.credential).is_err()
            };
            refused
                .extend(roster.entries().iter().filter(is_refused).map(|entry| entry.tunnel.tunnel.clone()));
        }
        refused.iter().for_each(|tunnel| tunnel.close(CloseCode::Revoked));
    }

    /// Tells those who watch that something of a cluster has changed in the directory.
    pub fn directory_changed(&self, cluster: &ClusterId) {
        self.changed(cluster);
    }

    /// What is known of the clusters that are there and that `wanted` picks, in the order of their names.
    pub fn list(&self, wanted: impl Fn(&ClusterId, &directory::Cluster) -> bool) -> Vec<Listed> {
        let known = self.0.directory.entries(wanted).into_iter();
        known
            .map(|directory::ClusterEntry { cluster, last_seen, record, given }| {
                let entries = self.0.rosters.get(&cluster).map(|roster| roster.entries().to_vec());
                let tunnels = entries.unwrap_or_default().iter().map(listed).collect();
                Listed { cluster, last_seen, record, given, tunnels }
            })
            .collect()
    }

    /// Is told whenever a tunnel has come, gone or changed, but for what is measured of it. May miss that a tunnel's
    /// address has changed.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.changes.subscribe()
    }

    /// Writes down whom the registry has met.
    ///
    /// # Errors
    /// Where the state directory cannot be written.
    pub async fn save(&self) -> Result<(), StoreError> {
        self.0.directory.save().await
    }

    fn strike_off(&self, cluster: &ClusterId, ticket: u64) {
        self.0.tunnels.fetch_sub(1, Ordering::Relaxed);
        let struck = self.0.rosters.get_mut(cluster).and_then(|mut roster| roster.strike_off(ticket));
        let emptied = self.0.rosters.remove_if(cluster, |_, roster| roster.entries().is_empty());
        if let Some(entry) = struck
            && self.0.directory.was_seen(cluster)
        {
            if emptied.is_some() {
                self.0.last_said.keep(cluster, &entry.tunnel, &self.0.directory);
            }
            let _known = self.0.directory.mark_seen(cluster, last_heard(&entry.tunnel.tunnel));
        }
        self.changed(cluster);
    }

    fn changed(&self, cluster: &ClusterId) {
        self.0.changes.send_replace(());
        self.0.returns.changed(cluster);
    }
}

impl Listed {
    /// Whether a new request would find a tunnel: one that only stops takes none.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        self.tunnels.iter().any(|tunnel| tunnel.health != Health::Lost && !tunnel.draining)
    }
}

impl ListedTunnel {
    /// What it has carried and lost up to now.
    #[must_use]
    pub fn link(&self) -> Link {
        self.tunnel.link()
    }
}

impl Enlisted {
    /// Whether the cluster was never met before, so that the registry should be saved.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.is_first
    }

    /// Closes the tunnels of this cluster that are silent and whose agent has greeted again as another process: on a
    /// link that is only dark they would be held, but behind these nobody stands, and their callers wait in vain. One that
    /// still speaks is left to finish: the process before may be stopping in good order.
    pub fn close_left_behind(&self) {
        let roster = self.registry.0.rosters.get(&self.cluster);
        let left: Vec<Tunnel> = roster.map_or_else(Vec::new, |roster| {
            let silent = roster.superseded().filter(|old| old.tunnel.health() == Health::Suspect);
            silent.map(|old| old.tunnel.clone()).collect()
        });
        left.iter().for_each(|tunnel| tunnel.close(CloseCode::Lost));
    }

    /// Notes that the agent has shown a newer certificate. Whether that is admitted is to be asked afterwards, so that no
    /// revocation falls in between.
    pub fn extend(&self, credential: AgentCredential) {
        if let Some(mut roster) = self.registry.0.rosters.get_mut(&self.cluster)
            && let Some(entry) = roster.entry_mut(self.ticket)
        {
            entry.tunnel.credential = credential;
        }
    }

    /// Notes that the agent says something else of the control plane than its greeting did.
    pub fn advertise(&self, advertised: Advertised) {
        *self.advertised.lock().unwrap_or_else(PoisonError::into_inner) = advertised;
        self.registry.changed(&self.cluster);
    }

    /// Notes that the tunnel's health is another.
    pub fn health_changed(&self, health: Health) {
        self.live.send_replace((health == Health::Live).then(Instant::now));
        self.registry.changed(&self.cluster);
    }

    /// Notes that the tunnel drains.
    pub fn drains(&self) {
        // What it carries looks again, too.
        self.live.send_modify(|_| ());
        self.registry.changed(&self.cluster);
    }
}

impl Drop for Enlisted {
    fn drop(&mut self) {
        self.live.send_replace(None);
        self.registry.strike_off(&self.cluster, self.ticket);
    }
}

impl fmt::Debug for Enlisted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enlisted").field("cluster", &self.cluster).field("ticket", &self.ticket).finish()
    }
}

fn standing(entry: &Enlisting) -> Standing {
    let live_since = *entry.live.borrow();
    Standing {
        health: entry.tunnel.health(),
        draining: entry.tunnel.is_draining(),
        carrier: entry.tunnel.carrier(),
        live_for: live_since.map_or(Duration::ZERO, |since| since.elapsed()),
        distance: entry.tunnel.distance(),
        streams: entry.tunnel.streams_open(),
    }
}

fn listed(entry: &Entry<Enlisting>) -> ListedTunnel {
    let Enlisting { tunnel, credential: _, home, advertised: _, live: _ } = &entry.tunnel;
    let Advertised { endpoints, certificates } = entry.tunnel.advertised();
    ListedTunnel {
        agent: entry.agent.clone(),
        address: tunnel.peer_address(),
        carrier: tunnel.carrier(),
        health: tunnel.health(),
        draining: tunnel.is_draining(),
        key_copied: entry.key_copied,
        since: entry.since,
        endpoints,
        certificates,
        home: *home,
        streams_open: tunnel.streams_open(),
        tunnel: tunnel.clone(),
    }
}
