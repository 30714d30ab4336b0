//! The tunnels of other servers, as these tell of them. Their clusters are reached by one hop, over a session.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use daemon::Home;
use dashmap::DashMap;
use proto::ClusterId;
use proto::peering::{PeerInfo, PeerStatus, PoolDelta, RemoteTunnel, ViaOutcome, ViaRequest};
use proto::session::Health;
use proto::wire::StreamOpen;
use tokio::time::{Instant, timeout};
use transport::{OpenError, Tunnel, TunnelStream};

use super::live_since::LiveSince;
use super::peer_status::SessionStatus;
use super::questions::Questions;
use super::tunnels::TunnelEntry;
use super::{RegisteredTunnel, Registry};
use crate::config::SERVER_TUNNELS_MAX;

/// Longest wait for the other server's answer to a stream: it opens a stream itself, in as long a time.
const REPLY_MAX: Duration = Duration::from_secs(6);

/// A session that another server has dialed. Streams to the clusters there are opened through it. Clones are the same one.
#[derive(Clone)]
pub struct PeerSession(Arc<SharedPeerSession>);

struct SharedPeerSession {
    status: Arc<SessionStatus>,
    /// The runtime that runs the session's exchanges.
    home: Home,
    questions: Questions,
}

/// A tunnel between another server and an agent. Clones are the same one.
#[derive(Clone)]
pub(super) struct TunnelAtPeer(Arc<SharedTunnelAtPeer>);

struct SharedTunnelAtPeer {
    session: PeerSession,
    /// The position among all tunnels that this registry knows.
    ticket: u64,
    last_word: Mutex<LastWord>,
    /// The liveness of [`LastWord`] for exchanges that wait for its end. Most tunnels of other servers never carry one, and this
    /// would be the largest part of them.
    live: OnceLock<Box<LiveSince>>,
}

/// The other server's last word about a tunnel.
struct LastWord {
    told: Arc<RemoteTunnel>,
    /// The time since which the other server says that the tunnel is live, and its session is live, too.
    live_since: Option<Instant>,
}

/// The tunnels at all peers, by cluster.
#[derive(Default)]
pub(super) struct TunnelsAtPeers(DashMap<ClusterId, Vec<TunnelAtPeer>>);

/// The tunnels of one session. When it is dropped, they are gone.
#[must_use = "the tunnels of the session are gone when this is dropped"]
pub struct PeerRegistration {
    registry: Registry,
    session: PeerSession,
    /// The position of the session among all of the registry.
    ticket: u64,
    tunnels: HashMap<u64, TunnelAtPeer>,
    /// The tunnels that a full copy has not named yet, while one arrives.
    unnamed: Option<HashSet<u64>>,
}

/// The other server has told of more tunnels than a server can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server tells of more than {SERVER_TUNNELS_MAX} tunnels")]
pub struct TooManyTunnels;

impl PeerSession {
    /// A session with this server, as it has introduced itself.
    #[must_use]
    pub fn new(peer: PeerInfo, tunnel: Tunnel, home: Home) -> Self {
        let (status, questions) = (Arc::new(SessionStatus::new(peer, tunnel)), Questions::default());
        Self(Arc::new(SharedPeerSession { status, home, questions }))
    }

    /// The ID of the other server.
    #[must_use]
    pub fn server_id(&self) -> &str {
        &self.0.status.server_id
    }

    pub(super) fn shared_server_id(&self) -> &Arc<str> {
        &self.0.status.server_id
    }

    pub(super) fn tunnel(&self) -> &Tunnel {
        &self.0.status.tunnel
    }

    fn is_live(&self) -> bool {
        self.tunnel().health() == Health::Live
    }

    pub(super) fn is_draining(&self) -> bool {
        self.0.status.is_draining.load(Ordering::Relaxed)
    }

    pub(super) fn home(&self) -> Home {
        self.0.home
    }

    pub(super) fn questions(&self) -> &Questions {
        &self.0.questions
    }
}

