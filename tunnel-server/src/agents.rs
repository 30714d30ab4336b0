//! The agents' listener: accepts, verifies, greets and registers tunnels, and drives each until it ends.

mod admission;
mod handshake_rate;
mod refusal;
mod tunnel_lifetime;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use daemon::metrics::links::Links;
use daemon::{Home, Scope, error_chain};
use futures::FutureExt as _;
use futures::future::Fuse;
use proto::CloseCode;
use proto::greeting::{Greeting, ServerInfo};
use proto::server_list::ServerList;
use proto::spiffe::AgentId;
use proto::wire::Extension;
use proto::wire::refused::Reason;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::task::coop;
use tokio::time::sleep;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::{info, warn};
use transport::{
    AcceptedConnection, Driver, Endpoint, GreetError, Incoming, Spawn, Tunnel, TunnelEnded, TunnelEvent,
};

use crate::config::AgentLimits;
use crate::directory::{AgentCredential, Directory};
use crate::identity::{self, AgentCertificate, Verified};
use crate::listener::AgentStream;
use crate::metrics;
use crate::registry::{DuplicateCheck, Registration, Registry, SILENT_BESIDE_LIVE_MAX};
use admission::Admission;
use handshake_rate::HandshakeRate;
use refusal::NotGreeted;

/// The agents' listener for QUIC and TCP. Clones share one listener.
#[derive(Clone)]
pub struct AgentListener(Arc<SharedAgentListener>);

struct SharedAgentListener {
    endpoint: Endpoint,
    registry: Registry,
    trust_domain: String,
    host: ServerInfo,
    /// The trust bundle that is sent with each greeting, as it is at that time.
    trust_bundle: watch::Receiver<Arc<[u8]>>,
    links: Links,
    spawn: Arc<dyn Spawn>,
    limits: AgentLimits,
    handshakes: AtomicUsize,
    handshake_rate: Mutex<HandshakeRate>,
    /// Counts the connections that still need the endpoint.
    connections: TaskTracker,
}

/// An agent that arrived over one of the two carriers.
enum IncomingAgent {
    /// A QUIC connection whose handshake is in progress.
    Quic(Box<Incoming>),
    /// A TCP connection after its TLS handshake, in which the carrier was chosen.
    Tcp(Box<TlsStream<TcpStream>>, SocketAddr),
}

/// One handshake in progress, counted until it is dropped.
struct Handshake(Arc<SharedAgentListener>);

/// A greeted tunnel that is not registered yet.
struct GreetedTunnel {
    tunnel: Tunnel,
    driver: Driver,
    greeting: Greeting,
    credential: AgentCredential,
    /// The expiry of the agent's certificate.
    ends: SystemTime,
    /// The list of servers. The agent was told of the last change that was seen here.
    servers: watch::Receiver<Arc<ServerList>>,
}

impl AgentListener {
    /// Creates a listener at `endpoint` for agents of `trust_domain`. It introduces itself as `host`, sends a
    /// trust bundle, counts tunnels in `links`, and accepts as many handshakes at once as `limits` allow.
    /// `spawn` runs the drivers of TCP connections.
    #[must_use]
    pub fn new(
        endpoint: Endpoint,
        registry: Registry,
        links: Links,
        trust_domain: String,
        (host, trust_bundle): (ServerInfo, watch::Receiver<Arc<[u8]>>),
        limits: AgentLimits,
        spawn: Arc<dyn Spawn>,
    ) -> Self {
        Self(Arc::new(SharedAgentListener {
            endpoint,
            registry,
            trust_domain,
            host,
            trust_bundle,
            links,
            spawn,
            limits,
            handshakes: AtomicUsize::new(0),
            handshake_rate: Mutex::new(HandshakeRate::new(limits, Instant::now())),
            connections: TaskTracker::new(),
        }))
    }

    /// Accepts agents until the drain begins. Then it asks arriving agents to come back later, until every
    /// tunnel has ended and every agent was notified. Tunnels are assigned to the homes in turn.
    pub async fn run(self, scope: Scope) {
        let draining = scope.draining();
        tokio::pin!(draining);
        // Both arms are cancel-safe: an agent that was not accepted stays in the endpoint's queue.
        tokio::select! {
            () = self.accept(&scope) => {}
            () = &mut draining => {}
        }
        self.0.connections.close();
        // Both arms are cancel-safe, as above.
        tokio::select! {
            () = self.accept(&scope) => {}
            () = self.0.connections.wait() => {}
        }
        self.0.endpoint.close(CloseCode::Stopping).await;
    }

