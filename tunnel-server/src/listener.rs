//! The TCP tls: accepts, picks the door from the ClientHello, shakes hands under a deadline, hands each connection to a home.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::{BindError, Home, Scope};
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::time::sleep;
use tokio_rustls::server::TlsStream;
use tracing::{debug, warn};

pub(crate) mod accept_loop;
mod counters;
pub(crate) mod failed_attempts;
mod handshake;
pub(crate) mod source_limits;
pub mod tls;
pub mod unix_socket;
pub(crate) mod windowed_counts;

pub use counters::{CounterValues, Counters};
use handshake::{CompletedHandshake, HandshakeError};
pub use source_limits::PerSourceLimits;
use source_limits::{PROVING_TIME_MAX, SourceAdmission};

/// Connections that may wait in the kernel to be accepted; the kernel's own bound is `net.core.somaxconn`.
const BACKLOG: u32 = 1024;

/// How long nothing is accepted after the system refused: long enough that something may be closed meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How many of what at once, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Connections, those that shake hands included.
    pub connections_max: usize,
    /// Handshakes in progress.
    pub handshakes_max: usize,
    /// From accept to the end of the handshake.
    pub handshake: Duration,
    /// What one source may take of these without a certificate, if that is bounded.
    pub source: Option<PerSourceLimits>,
}

/// A bound TCP socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: ListenerTls,
    limits: ListenerLimits,
    counters: Arc<Counters>,
}

/// Who may come to a socket, each with a TLS configuration of their own and so with one CA; see [`tls`]. Whoever offers the
/// tunnel's protocol (ALPN) comes to the agents' door, and everybody else to the callers'.
#[derive(Debug, Clone, Default)]
pub struct ListenerTls {
    /// Callers. Each handshake uses the configuration that stands there at that time.
    pub callers: Option<watch::Receiver<Arc<ServerConfig>>>,
    /// Agents whose UDP is blocked.
    pub agents: Option<Arc<ServerConfig>>,
}

impl ListenerTls {
    /// The callers' alone, with a certificate that was read at the start and stays.
    #[must_use]
    pub fn callers_only(tls: ServerConfig) -> Self {
        // The sender is dropped: nobody exchanges it.
        Self { callers: Some(watch::channel(Arc::new(tls)).1), agents: None }
    }
}

/// What was agreed on in a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgreedProtocol {
    /// By a caller.
    Http1,
    /// By a caller.
    Http2,
    /// By an agent.
    Tunnel,
}

/// A connection after its handshake. It holds one of the listener's places until it is dropped.
#[derive(Debug)]
pub struct AcceptedConnection {
    /// The connection, registered with the home on which it was handed over.
    pub stream: TlsStream<TcpStream>,
    /// The other side's address.
    pub peer: SocketAddr,
    /// The other side's certificate, leaf first, verified against the CA of its door; `None` if it showed none.
    pub peer_certificates: Option<Vec<CertificateDer<'static>>>,
    /// What the connection is for.
    pub protocol: AgreedProtocol,
    /// Where it was handed over.
    pub home: Home,
    /// The permit among the connections that are counted; hold it as long as the connection.
    pub permit: ConnectionPermit,
}

/// A connection that came in by the agents' door, with a certificate of their CA. Only [`AcceptedConnection::entered`] makes one.
#[derive(Debug)]
pub struct AgentStream {
    /// The connection.
    stream: TlsStream<TcpStream>,
    peer: SocketAddr,
}

/// A connection that came in by the callers' door. Only [`AcceptedConnection::entered`] makes one.
#[derive(Debug)]
pub struct CallerStream {
    stream: TlsStream<TcpStream>,
    peer: SocketAddr,
    peer_certificates: Option<Vec<CertificateDer<'static>>>,
    is_http2: bool,
}

/// A connection, handed to the door by which it came and to no other: each takes its own kind.
#[derive(Debug)]
pub enum PeerStream {
    /// An agent's.
    Agent(AgentStream),
    /// A caller's.
    Caller(CallerStream),
}