impl TunnelAtPeer {
    pub(super) fn session(&self) -> &PeerSession {
        &self.0.session
    }

    pub(super) fn ticket(&self) -> u64 {
        self.0.ticket
    }

    /// The liveness, for those who wait for its end.
    pub(super) fn live(&self) -> &LiveSince {
        // A change of the liveness holds the lock, too, and finds `live` afterwards.
        let word = self.last_word();
        self.0.live.get_or_init(|| Box::new(LiveSince::new(word.live_since)))
    }

    /// The time since which the tunnel has been live without a break.
    pub(super) fn live_since(&self) -> Option<Instant> {
        self.last_word().live_since
    }

    /// The other server's last word about the tunnel.
    pub(super) fn told(&self) -> Arc<RemoteTunnel> {
        Arc::clone(&self.last_word().told)
    }

    fn last_word(&self) -> MutexGuard<'_, LastWord> {
        self.0.last_word.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worse of the session's health and the tunnel's.
    pub(super) fn health(&self) -> Health {
        match self.0.session.tunnel().health() {
            Health::Live if self.live_since().is_none() => Health::Suspect,
            health @ (Health::Live | Health::Suspect | Health::Lost) => health,
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.0.session.is_draining() || self.told().is_draining
    }

    /// Returns true if the tunnel takes new streams.
    fn is_usable(&self) -> bool {
        let told = self.told();
        self.0.session.tunnel().serves() && told.is_live && !self.is_draining() && !told.is_on_probation
    }

    /// The relative cost of one more exchange: its distance over both legs, and what is ahead of it.
    fn cost(&self) -> u128 {
        let told = self.told();
        let distance = told.distance + self.0.session.tunnel().min_rtt();
        (distance.as_micros() + 1) * (u128::from(told.streams_open) + 1)
    }

    /// Opens a stream to the agent, through the other server.
    pub(super) async fn open(&self, open: &StreamOpen) -> Result<TunnelStream, OpenError> {
        let told = self.told();
        // A frame without a kind is not made here.
        let via = ViaRequest::wrap(told.agent.cluster(), open.clone()).ok_or(OpenError::Draining)?;
        let mut stream = self.0.session.tunnel().open(&via).await?;
        match timeout(REPLY_MAX, stream.read_via_reply()).await {
            Ok(Ok(ViaOutcome::Opened { .. })) => Ok(stream),
            // Not one byte of the request has left, so another tunnel may carry it.
            Ok(Ok(ViaOutcome::NoTunnel | ViaOutcome::Refused(_)) | Err(_)) | Err(_) => {
                Err(OpenError::Draining)
            }
        }
    }

    /// Takes the other server's word. Returns whether the tunnel is usable now and was not, or the other way round.
    fn tell(&self, told: RemoteTunnel) -> bool {
        let before = self.is_usable();
        self.last_word().told = Arc::new(told);
        self.update_live();
        before != self.is_usable()
    }

    /// Notes whether exchanges can wait for this tunnel. Of a session that is silent nobody knows whether the other server runs, so
    /// they go on over another tunnel, as they do if the tunnel itself is silent.
    fn update_live(&self) {
        self.set_live(self.told().is_live && self.0.session.is_live());
    }

    fn set_live(&self, is_live: bool) {
        let mut word = self.last_word();
        if word.live_since.is_some() != is_live {
            word.live_since = is_live.then(Instant::now);
            if let Some(live) = self.0.live.get() {
                live.send_replace(word.live_since);
            }
        }
    }

    /// Lets those who wait look again, for another reason than liveness.
    fn wake(&self) {
        if let Some(live) = self.0.live.get() {
            live.send_modify(|_| ());
        }
    }
}

impl TunnelsAtPeers {
    /// Returns true if another server has a tunnel to the cluster, usable or not.
    pub(super) fn knows(&self, cluster: &ClusterId) -> bool {
        self.0.contains_key(cluster)
    }

