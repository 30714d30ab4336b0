//! The accepting side of a new connection: handshake, certificate, greeting.

mod agent;
mod peer;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::greeting::{BootNonce, GREETING_MAX, Greeting, ServerInfo};
use proto::peering::{PeerGreeting, PeerInfo};
use proto::session::Protocol;
use proto::spiffe::AgentId;
use proto::wire::{Refused, control_frame::Frame, refused::Reason};
use proto::{CloseCode, Session};
use quinn::{ConnectionError, ServerConfig};
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::carrier::{Connection, http2};
use crate::control::{ControlStream, Driver};
use crate::error::TunnelEnded;
use crate::path_mtu;
use crate::probe::Probe;
use crate::runtime::Spawn;
use crate::settings::{self, HANDSHAKE_MAX, Side};
use crate::tls;
use crate::tunnel::Tunnel;
use agent::AgentGreeter;
use peer::PeerGreeter;

/// An incoming connection of an agent or a server, before its handshake: nothing of it is verified yet.
pub struct Incoming {
    incoming: quinn::Incoming,
    server: ServerConfig,
    silence_max: Duration,
}

/// A connection of an agent or a server whose certificate was verified, before its greeting.
pub struct AcceptedConnection {
    connection: Connection,
    chain: Vec<CertificateDer<'static>>,
    silence_max: Duration,
}

/// The reason why an incoming connection did not become a tunnel.
#[derive(Debug, thiserror::Error)]
pub enum GreetError {
    /// The handshake or the greeting took too long.
    #[error("no greeting within the deadline")]
    TooSlow,
    /// The handshake failed: no certificate, or not one of the clients' root, most likely.
    #[error("the handshake failed")]
    Handshake(#[source] ConnectionError),
    /// The first frame is not a Hello of the protocol.
    #[error("the first frame is not a Hello")]
    NotAHello,
    /// The connection broke in the greeting.
    #[error("the connection broke in the greeting")]
    Broke(#[from] TunnelEnded),
    /// The greeting was refused with this message.
    #[error("refused: {0}")]
    Refused(String),
    /// The greeting asked for no tunnel, but only whether the agent's certificate is accepted.
    #[error("the connection was checked by {software}, with the certificate of {agent}")]
    Checked {
        /// The agent of the verified certificate.
        agent: AgentId,
        /// Name and version of the sender's software, printable.
        software: String,
    },
}

/// One protocol's part of a greeting: judges the first frame, and makes the answer.
trait Greeter {
    /// The protocol of the session that follows.
    const PROTOCOL: Protocol;

    /// The accepted greeting, for the caller.
    type Greeting;

    /// Judges the first frame. `silence_max` is the limit of this side.
    fn judge(
        self,
        first: Option<Frame>,
        silence_max: Duration,
    ) -> Result<AcceptedGreeting<Self::Greeting>, NotAccepted>;
}

/// A greeting that was accepted, with the answer to send.
struct AcceptedGreeting<G> {
    greeting: G,
    welcome: Frame,
    /// The silence after which both sides give the tunnel up.
    silence_max: Duration,
}

/// A greeting that was not accepted.
enum NotAccepted {
    /// The frame opens no session of this protocol, so nothing is answered.
    NotAHello,
    /// The frame to answer, and the error for the caller.
    Refused(Refused, GreetError),
}

impl Incoming {
    /// Wraps quinn's incoming connection. `server` is the endpoint's configuration, in which each tunnel gets
    /// parameters of its own.
    pub(crate) fn new(incoming: quinn::Incoming, server: ServerConfig, silence_max: Duration) -> Self {
        Self { incoming, server, silence_max }
    }

    /// The sender's address; not verified unless `is_validated`.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.incoming.remote_address()
    }

    /// Returns true if the sender has proved that the address is its own.
    #[must_use]
    pub fn is_validated(&self) -> bool {
        self.incoming.remote_address_validated()
    }

    /// Asks the sender to prove that the address is its own (RFC 9000, section 8.1.2), at the cost of a round
    /// trip.
    pub fn retry(self) {
        // Fails only for an address that is validated already.
        let _ = self.incoming.retry();
    }

    /// Refuses the connection without a handshake.
    pub fn refuse(self) {
        self.incoming.refuse();
    }

    /// Completes the handshake. The connection's driver is spawned from the task that awaits this: its
    /// runtime is the tunnel's home.
    ///
    /// # Errors
    /// `TooSlow` after `HANDSHAKE_MAX`, or `Handshake`.
    pub async fn handshake(self) -> Result<AcceptedConnection, GreetError> {
        let Self { incoming, mut server, silence_max } = self;
        let probe = Probe::new();
        let packet_bytes = path_mtu::packet_bytes(incoming.remote_address());
        let tunnel = settings::connection(Side::Server, &probe, silence_max, packet_bytes);
        server.transport_config(Arc::new(tunnel));
        let connecting = incoming.accept_with(Arc::new(server)).map_err(GreetError::Handshake)?;
        let connection = match timeout(HANDSHAKE_MAX, connecting).await {
            Ok(shaken) => shaken.map_err(GreetError::Handshake)?,
            Err(_) => return Err(GreetError::TooSlow),
        };
        let chain = connection.peer_identity().and_then(|chain| chain.downcast().ok());
        let chain: Vec<CertificateDer<'static>> = chain.map(|chain| *chain).unwrap_or_default();
        Ok(AcceptedConnection { connection: Connection::Quic(connection, probe), chain, silence_max })
    }
}

impl AcceptedConnection {
    /// Takes over a TCP connection after its TLS handshake, which has verified the client's certificate.
    ///
    /// `silence` is the server's limit, see [`Endpoint::silence_max`](crate::Endpoint::silence_max); an
    /// agent's limit may be shorter. The connection's driver is spawned from the task that awaits this: its
    /// runtime is the tunnel's home.
    ///
    /// # Errors
    /// `TooSlow` after `HANDSHAKE_MAX`, or `Broke`.
    pub async fn from_tls_stream(
        mut stream: TlsStream<TcpStream>,
        peer: SocketAddr,
        silence: Duration,
        spawn: &dyn Spawn,
    ) -> Result<Self, GreetError> {
        let broke =
            |error: &dyn std::fmt::Display| GreetError::Broke(TunnelEnded::Carrier(error.to_string()));
        http2::socket(stream.get_ref().0).map_err(|error| broke(&error))?;
        let shaken = stream.get_mut().1;
        shaken.set_buffer_limit(Some(http2::TLS_BYTES));
        let chain = shaken.peer_certificates().unwrap_or_default();
        let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        let exporter = tls::exporter(shaken);
        let (connection, driver) = timeout(HANDSHAKE_MAX, http2::Http2Connection::server(stream, peer))
            .await
            .map_err(|_| GreetError::TooSlow)?
            .map_err(|error| broke(&error))?;
        spawn.spawn(Box::pin(driver));
        Ok(Self {
            connection: Connection::Http2(connection.exporting(exporter)),
            chain,
            silence_max: silence,
        })
    }