/// One of the places that [`ListenerLimits::connections_max`] gives. A limit lasts as long as what it limits.
#[derive(Debug)]
#[must_use = "the connection is no longer counted when this is dropped"]
pub struct ConnectionPermit {
    _permit: OwnedSemaphorePermit,
    /// Of one who showed no certificate.
    _source: Option<SourceGuard>,
}

/// What a connection takes of its source, until it is dropped.
#[derive(Debug)]
struct SourceGuard {
    counters: Arc<Counters>,
    admission: Option<SourceAdmission>,
}

impl AcceptedConnection {
    /// The connection by the door through which it came, with its home and its permit.
    pub fn into_peer_stream(self) -> (PeerStream, Home, ConnectionPermit) {
        let Self { stream, peer, peer_certificates, protocol, home, permit } = self;
        let entered = match protocol {
            AgreedProtocol::Tunnel => PeerStream::Agent(AgentStream { stream, peer }),
            AgreedProtocol::Http1 | AgreedProtocol::Http2 => PeerStream::Caller(CallerStream {
                stream,
                peer,
                peer_certificates,
                is_http2: protocol == AgreedProtocol::Http2,
            }),
        };
        (entered, home, permit)
    }
}

impl AgentStream {
    /// The connection, and the other side's address.
    #[must_use]
    pub fn into_parts(self) -> (TlsStream<TcpStream>, SocketAddr) {
        (self.stream, self.peer)
    }
}

impl CallerStream {
    /// The other side's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The name that was asked for in the handshake.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.stream.get_ref().1.server_name()
    }

    /// The other side's certificate, leaf first, verified against the callers' CA; `None` if it showed none.
    #[must_use]
    pub fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.peer_certificates.as_deref()
    }

    /// Whether HTTP/2 was agreed on.
    #[must_use]
    pub fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// The connection.
    #[must_use]
    pub fn into_stream(self) -> TlsStream<TcpStream> {
        self.stream
    }
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            handshakes_max: 2_000,
            handshake: Duration::from_secs(10),
            source: None,
        }
    }
}

impl Listener {
    /// Listens on `address`, which stands at `key` in the configuration, for who may come to one of `tls`.
    ///
    /// # Errors
    ///
    /// [`BindError`], in words for the person who wrote the address.
    pub fn bind(
        key: &'static str,
        address: SocketAddr,
        tls: ListenerTls,
        limits: ListenerLimits,
    ) -> Result<Self, BindError> {
        let (socket, address) = bind(address).map_err(|source| BindError::new(key, address, source))?;
        Ok(Self { socket, address, tls, limits, counters: Arc::new(Counters::new(limits)) })
    }

