//! The agents' door: accepts, verifies, greets and enlists tunnels, and drives each until it ends.

mod entry;
mod extension;
mod knocks;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use daemon::metrics::links::Links;
use daemon::{Home, Scope, chain};
use futures::FutureExt as _;
use futures::future::Fuse;
use proto::CloseCode;
use proto::greeting::{Greeting, Host};
use proto::spiffe::AgentId;
use proto::wire::Extension;
use proto::wire::refused::Reason;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::{debug, info, warn};
use transport::{Arrived, Arriving, Driver, Endpoint, GreetError, Spawn, Tunnel, TunnelEnded, TunnelEvent};

use crate::config::AgentLimits;
use crate::directory::{AgentCredential, Directory};
use crate::identity::{self, AgentCertificate, Verified};
use crate::listener::AgentStream;
use crate::metrics;
use crate::registry::{Enlisted, NotEnlisted, Probed, Registry};
use entry::Entry;
use knocks::Knocks;

/// The agents' door.
#[derive(Clone)]
pub struct Reception(Arc<Inner>);

struct Inner {
    endpoint: Endpoint,
    registry: Registry,
    trust_domain: String,
    host: Host,
    /// Given with each greeting, as it stands then.
    trust_bundle: watch::Receiver<Arc<[u8]>>,
    links: Links,
    spawn: Arc<dyn Spawn>,
    limits: AgentLimits,
    handshakes: AtomicUsize,
    knocks: Mutex<Knocks>,
    /// Everything that still needs the endpoint.
    connections: TaskTracker,
}

/// An agent that came by one carrier or the other.
enum Knocking {
    /// It shakes hands.
    Quic(Box<Arriving>),
    /// It has shaken hands, because its carrier was chosen then.
    Tcp(Box<TlsStream<TcpStream>>, SocketAddr),
}

/// One handshake in progress.
struct Handshake(Arc<Inner>);

/// A tunnel before it is enlisted.
struct Greeted {
    tunnel: Tunnel,
    driver: Driver,
    greeting: Greeting,
    credential: AgentCredential,
    /// When its certificate ends.
    ends: SystemTime,
}

impl Reception {
    /// A door at `endpoint` of `host`, which gives a trust bundle to agents of `trust_domain`, whose tunnels are counted in
    /// `links`; so many come at once as `limits` has it. What drives those that come by TCP goes to `spawn`.
    #[must_use]
    pub fn new(
        endpoint: Endpoint,
        registry: Registry,
        links: Links,
        trust_domain: String,
        (host, trust_bundle): (Host, watch::Receiver<Arc<[u8]>>),
        limits: AgentLimits,
        spawn: Arc<dyn Spawn>,
    ) -> Self {
        Self(Arc::new(Inner {
            endpoint,
            registry,
            trust_domain,
            host,
            trust_bundle,
            links,
            spawn,
            limits,
            handshakes: AtomicUsize::new(0),
            knocks: Mutex::new(Knocks::new(limits, Instant::now())),
            connections: TaskTracker::new(),
        }))
    }

    /// Accepts agents until the drain begins; then tells those that come when to come again, until every tunnel has ended
    /// and every agent was told. Tunnels are placed on the homes in turn.
    pub async fn run(self, scope: Scope) {
        let draining = scope.draining();
        tokio::pin!(draining);
        // Both arms are cancel-safe: an agent that was not accepted stays in the endpoint's queue.
        tokio::select! {
            () = self.accept(&scope) => {}
            () = &mut draining => {}
        }
        self.0.connections.close();
        // As above.
        tokio::select! {
            () = self.accept(&scope) => {}
            () = self.0.connections.wait() => {}
        }
        self.0.endpoint.close(CloseCode::Stopping).await;
    }

    /// Receives an agent that came to a TCP door on `home`, from its greeting to its tunnel's end.
    pub async fn receive(self, stream: AgentStream, home: Home, scope: &Scope) {
        let in_progress = self.0.handshakes.fetch_add(1, Ordering::Relaxed);
        let handshake = Handshake(Arc::clone(&self.0));
        match Entry::of(self.0.limits, in_progress, true, true) {
            Entry::Granted => {
                let connection = Some(self.0.connections.token());
                let (stream, peer) = stream.into_parts();
                let knocking = Knocking::Tcp(Box::new(stream), peer);
                handshake.receive(knocking, home, scope.clone(), connection).await;
            }
            // TCP has shown that the address is its own.
            Entry::AddressFirst | Entry::Refused => {}
        }
    }

    /// Handshakes and greetings of agents in progress.
    #[must_use]
    pub fn handshakes(&self) -> usize {
        self.0.handshakes.load(Ordering::Relaxed)
    }

    /// Lets agents in, until the endpoint is closed. Cancel-safe.
    async fn accept(&self, scope: &Scope) {
        let mut turn = 0;
        while let Some(arriving) = self.0.endpoint.accept().await {
            self.admit(arriving, scope, turn);
            turn += 1;
        }
    }

