//! The TCP listeners. They accept, select the TLS configuration by the ClientHello, shake hands under a
//! deadline, and hand each connection to a home.

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

/// The pause after the system has refused an accept. It is long enough for other connections to close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The limits of a listener on connections and handshakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Most connections at once, including those in a handshake.
    pub connections_max: usize,
    /// Most handshakes in progress at once.
    pub handshakes_max: usize,
    /// The longest time from the accept to the end of the handshake.
    pub handshake: Duration,
    /// The limits of one source without a client certificate, if there are any.
    pub source: Option<PerSourceLimits>,
}

/// A bound TCP socket with its TLS configurations.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: ListenerTls,
    limits: ListenerLimits,
    counters: Arc<Counters>,
}

/// The TLS configurations of a listener, each with a client CA of its own; see [`tls`]. A client that offers
/// the tunnel's protocol (ALPN) is an agent, and every other client is a caller.
#[derive(Debug, Clone, Default)]
pub struct ListenerTls {
    /// The configuration for callers. Each handshake uses its current value.
    pub callers: Option<watch::Receiver<Arc<ServerConfig>>>,
    /// The configuration for agents whose network blocks UDP.
    pub agents: Option<Arc<ServerConfig>>,
}

impl ListenerTls {
    /// A configuration for callers only, whose certificate never changes.
    #[must_use]
    pub fn callers_only(tls: ServerConfig) -> Self {
        // The sender is dropped, because this certificate never changes.
        Self { callers: Some(watch::channel(Arc::new(tls)).1), agents: None }
    }
}

/// The protocol that the handshake has agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgreedProtocol {
    /// HTTP/1.1 in the connection to the caller.
    Http1,
    /// HTTP/2 in the connection to the caller.
    Http2,
    /// The tunnel protocol from an agent.
    Tunnel,
}

/// A connection after its handshake. It counts against the listener's limit until its permit is dropped.
#[derive(Debug)]
pub struct AcceptedConnection {
    /// The connection, registered with the runtime of `home`.
    pub stream: TlsStream<TcpStream>,
    /// The remote address of the connection.
    pub peer: SocketAddr,
    /// The client certificate, leaf first, verified against the CA of its TLS configuration; `None` if the
    /// client sent none.
    pub peer_certificates: Option<Vec<CertificateDer<'static>>>,
    /// The protocol that the handshake has agreed on.
    pub protocol: AgreedProtocol,
    /// The home that serves the connection.
    pub home: Home,
    /// The permit of this connection; hold it as long as the connection.
    pub permit: ConnectionPermit,
}

/// A connection of an agent, with a certificate of the agents' CA. Only
/// [`AcceptedConnection::into_peer_stream`] makes one.
#[derive(Debug)]
pub struct AgentStream {
    /// The TLS connection to the agent.
    stream: TlsStream<TcpStream>,
    peer: SocketAddr,
}

/// A connection of a caller. Only [`AcceptedConnection::into_peer_stream`] makes one.
#[derive(Debug)]
pub struct CallerStream {
    stream: TlsStream<TcpStream>,
    peer: SocketAddr,
    peer_certificates: Option<Vec<CertificateDer<'static>>>,
    is_http2: bool,
}

/// A connection, typed by its peer, so that callers and agents cannot be confused.
#[derive(Debug)]
pub enum PeerStream {
    /// A connection of an agent.
    Agent(AgentStream),
    /// A connection of a caller.
    Caller(CallerStream),
}

/// The permit of one connection among [`ListenerLimits::connections_max`]. The limit covers the connection
/// until this is dropped.
#[derive(Debug)]
#[must_use = "the connection is no longer counted when this is dropped"]
pub struct ConnectionPermit {
    _permit: OwnedSemaphorePermit,
    /// The share of its source's limits, if the client sent no certificate.
    _source: Option<SourceGuard>,
}

/// The use that a connection makes of its source's limits, until this is dropped.
#[derive(Debug)]
struct SourceGuard {
    counters: Arc<Counters>,
    admission: Option<SourceAdmission>,
}

impl AcceptedConnection {
    /// Splits the connection into its typed stream, its home and its permit.
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
    /// The connection and its remote address.
    #[must_use]
    pub fn into_parts(self) -> (TlsStream<TcpStream>, SocketAddr) {
        (self.stream, self.peer)
    }
}

impl CallerStream {
    /// The remote address of the connection.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The server name that the client asked for in the handshake.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.stream.get_ref().1.server_name()
    }

    /// The client certificate, leaf first, verified against the callers' CA; `None` if the client sent none.
    #[must_use]
    pub fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.peer_certificates.as_deref()
    }

    /// Returns true if the handshake has agreed on HTTP/2.
    #[must_use]
    pub fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// The TLS connection to the caller.
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
    /// Listens on `address` with the TLS configurations `tls`. `key` is the configuration key of the address.
    ///
    /// # Errors
    ///
    /// [`BindError`], whose message names the key and the address.
    pub fn bind(
        key: &'static str,
        address: SocketAddr,
        tls: ListenerTls,
        limits: ListenerLimits,
    ) -> Result<Self, BindError> {
        let (socket, address) = bind(address).map_err(|source| BindError::new(key, address, source))?;
        Ok(Self { socket, address, tls, limits, counters: Arc::new(Counters::new(limits)) })
    }

    /// The bound address, with the port that the system chose if 0 was configured.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The listener's counters, which can be read while it runs.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Accepts until `scope` drains, then closes the socket. Each connection gets a task on the next home.
    /// That task does the handshake and drives the future that `accepted` returns.
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
            // Both arms are cancel-safe: an accept takes nothing unless it is ready. Biased, so that many
            // new connections do not delay a drain.
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
                    // The newest connection is closed, and the existing ones are served.
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

    /// Does the handshake of `pending` on `home`, and continues there with `accepted`.
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
                    debug!(%peer, error = %daemon::error_chain(&error), "handshake failed");
                }
            }
        });
    }
}

/// An accepted connection before its handshake.
struct PendingConnection {
    stream: TcpStream,
    peer: SocketAddr,
    permit: OwnedSemaphorePermit,
    source: SourceGuard,
    /// Resolves when another connection of the same source takes its slot. Only connections that must show a
    /// certificate wait for it.
    displaced: oneshot::Receiver<()>,
    handshake: OwnedSemaphorePermit,
}

impl SourceGuard {
    fn must_show_certificate(&self) -> bool {
        self.admission.is_some_and(SourceAdmission::must_show_certificate)
    }

    /// Releases the use of the source's limits, because a certificate was shown.
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
    // A restarted server can bind the port at once, although old connections are still in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let socket = socket.listen(BACKLOG)?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// Returns true if the error concerns only one connection, so that the next accept may succeed (`accept(2)`).
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}