    /// Serves an agent that arrived over TCP on `home`, from its greeting to its tunnel's end.
    pub async fn receive(self, stream: AgentStream, home: Home, scope: &Scope) {
        let in_progress = self.0.handshakes.fetch_add(1, Ordering::Relaxed);
        let handshake = Handshake(Arc::clone(&self.0));
        match Admission::decide(self.0.limits, in_progress, true, true) {
            Admission::Accept => {
                let connection = Some(self.0.connections.token());
                let (stream, peer) = stream.into_parts();
                let incoming = IncomingAgent::Tcp(Box::new(stream), peer);
                handshake.receive(incoming, home, scope.clone(), connection).await;
            }
            // TCP has already proved the source address.
            Admission::Retry | Admission::Refuse => {}
        }
    }

    /// The number of agents whose handshake or greeting is in progress.
    #[must_use]
    pub fn handshakes(&self) -> usize {
        self.0.handshakes.load(Ordering::Relaxed)
    }

    /// Accepts agents until the endpoint is closed. Cancel-safe.
    async fn accept(&self, scope: &Scope) {
        let mut turn = 0;
        while let Some(arriving) = self.0.endpoint.accept().await {
            self.admit(arriving, scope, turn);
            turn += 1;
            // Attempts that wait in the queue are always ready.
            coop::consume_budget().await;
        }
    }

    /// Begins one more handshake, unless there are too many.
    fn admit(&self, arriving: Incoming, scope: &Scope, turn: usize) {
        let in_progress = self.0.handshakes.fetch_add(1, Ordering::Relaxed);
        let handshake = Handshake(Arc::clone(&self.0));
        let is_within_rate = {
            let mut rate = self.0.handshake_rate.lock().unwrap_or_else(PoisonError::into_inner);
            rate.allows(arriving.address().ip(), Instant::now())
        };
        match Admission::decide(self.0.limits, in_progress, arriving.is_validated(), is_within_rate) {
            Admission::Refuse => arriving.refuse(),
            Admission::Retry => arriving.retry(),
            Admission::Accept => {
                let (home, scope_within) = (scope.home_for(turn), scope.clone());
                // An agent that is only asked to come back later does not delay the drain.
                let connection = (!scope.is_draining()).then(|| self.0.connections.token());
                let incoming = IncomingAgent::Quic(Box::new(arriving));
                scope.spawn_on(home, handshake.receive(incoming, home, scope_within, connection));
            }
        }
    }
}

impl IncomingAgent {
    fn address(&self) -> SocketAddr {
        match self {
            Self::Quic(arriving) => arriving.address(),
            Self::Tcp(_, peer) => *peer,
        }
    }

    /// Completes the handshake and verifies the agent's certificate.
    async fn accept(self, inner: &SharedAgentListener) -> Result<AcceptedConnection, GreetError> {
        match self {
            Self::Quic(arriving) => arriving.handshake().await,
            Self::Tcp(stream, peer) => {
                AcceptedConnection::from_tls_stream(
                    *stream,
                    peer,
                    inner.endpoint.silence_max(),
                    &*inner.spawn,
                )
                .await
            }
        }
    }
}

impl Handshake {
    /// Serves an agent from the handshake to its tunnel's end.
    async fn receive(
        self,
        incoming: IncomingAgent,
        home: Home,
        scope: Scope,
        _connection: Option<TaskTrackerToken>,
    ) {
        let from = incoming.address();
        let inner = Arc::clone(&self.0);
        match self.greet(incoming, &scope).await {
            Ok(greeted) => inner.serve(greeted, home, &scope).await,
            Err(not) => not.report(from),
        }
    }