    /// Lets one more handshake begin, if there are not too many.
    fn admit(&self, arriving: Arriving, scope: &Scope, turn: usize) {
        let in_progress = self.0.handshakes.fetch_add(1, Ordering::Relaxed);
        let handshake = Handshake(Arc::clone(&self.0));
        let is_easy = {
            let mut knocks = self.0.knocks.lock().unwrap_or_else(PoisonError::into_inner);
            knocks.is_easy(arriving.address().ip(), Instant::now())
        };
        match Entry::of(self.0.limits, in_progress, arriving.is_validated(), is_easy) {
            Entry::Refused => arriving.refuse(),
            Entry::AddressFirst => arriving.retry(),
            Entry::Granted => {
                let (home, scope_within) = (scope.home_for(turn), scope.clone());
                // Who is only told to come again holds no drain up.
                let connection = (!scope.is_draining()).then(|| self.0.connections.token());
                let knocking = Knocking::Quic(Box::new(arriving));
                scope.spawn_on(home, handshake.receive(knocking, home, scope_within, connection));
            }
        }
    }
}

impl Knocking {
    fn address(&self) -> SocketAddr {
        match self {
            Self::Quic(arriving) => arriving.address(),
            Self::Tcp(_, peer) => *peer,
        }
    }

    /// Who it is, verified.
    async fn arrived(self, inner: &Inner) -> Result<Arrived, GreetError> {
        match self {
            Self::Quic(arriving) => arriving.shake_hands().await,
            Self::Tcp(stream, peer) => {
                Arrived::over_tcp(*stream, peer, inner.endpoint.silence_max(), &*inner.spawn).await
            }
        }
    }
}

impl Handshake {
    /// From the knock to the tunnel's end.
    async fn receive(
        self,
        knocking: Knocking,
        home: Home,
        scope: Scope,
        _connection: Option<TaskTrackerToken>,
    ) {
        let from = knocking.address();
        let inner = Arc::clone(&self.0);
        match self.greet(knocking, &scope).await {
            Ok(greeted) => inner.serve(greeted, home, &scope).await,
            Err(error) => {
                metrics::greeting_failed(&error);
                match error {
                    // Somebody configured this agent, so somebody wants to know.
                    GreetError::Refused(reason) => warn!(%from, reason, "an agent was refused"),
                    error @ (GreetError::TooSlow
                    | GreetError::Handshake(_)
                    | GreetError::NotAHello
                    | GreetError::Broke(_)) => {
                        debug!(%from, error = %chain(&error), "no tunnel came of a connection");
                    }
                }
            }
        }
    }

    async fn greet(self, knocking: Knocking, scope: &Scope) -> Result<Greeted, GreetError> {
        let inner = &self.0;
        let arrived = knocking.arrived(inner).await?;
        let shown = match identity::agent_identity(arrived.chain(), &inner.trust_domain) {
            Ok(shown) => shown,
            Err(error) => {
                let reason = chain(&error).to_string();
                arrived.turn_away(&reason);
                return Err(GreetError::Refused(reason));
            }
        };
        let credential = credential(&shown);
        let may_enter = |greeting: &Greeting| {
            if scope.is_draining() {
                return Err((Reason::Draining, "this server is stopping; dial again".to_owned()));
            }
            let may_enter = inner.registry.may_enter(&greeting.agent, &credential);
            may_enter.map_err(|not| (reason(&not), not.to_string()))
        };
        let trust_bundle = inner.trust_bundle.borrow().to_vec();
        let host = Host { trust_bundle, ..inner.host.clone() };
        let (tunnel, driver, greeting) = arrived.greet(&shown.agent, &host, may_enter).await?;
        Ok(Greeted { tunnel, driver, greeting, credential, ends: shown.ends })
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.0.handshakes.fetch_sub(1, Ordering::Relaxed);
    }
}

/// By what an agent that came in is found again.
fn credential(shown: &Verified<AgentCertificate>) -> AgentCredential {
    AgentCredential { serial: shown.serial.clone(), issued: shown.issued.into() }
}

impl Inner {
    /// Enlists a greeted tunnel and drives it until it ends.
    async fn serve(&self, greeted: Greeted, home: Home, scope: &Scope) {
        let Greeted { tunnel, driver, greeting, credential, ends } = greeted;
        let agent = &greeting.agent;
        let enlisted = match self.registry.enlist(&greeting, credential, tunnel.clone(), home) {
            Ok(enlisted) => enlisted,
            Err(not) => {
                warn!(%agent, "a tunnel was refused: {not}");
                metrics::tunnel_without_place();
                tunnel.close(match not {
                    NotEnlisted::Full(_) => CloseCode::NotGreeted,
                    NotEnlisted::NotAdmitted(_) => CloseCode::Revoked,
                });
                return;
            }
        };
        // Before anything is waited for: requests reach it from now on.
        let counted = {
            let tunnel = tunnel.clone();
            let carrier = tunnel.carrier().as_str();
            self.links.open(agent.cluster().as_str(), carrier, move || metrics::figures(&tunnel))
        };
        if enlisted.is_first()
            && let Err(error) = self.registry.save().await
        {
            warn!(error = %chain(&error), "could not write down that a cluster was met");
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
        let held = Held { tunnel: &tunnel, enlisted: &enlisted, agent, directory: self.registry.directory() };
        let ended = held.drive(driver, ends, scope).await;
        // In this order: nobody is routed to it any more, and then it counts as gone.
        drop(enlisted);
        drop(counted);
        metrics::tunnel_ended(&ended);
        info!(%agent, lasted = ?began.elapsed(), reason = %chain(&ended), "tunnel closed");
    }
}

/// Why an agent is refused in its greeting.
fn reason(not: &NotEnlisted) -> Reason {
    match not {
        NotEnlisted::Full(_) => Reason::Limit,
        NotEnlisted::NotAdmitted(_) => Reason::Revoked,
    }
}

/// An enlisted tunnel.
struct Held<'t> {
    tunnel: &'t Tunnel,
    enlisted: &'t Enlisted,
    agent: &'t AgentId,
    directory: &'t Directory,
}