    /// Where it listens, with the port that the system chose if 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it counters, also while it runs.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Accepts until `scope` drains, then closes the socket. Each connection gets a task of its own on the next home;
    /// there the handshake is done, and what `accepted` returns is driven to its end.
    pub async fn run<F>(
        self,
        scope: Scope,
        accepted: impl Fn(AcceptedConnection) -> F + Clone + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send,
    {
        let mut homes = scope.homes_in_turn();
        let mut draining = std::pin::pin!(scope.draining());
        let mut is_paused = false;
        loop {
            // Both arms are cancel-safe: an accept takes nothing unless it is ready. Biased, so that a flood of
            // connections does not hold a drain up.
            let accepted_stream = tokio::select! {
                biased;
                () = &mut draining => return,
                accepted_stream = self.socket.accept() => accepted_stream,
            };
            match accepted_stream {
                Ok((stream, peer)) => {
                    is_paused = false;
                    let permit = Arc::clone(&self.counters.connections).try_acquire_owned();
                    let handshake = Arc::clone(&self.counters.handshakes).try_acquire_owned();
                    // The newest is the one to go: those who are in are served.
                    let (Ok(permit), Ok(handshake)) = (permit, handshake) else {
                        Counters::increment(&self.counters.turned_away);
                        debug!(%peer, "too many connections or handshakes, closed a new one");
                        continue;
                    };
                    let Some((source, displaced)) = self.counters.admit_source(peer) else { continue };
                    let home = homes();
                    let pending = PendingConnection { stream, peer, permit, source, displaced, handshake };
                    self.hand_over(&scope, home, pending, accepted.clone());
                }
                Err(error) if concerns_one_connection(&error) => {
                    Counters::increment(&self.counters.accept_failed)
                }
                Err(error) => {
                    Counters::increment(&self.counters.accept_failed);
                    if !is_paused {
                        warn!(%error, "cannot accept connections for now, trying again");
                        is_paused = true;
                    }
                    // Both arms are cancel-safe: neither holds anything.
                    tokio::select! {
                        () = &mut draining => return,
                        () = sleep(ACCEPT_PAUSE) => {}
                    }
                }
            }
        }
    }

    /// Shakes hands with `pending` on `home` and goes on there with what `accepted` makes of it.
    fn hand_over<F>(
        &self,
        scope: &Scope,
        home: Home,
        pending: PendingConnection,
        accepted: impl Fn(AcceptedConnection) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send,
    {
        let (tls, limits, counters) = (self.tls.clone(), self.limits, self.counters());
        scope.spawn_on(home, async move {
            let PendingConnection { stream, peer, permit, mut source, displaced, handshake } = pending;
            let must_show_certificate = source.must_show_certificate();
            let limit =
                if must_show_certificate { limits.handshake.min(PROVING_TIME_MAX) } else { limits.handshake };
            let done = handshake::accept(stream, &tls, limit);
            // Both arms are cancel-safe: a handshake that is dropped closes its connection.
            let done = tokio::select! {
                done = done => done,
                _ = displaced, if must_show_certificate => Err(HandshakeError::Displaced),
            };
            drop(handshake);
            match done {
                Ok(CompletedHandshake { peer_certificates: None, .. }) if must_show_certificate => {
                    Counters::increment(&counters.source_limited);
                    debug!(%peer, "too many connections of its source, closed one without a certificate");
                }
                Ok(CompletedHandshake { stream, peer_certificates, protocol }) => {
                    Counters::increment(&counters.accepted);
                    if peer_certificates.is_some() {
                        source.certified();
                    }
                    let permit = ConnectionPermit { _permit: permit, _source: Some(source) };
                    accepted(AcceptedConnection { stream, peer, peer_certificates, protocol, home, permit })
                        .await;
                }
                Err(error) => {
                    Counters::increment(&counters.handshake_failed);
                    debug!(%peer, error = %daemon::chain(&error), "handshake failed");
                }
            }
        });
    }
}

/// A connection before its handshake.
struct PendingConnection {
    stream: TcpStream,
    peer: SocketAddr,
    permit: OwnedSemaphorePermit,
    source: SourceGuard,
    /// Resolves when another of its source takes its permit, where it has to prove itself.
    displaced: oneshot::Receiver<()>,
    handshake: OwnedSemaphorePermit,
}

impl SourceGuard {
    fn must_show_certificate(&self) -> bool {
        self.admission.is_some_and(SourceAdmission::must_show_certificate)
    }

    /// A certificate was shown: it takes nothing of its source any more.
    fn certified(&mut self) {
        if let (Some(admission), Some(mut sources)) = (self.admission.take(), self.counters.sources()) {
            sources.certified(admission, Instant::now());
        }
    }
}

impl Drop for SourceGuard {
    fn drop(&mut self) {
        if let (Some(admission), Some(mut sources)) = (self.admission.take(), self.counters.sources()) {
            sources.released(admission);
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restarted server takes the port over at once, though old connections are still in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let socket = socket.listen(BACKLOG)?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// Whether the next accept may well succeed at once, `accept(2)`: the other side hung up while it waited.
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}