    /// All tunnels to a cluster, usable or not.
    pub(super) fn of_cluster(&self, cluster: &ClusterId) -> Vec<TunnelAtPeer> {
        self.0.get(cluster).map(|tunnels| tunnels.clone()).unwrap_or_default()
    }

    /// The usable tunnels to a cluster whose agents are `admitted`.
    pub(super) fn usable(
        &self,
        cluster: &ClusterId,
        admitted: impl Fn(&RemoteTunnel) -> bool,
    ) -> Vec<TunnelAtPeer> {
        let tunnels = self.0.get(cluster);
        tunnels.iter().flat_map(|tunnels| usable_of(tunnels, &admitted)).cloned().collect()
    }

    /// All tunnels to a cluster, usable or not.
    pub(super) fn all(&self, cluster: &ClusterId) -> Vec<TunnelAtPeer> {
        self.0.get(cluster).map(|tunnels| tunnels.clone()).unwrap_or_default()
    }

    /// Returns true if there is one.
    pub(super) fn has_usable(&self, cluster: &ClusterId, admitted: impl Fn(&RemoteTunnel) -> bool) -> bool {
        self.0.get(cluster).is_some_and(|tunnels| usable_of(&tunnels, &admitted).next().is_some())
    }

    /// The one of least cost among them.
    pub(super) fn best(
        &self,
        cluster: &ClusterId,
        admitted: impl Fn(&RemoteTunnel) -> bool,
    ) -> Option<TunnelAtPeer> {
        let tunnels = self.0.get(cluster)?;
        usable_of(&tunnels, &admitted).min_by_key(|tunnel| tunnel.cost()).cloned()
    }

    fn insert(&self, cluster: ClusterId, tunnel: TunnelAtPeer) {
        self.0.entry(cluster).or_default().push(tunnel);
    }

    fn remove(&self, cluster: &ClusterId, ticket: u64) {
        self.0.remove_if_mut(cluster, |_, tunnels| {
            tunnels.retain(|tunnel| tunnel.ticket() != ticket);
            tunnels.is_empty()
        });
    }
}

impl Registry {
    /// Registers the session of another server, which tells of its tunnels by [`PeerRegistration::apply`].
    pub fn peer_joined(&self, session: PeerSession) -> PeerRegistration {
        let ticket = self.next_ticket();
        self.0.peer_sessions.insert(ticket, Arc::clone(&session.0.status));
        PeerRegistration { registry: self.clone(), session, ticket, tunnels: HashMap::new(), unnamed: None }
    }