    async fn greet(self, incoming: IncomingAgent, scope: &Scope) -> Result<GreetedTunnel, NotGreeted> {
        let inner = &self.0;
        let arrived = incoming.accept(inner).await?;
        let verified = match identity::agent_identity(arrived.chain(), &inner.trust_domain) {
            Ok(verified) => verified,
            Err(error) => {
                let reason = error_chain(&error).to_string();
                arrived.turn_away(&reason);
                return Err(GreetError::Refused(reason).into());
            }
        };
        let credential = credential(&verified);
        let mut reached = None;
        let may_register = |boot| {
            // Before the drain, too: the agent dials another server while this one still serves.
            if scope.is_stopping() {
                return Err((Reason::Draining, "this server is stopping; dial again".to_owned()));
            }
            inner.registry.may_register(&verified.agent, boot, &credential).map_err(|not| {
                reached = refusal::limit(&not);
                (refusal::reason(&not), not.to_string())
            })
        };
        let trust_bundle = inner.trust_bundle.borrow().to_vec();
        let mut servers = inner.registry.directory().server_list();
        let list = (**servers.borrow_and_update()).clone();
        let host = ServerInfo { trust_bundle, servers: list, ..inner.host.clone() };
        match (arrived.greet(&verified.agent, &host, may_register).await, reached) {
            (Ok((tunnel, driver, greeting)), _) => {
                Ok(GreetedTunnel { tunnel, driver, greeting, credential, ends: verified.ends, servers })
            }
            (Err(GreetError::Refused(_)), Some(limit)) => Err(NotGreeted::Full(limit)),
            // A check is told of the limit, and is no agent that was refused.
            (Err(error), _) => Err(error.into()),
        }
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.0.handshakes.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The part of the certificate by which a revocation finds this agent.
fn credential(verified: &Verified<AgentCertificate>) -> AgentCredential {
    AgentCredential { serial: verified.serial.clone(), issued: verified.issued.into() }
}

impl SharedAgentListener {
    /// Registers a greeted tunnel and drives it until it ends.
    async fn serve(&self, greeted: GreetedTunnel, home: Home, scope: &Scope) {
        let GreetedTunnel { tunnel, driver, greeting, credential, ends, servers } = greeted;
        let agent = &greeting.agent;
        let registration = match self.registry.register(&greeting, credential, tunnel.clone(), home) {
            Ok(registration) => registration,
            Err(not) => {
                warn!(%agent, "a tunnel was refused: {not}");
                tunnel.close(refusal::count_refused(&not));
                return;
            }
        };
        // Before the first await, because requests reach the tunnel from now on.
        let counted = {
            let tunnel = tunnel.clone();
            let carrier = tunnel.carrier().as_str();
            self.links.open(agent.cluster().as_str(), carrier, move || metrics::link_figures(&tunnel))
        };
        if registration.is_first()
            && let Err(error) = self.registry.directory().save_new().await
        {
            warn!(error = %error_chain(&error), "could not save that a cluster was seen");
        }
        let began = Instant::now();
        info!(
            %agent,
            address = %tunnel.peer_address(),
            carrier = tunnel.carrier().as_str(),
            software = greeting.software,
            version = greeting.version,
            sequence = greeting.sequence,
            "tunnel opened"
        );
        let served = ServedTunnel {
            tunnel: &tunnel,
            registration: &registration,
            agent,
            directory: self.registry.directory(),
        };
        let ended = served.drive(driver, ends, servers, scope).await;
        // In this order, so that no request is routed to it once it counts as closed.
        drop(registration);
        drop(counted);
        metrics::tunnel_ended(&ended);
        info!(%agent, lasted = ?began.elapsed(), reason = %error_chain(&ended), "tunnel closed");
    }
}

/// A registered tunnel while its driver runs.
struct ServedTunnel<'t> {
    tunnel: &'t Tunnel,
    registration: &'t Registration,
    agent: &'t AgentId,
    directory: &'t Directory,
}

impl ServedTunnel<'_> {
    /// Drives the tunnel until it ends. It also ends some minutes after its certificate `ends`, unless the
    /// agent proves a newer one.
    async fn drive(
        &self,
        driver: Driver,
        ends: SystemTime,
        mut servers: watch::Receiver<Arc<ServerList>>,
        scope: &Scope,
    ) -> TunnelEnded {
        let Self { tunnel, registration, agent, .. } = self;
        let pending = PendingExtension::default();
        let driving = driver.run(|event| match event {
            TunnelEvent::Health(health) => {
                info!(%agent, ?health, "tunnel's health changed");
                registration.close_superseded();
                registration.health_changed(health);
            }
            TunnelEvent::PeerDrains => {
                info!(%agent, "the agent is stopping");
                registration.draining_began();
            }
            TunnelEvent::Endpoints(advertised) => registration.set_advertised(advertised),
            TunnelEvent::Extension(extension) => pending.put(extension),
            TunnelEvent::StreamReport(report) => registration.reported(&report),
            // Only servers ask and list servers, and messages of servers end an agent's tunnel.
            TunnelEvent::StreamQuery(_) | TunnelEvent::Servers(_) | TunnelEvent::Peer(_) => {}
        });
        let probing = registration.check_duplicates(None);
        let lifetime = sleep(tunnel_lifetime::remaining(ends, SystemTime::now()));
        let extending = Fuse::terminated();
        tokio::pin!(driving, probing, lifetime, extending);
        let given_up = registration.given_up();
        tokio::pin!(given_up);
        let (mut is_refused, mut drains, mut is_over, mut is_given_up) = (false, false, false, false);
        loop {
            // All arms are cancel-safe: each is polled by reference, and a pending extension stays until it is taken.
            tokio::select! {
                ended = &mut driving => return ended,
                (found, seen) = &mut probing, if !is_refused => {
                    is_refused = found == DuplicateCheck::NewRefused;
                    match found {
                        DuplicateCheck::NoDuplicate => {}
                        DuplicateCheck::NewRefused => close_duplicate(tunnel, agent),
                        DuplicateCheck::OldReplaced => warn_key_copied(tunnel, agent, "the earlier one is disconnected"),
                    }
                    // Another server may tell of a further process at any time.
                    probing.set(registration.check_duplicates(Some(seen)));
                }
                extension = pending.take() => {
                    let verified = tunnel_lifetime::verify(self.directory, agent, tunnel.exporter(), extension);
                    extending.set(verified.fuse());
                }
                extended = &mut extending => {
                    if let Some(until) = self.extended(extended) {
                        lifetime.as_mut().reset(tokio::time::Instant::now() + until);
                    }
                }
                () = &mut lifetime, if !is_over => {
                    is_over = true;
                    warn!(%agent, "the certificate of a tunnel has expired, and the agent has proved no newer one");
                    tunnel.close(CloseCode::Expired);
                }
                query = registration.query_due() => tunnel.ask(query),
                Ok(()) = servers.changed() => tunnel.tell_servers(&servers.borrow_and_update()),
                () = &mut given_up, if !is_given_up => {
                    is_given_up = true;
                    warn_given_up(tunnel, agent);
                    // In this order, so that the agent is told over the tunnel that lives.
                    registration.tell_closed();
                    tunnel.close(CloseCode::Lost);
                }
                () = scope.draining(), if !drains => {
                    drains = true;
                    tunnel.begin_drain();
                }
            }
        }
    }