    /// The client's verified certificate, leaf first.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The client's address and port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.connection.peer_address()
    }

    /// Closes the connection of a client whose certificate cannot be used, with a sentence for its log.
    pub fn turn_away(self, reason: &str) {
        self.connection.close_with(CloseCode::NotGreeted, reason);
    }

    /// Reads the agent's greeting, checks it against the identity from its certificate, and answers.
    ///
    /// `may_enter` decides last about the process with this nonce: it may refuse for a limit, or because the
    /// server is stopping. An agent that only checks its connection is told such a refusal, too.
    ///
    /// # Errors
    /// `GreetError`; the connection is closed then.
    pub async fn greet(
        self,
        agent: &AgentId,
        server_info: &ServerInfo,
        may_enter: impl FnOnce(BootNonce) -> Result<(), (Reason, String)>,
    ) -> Result<(Tunnel, Driver, Greeting), GreetError> {
        self.greet_by(AgentGreeter { agent, server_info, may_enter }).await
    }

    /// The same for another server. `certified_id` is the ID from its certificate, and `own` is this server.
    ///
    /// `may_enter` decides last about the server that greets: it may refuse one that is not registered, or not any more.
    /// The tunnel opens streams towards the other server, and accepts none.
    ///
    /// # Errors
    /// `GreetError`; the connection is closed then.
    pub async fn greet_peer(
        self,
        certified_id: &str,
        own: &PeerInfo,
        may_enter: impl FnOnce(&PeerGreeting) -> Result<(), (Reason, String)>,
    ) -> Result<(Tunnel, Driver, PeerGreeting), GreetError> {
        self.greet_by(PeerGreeter { certified_id, own, may_enter }).await
    }

    async fn greet_by<G: Greeter>(self, greeter: G) -> Result<(Tunnel, Driver, G::Greeting), GreetError> {
        let greeted = timeout(GREETING_MAX, self.answer(greeter)).await;
        match greeted {
            Ok(Ok((stream, AcceptedGreeting { greeting, silence_max, .. }))) => {
                let session = Session::with_protocol(G::PROTOCOL, Instant::now(), silence_max);
                let (tunnel, driver) = Driver::new(self.connection, stream, session, Side::Server);
                Ok((tunnel, driver, greeting))
            }
            Ok(Err(error)) => {
                self.connection.close(CloseCode::NotGreeted);
                Err(error)
            }
            Err(_) => {
                self.connection.close(CloseCode::NotGreeted);
                Err(GreetError::TooSlow)
            }
        }
    }

    /// Reads the first frame and sends the greeter's answer to it.
    async fn answer<G: Greeter>(
        &self,
        greeter: G,
    ) -> Result<(ControlStream, AcceptedGreeting<G::Greeting>), GreetError> {
        let mut stream = ControlStream::new(self.connection.control(Side::Server).await?);
        let first = stream.read().await?.frame;
        match greeter.judge(first, self.silence_max) {
            Ok(accepted) => {
                stream.write(accepted.welcome.clone()).await?;
                Ok((stream, accepted))
            }
            Err(NotAccepted::NotAHello) => Err(GreetError::NotAHello),
            Err(NotAccepted::Refused(refused, error)) => {
                stream.write(Frame::Refused(refused)).await?;
                stream.finish().await;
                Err(error)
            }
        }
    }
}