impl Held<'_> {
    /// Drives the tunnel until it ends: by itself, or some minutes after its certificate `ends`, unless a newer one is shown.
    async fn drive(&self, driver: Driver, ends: SystemTime, scope: &Scope) -> TunnelEnded {
        let Self { tunnel, enlisted, agent, .. } = self;
        let asked = Asked::default();
        let driving = driver.run(|event| match event {
            TunnelEvent::Health(health) => {
                info!(%agent, ?health, "tunnel's health changed");
                enlisted.close_left_behind();
                enlisted.health_changed(health);
            }
            TunnelEvent::PeerDrains => {
                info!(%agent, "the agent is stopping");
                enlisted.drains();
            }
            TunnelEvent::Endpoints(advertised) => enlisted.advertise(advertised),
            TunnelEvent::Extension(extension) => asked.put(extension),
        });
        let probing = enlisted.probe();
        let lasting = sleep(extension::lasts(ends, SystemTime::now()));
        let extending = Fuse::terminated();
        tokio::pin!(driving, probing, lasting, extending);
        let (mut probed, mut drains, mut is_over) = (false, false, false);
        loop {
            // All arms are cancel-safe: each is polled by reference, and what an agent asked for is kept until it is taken.
            tokio::select! {
                ended = &mut driving => return ended,
                found = &mut probing, if !probed => {
                    probed = true;
                    match found {
                        Probed::Alone => {}
                        Probed::Refused => turn_away(tunnel, agent),
                        Probed::Preferred => tell_of_copy(tunnel, agent, "the earlier one is turned away"),
                    }
                }
                extension = asked.take() => {
                    let judged = extension::judge(self.directory, agent, tunnel.exporter(), extension);
                    extending.set(judged.fuse());
                }
                extended = &mut extending => {
                    if let Some(until) = self.extended(extended) {
                        lasting.as_mut().reset(tokio::time::Instant::now() + until);
                    }
                }
                () = &mut lasting, if !is_over => {
                    is_over = true;
                    warn!(%agent, "the certificate with which a tunnel was opened has ended, and no newer one was shown");
                    tunnel.close(CloseCode::Expired);
                }
                () = scope.draining(), if !drains => {
                    drains = true;
                    tunnel.begin_drain();
                }
            }
        }
    }

    /// Notes a newer certificate; for how long the tunnel lasts with it.
    fn extended(&self, extended: Option<extension::Extended>) -> Option<Duration> {
        let agent = self.agent;
        let Some(extension::Extended { credential, ends }) = extended else {
            warn!(%agent, "an agent has shown a newer certificate without proof that it is its own");
            return None;
        };
        self.enlisted.extend(credential.clone());
        if let Err(not) = self.directory.admits(agent, &credential) {
            warn!(%agent, "a tunnel was not extended: {not}");
            self.tunnel.close(CloseCode::Revoked);
            return None;
        }
        info!(%agent, serial = credential.serial, "a tunnel was extended by a newer certificate");
        Some(extension::lasts(ends, SystemTime::now()))
    }
}

/// What an agent asks for, the newest alone.
#[derive(Default)]
struct Asked {
    newest: Mutex<Option<Extension>>,
    put: Notify,
}

impl Asked {
    fn put(&self, extension: Extension) {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(extension);
        self.put.notify_one();
    }

    /// Cancel-safe: what was not taken is still there.
    async fn take(&self) -> Extension {
        loop {
            let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(newest) = newest {
                return newest;
            }
            self.put.notified().await;
        }
    }
}

/// Ends the tunnel of a process that has shown another one's certificate. The other one came first and is left alone.
fn turn_away(tunnel: &Tunnel, agent: &AgentId) {
    tell_of_copy(tunnel, agent, "the later one is turned away");
    tunnel.close(CloseCode::KeyCopied);
}

/// Raises the alarm; `tunnel` is the later one's.
fn tell_of_copy(tunnel: &Tunnel, agent: &AgentId, so: &str) {
    warn!(
        %agent,
        address = %tunnel.peer_address(),
        "two processes use one certificate at the same time: {so}; if it was not given to two agents, it was stolen, and \
         both need new ones"
    );
    metrics::key_copied();
}