    /// Stores a newer certificate. Returns for how long the tunnel lasts with it.
    fn extended(&self, extended: Option<tunnel_lifetime::ProvenExtension>) -> Option<Duration> {
        let agent = self.agent;
        let Some(tunnel_lifetime::ProvenExtension { credential, ends }) = extended else {
            warn!(%agent, "an agent has shown a newer certificate without proof that it holds its key");
            return None;
        };
        self.registration.set_credential(credential.clone());
        if let Err(not) = self.directory.admits(agent, &credential) {
            warn!(%agent, "a tunnel was not extended: {not}");
            self.tunnel.close(CloseCode::Revoked);
            return None;
        }
        info!(%agent, serial = credential.serial, "a tunnel was extended by a newer certificate");
        Some(tunnel_lifetime::remaining(ends, SystemTime::now()))
    }
}

/// The newest extension that an agent has asked for.
#[derive(Default)]
struct PendingExtension {
    newest: Mutex<Option<Extension>>,
    added: Notify,
}

impl PendingExtension {
    fn put(&self, extension: Extension) {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(extension);
        self.added.notify_one();
    }

    /// Cancel-safe: an extension that was not taken stays.
    async fn take(&self) -> Extension {
        loop {
            let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(newest) = newest {
                return newest;
            }
            self.added.notified().await;
        }
    }
}

/// Logs that a silent tunnel is closed, with its exchanges.
fn warn_given_up(tunnel: &Tunnel, agent: &AgentId) {
    warn!(
        %agent,
        carrier = tunnel.carrier().as_str(),
        exchanges = tunnel.streams_open(),
        "a tunnel was silent for {} s while another one of the same agent was not, and is given up",
        SILENT_BESIDE_LIVE_MAX.as_secs()
    );
}

/// Closes the tunnel of a process that uses another one's certificate. The earlier tunnel stays open.
fn close_duplicate(tunnel: &Tunnel, agent: &AgentId) {
    warn_key_copied(tunnel, agent, "the later one is disconnected");
    tunnel.close(CloseCode::KeyCopied);
}

/// Logs and counts that a key is used twice. `tunnel` belongs to the later process.
fn warn_key_copied(tunnel: &Tunnel, agent: &AgentId, outcome: &str) {
    warn!(
        %agent,
        address = %tunnel.peer_address(),
        "two processes use one certificate at the same time: {outcome}; if it was not given to two agents, it was stolen, and \
         both need new ones"
    );
    metrics::key_copied();
}
