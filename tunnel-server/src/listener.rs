//! The TLS listeners. They select the TLS configuration by the ClientHello, shake hands under a deadline, and hand
//! each connection to a home.

use std::net::SocketAddr;
use std::sync::Arc;

use daemon::listen::{GuardedConnection, GuardedListener, LaneProof, ListenerEvent};
use daemon::{BindError, Home, Scope};
use rustls::ServerConfig;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;
use tracing::debug;

pub(crate) mod accept_loop;
pub(crate) mod failed_attempts;
mod handshake;
pub mod tls;
pub mod unix_socket;
pub(crate) mod windowed_counts;

pub use daemon::listen::{ConnectionPermit, CounterValues, Counters, ListenerLimits, PerSourceLimits};
use handshake::{CompletedHandshake, HandshakeError};

/// A bound TCP socket with its TLS configurations.
#[derive(Debug)]
pub struct Listener {
    socket: GuardedListener,
    tls: ListenerTls,
    limits: ListenerLimits,
}

/// The TLS configurations of a listener, each with a client CA of its own; see [`tls`]. A client that offers
/// the tunnel's protocol (ALPN) is an agent, and every other client is a caller.
#[derive(Debug, Clone, Default)]
pub struct ListenerTls {
    /// The configuration for callers. Each handshake uses its current value.
    pub callers: Option<watch::Receiver<Arc<ServerConfig>>>,
    /// The configuration for agents whose network blocks UDP; at the port for other servers, the one for these.
    pub agents: Option<Arc<ServerConfig>>,
    /// Verifies certificates after the handshake, which accepts every one; see [`tls::for_enrollment`]. A
    /// certificate that it refuses counts as none.
    pub optional: Option<Arc<dyn ClientCertVerifier>>,
}

impl ListenerTls {
    /// A configuration for callers only, whose own value never changes. The certificate and the verifier in it may.
    #[must_use]
    pub fn callers_only(tls: ServerConfig) -> Self {
        // The sender is dropped, because nothing replaces this configuration.
        Self::callers_by_newest(watch::channel(Arc::new(tls)).1)
    }

    /// A configuration for callers only. Each handshake uses the newest value of `tls`.
    #[must_use]
    pub fn callers_by_newest(tls: watch::Receiver<Arc<ServerConfig>>) -> Self {
        Self { callers: Some(tls), ..Self::default() }
    }
}

/// The protocol that the handshake has agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgreedProtocol {
    /// HTTP/1.1 in the connection to the caller.
    Http1,
    /// HTTP/2 in the connection to the caller.
    Http2,
    /// The tunnel protocol from an agent, or from another server.
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
        Ok(Self { socket: GuardedListener::bind(key, address, limits)?, tls, limits })
    }

    /// The bound address, with the port that the system chose if 0 was configured.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.socket.address()
    }

    /// The listener's counters, which can be read while it runs.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        self.socket.counters()
    }

    /// Accepts until `scope` drains, then closes the socket. Each connection gets a task on the next home.
    /// That task does the handshake and drives the future that `accepted` returns.
    pub async fn run<F>(
        self,
        scope: Scope,
        accepted: impl Fn(AcceptedConnection) -> F + Clone + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut homes = scope.homes_in_turn();
        let mut draining = std::pin::pin!(scope.draining());
        loop {
            // Both arms are cancel-safe: an accept takes nothing unless it is ready. Biased, so that many
            // new connections do not delay a drain.
            let connection = tokio::select! {
                biased;
                () = &mut draining => return,
                connection = self.socket.next() => connection,
            };
            let home = homes();
            let serving = Shaking { tls: self.tls.clone(), limits: self.limits, counters: self.counters() };
            scope.spawn_on(home, serving.serve(connection, home, accepted.clone()));
        }
    }
}

/// The part of a listener that the task of a connection needs.
struct Shaking {
    tls: ListenerTls,
    limits: ListenerLimits,
    counters: Arc<Counters>,
}

impl Shaking {
    /// Does the handshake of a connection on `home`, and continues there with `accepted`.
    async fn serve<F>(
        self,
        connection: GuardedConnection,
        home: Home,
        accepted: impl Fn(AcceptedConnection) -> F + Send,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let GuardedConnection { stream, peer, permit, handshake, mut expulsion } = connection;
        let done = handshake::accept(stream, &self.tls, self.limits.handshake);
        let done = expulsion.unless_expelled(done).await.unwrap_or(Err(HandshakeError::Displaced));
        drop(handshake);
        let CompletedHandshake { stream, peer_certificates, protocol } = match done {
            Ok(done) => done,
            Err(error) => {
                let is_displaced = matches!(error, HandshakeError::Displaced);
                self.counters.count(if is_displaced {
                    ListenerEvent::SourceLimited
                } else {
                    ListenerEvent::HandshakeFailed
                });
                debug!(%peer, error = %daemon::error_chain(&error), "handshake failed");
                return;
            }
        };
        if let Some(leaf) = peer_certificates.as_ref().and_then(|chain| chain.first()) {
            if let Err(limited) = permit.certified(leaf) {
                debug!(%peer, error = %limited, "closed a new connection");
                return;
            }
        } else if expulsion.must_prove() && self.limits.proof == LaneProof::Certificate {
            self.counters.count(ListenerEvent::SourceLimited);
            debug!(%peer, "too many connections of its source, closed one without a certificate");
            return;
        }
        self.counters.count(ListenerEvent::Accepted);
        let serving =
            accepted(AcceptedConnection { stream, peer, peer_certificates, protocol, home, permit });
        if expulsion.unless_expelled(serving).await.is_none() {
            self.counters.count(ListenerEvent::SourceLimited);
            debug!(%peer, "too many connections of its source, closed one without a credential");
        }
    }
}