    /// The tunnels of this server, as it tells the other ones of them.
    #[must_use]
    pub fn own_tunnels(&self) -> Vec<RemoteTunnel> {
        let tunnels = self.0.by_cluster.iter();
        tunnels.flat_map(|of_cluster| of_cluster.entries().iter().map(told).collect::<Vec<_>>()).collect()
    }
}

impl PeerRegistration {
    /// Takes the other server's word about its tunnels.
    ///
    /// # Errors
    /// [`TooManyTunnels`]. The session has to be closed.
    pub fn apply(&mut self, delta: PoolDelta) -> Result<(), TooManyTunnels> {
        let PoolDelta { is_full, revision: _, added, removed, is_done } = delta;
        if is_full {
            self.unnamed = Some(self.tunnels.keys().copied().collect());
        }
        for told in added {
            if let Some(unnamed) = &mut self.unnamed {
                unnamed.remove(&told.number);
            }
            self.add(told)?;
        }
        removed.into_iter().for_each(|number| self.remove(number));
        if is_done && let Some(unnamed) = self.unnamed.take() {
            unnamed.into_iter().for_each(|number| self.remove(number));
        }
        self.session.0.status.tunnels.store(self.tunnels.len(), Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn session(&self) -> &PeerSession {
        &self.session
    }

    /// Takes the other server's word about itself.
    pub fn set_status(&self, status: PeerStatus) {
        self.session.0.status.set_status(status);
    }

    /// Takes the other server's clock, in milliseconds since 1970.
    pub fn set_clock(&self, unix_millis: u64) {
        self.session.0.status.set_clock(unix_millis, SystemTime::now());
    }

    /// The other server is stopping, so nothing new begins there.
    pub fn drain(&mut self) {
        self.session.0.status.is_draining.store(true, Ordering::Relaxed);
        self.state_changed();
    }

    /// The state of the session has changed, and with it that of all tunnels behind it.
    pub fn state_changed(&self) {
        for tunnel in self.tunnels.values() {
            tunnel.update_live();
            // Exchanges check for a successor now.
            tunnel.wake();
            self.registry.changed(tunnel.told().agent.cluster());
        }
    }

    fn add(&mut self, told: RemoteTunnel) -> Result<(), TooManyTunnels> {
        let cluster = told.agent.cluster().clone();
        if let Some(known) = self.tunnels.get(&told.number)
            && *known.told().agent.cluster() == cluster
        {
            let was_on_probation = known.told().is_on_probation;
            if known.tell(told) {
                self.registry.changed(&cluster);
            }
            let told = known.told();
            if told.is_on_probation != was_on_probation {
                self.registry.look_again(&told);
            }
            return Ok(());
        }
        self.remove(told.number);
        if self.tunnels.len() >= SERVER_TUNNELS_MAX {
            return Err(TooManyTunnels);
        }
        let is_live = told.is_live && self.session.is_live();
        let (number, since) = (told.number, is_live.then(Instant::now));
        let tunnel = TunnelAtPeer(Arc::new(SharedTunnelAtPeer {
            session: self.session.clone(),
            ticket: self.registry.next_ticket(),
            last_word: Mutex::new(LastWord { told: Arc::new(told), live_since: since }),
            live: OnceLock::new(),
        }));
        self.registry.0.at_peers.insert(cluster.clone(), tunnel.clone());
        let told = tunnel.told();
        self.tunnels.insert(number, tunnel);
        self.registry.changed(&cluster);
        self.registry.look_again(&told);
        Ok(())
    }

    fn remove(&mut self, number: u64) {
        if let Some(tunnel) = self.tunnels.remove(&number) {
            tunnel.set_live(false);
            let told = tunnel.told();
            self.registry.0.at_peers.remove(told.agent.cluster(), tunnel.ticket());
            self.registry.changed(told.agent.cluster());
        }
    }
}

impl Drop for PeerRegistration {
    fn drop(&mut self) {
        let numbers: Vec<u64> = self.tunnels.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.remove(number));
        self.session.questions().end();
        self.registry.0.peer_sessions.remove(self.ticket);
    }
}

/// The usable ones of these tunnels, whose agents are `admitted`.
fn usable_of<'t>(
    tunnels: &'t [TunnelAtPeer],
    admitted: &impl Fn(&RemoteTunnel) -> bool,
) -> impl Iterator<Item = &'t TunnelAtPeer> {
    tunnels.iter().filter(move |tunnel| tunnel.is_usable() && admitted(&tunnel.told()))
}

fn told(entry: &TunnelEntry<RegisteredTunnel>) -> RemoteTunnel {
    let RegisteredTunnel { tunnel, credential, sequence, version, capabilities, .. } = &entry.tunnel;
    let since = entry.since.duration_since(UNIX_EPOCH).ok();
    RemoteTunnel {
        number: entry.ticket,
        agent: entry.agent.clone(),
        boot: entry.boot,
        sequence: *sequence,
        serial: credential.serial.clone(),
        issued: credential.issued.0,
        advertised: entry.tunnel.advertised(),
        is_live: tunnel.health() == Health::Live,
        is_on_probation: entry.on_probation,
        is_draining: tunnel.is_draining(),
        distance: tunnel.min_rtt(),
        streams_open: tunnel.streams_open(),
        version: version.as_ref().to_owned(),
        since: since.map(|since| since.as_secs()),
        capabilities: *capabilities,
    }
}
