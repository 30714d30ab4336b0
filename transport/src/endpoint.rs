//! Endpoints: the server's, which accepts and judges greetings, and the agent's, which dials and greets.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::greeting::{self, GREETING_MAX, Greeting};
use proto::session::SILENCE_MAX;
use proto::spiffe::AgentId;
use proto::wire::{Hello, Refused, Welcome, control_frame::Frame, refused::Reason};
use proto::{CloseCode, Session};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, ConnectionError, Incoming, VarInt};
use rustls::pki_types::CertificateDer;
use tokio::time::timeout;

use crate::control::{ControlStream, Driver};
use crate::error::TunnelEnded;
use crate::keys::EndpointKeys;
use crate::runtime::{Owned, Spawn};
use crate::settings::{self, HANDSHAKE_MAX, Side};
use crate::tls::{self, Material, TlsError};
use crate::tunnel::Tunnel;
use crate::{cid, socket};

const _: () = assert!(cid::CID_BYTES <= 20, "RFC 9000, section 17.2");

/// A server's number in connection IDs. Servers that share agents have different ones; an agent's is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServerNumber(pub u16);

/// One UDP socket and the connections on it.
#[derive(Clone)]
pub struct Endpoint {
    quic: quinn::Endpoint,
}

/// Why an endpoint cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The address cannot be bound.
    #[error("UDP {address} cannot be bound")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[from] TlsError),
}

/// An agent that knocks: nothing of it is verified yet.
pub struct Arriving {
    incoming: Incoming,
}

/// An agent whose certificate was verified.
pub struct Arrived {
    connection: Connection,
    chain: Vec<CertificateDer<'static>>,
}

/// Why an agent did not come as far as a tunnel.
#[derive(Debug, thiserror::Error)]
pub enum GreetError {
    /// The handshake or the greeting took too long.
    #[error("no greeting within the deadline")]
    TooSlow,
    /// The handshake failed: no certificate, or not one of the agents' root, most likely.
    #[error("the handshake failed")]
    Handshake(#[source] ConnectionError),
    /// The agent's first frame is not a Hello.
    #[error("the first frame is not a Hello")]
    NotAHello,
    /// The connection broke in the greeting.
    #[error("the connection broke in the greeting")]
    Broke(#[from] TunnelEnded),
    /// The greeting was refused with this message.
    #[error("refused: {0}")]
    Refused(String),
}

/// A tunnel that an agent has dialed.
pub struct Dialed {
    /// The tunnel.
    pub tunnel: Tunnel,
    /// What speaks for it.
    pub driver: Driver,
    /// What the server said.
    pub welcome: Welcome,
}

/// Why a dial did not come as far as a tunnel.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name is not one that a certificate could bear.
    #[error("{0:?} is not a server name")]
    Name(String),
    /// Nothing answered.
    #[error("no answer: check that UDP to this address is allowed, and that the server runs")]
    NoAnswer,
    /// The server's certificate was not accepted, or the server did not accept ours.
    #[error("the handshake failed: {0}")]
    Handshake(String),
    /// The greeting took too long.
    #[error("no Welcome within the deadline")]
    TooSlow,
    /// The server refused the greeting.
    #[error("refused by the server: {}", .0.message)]
    Refused(Refused),
    /// The server's first frame is neither Welcome nor Refused.
    #[error("the server's first frame is not a Welcome")]
    NotAWelcome,
    /// The connection broke in the greeting.
    #[error("the connection broke in the greeting")]
    Broke(#[from] TunnelEnded),
    /// The local side failed.
    #[error("cannot dial")]
    Local(#[source] io::Error),
}

impl Endpoint {
    /// A server's endpoint. Agents must show a certificate of `material.peer_roots`.
    ///
    /// # Errors
    /// `EndpointError`.
    pub fn serve(
        address: SocketAddr,
        material: Material,
        keys: &EndpointKeys,
        number: ServerNumber,
        spawn: Arc<dyn Spawn>,
    ) -> Result<Self, EndpointError> {
        let crypto = QuicServerConfig::try_from(tls::server(material)?)
            .map_err(|error| TlsError::Provider(rustls::Error::General(error.to_string())))?;
        let server = settings::server(Arc::new(crypto), keys);
        Self::bind(address, Some(server), keys, number, spawn)
    }

    /// An agent's endpoint on a free port. One for each tunnel: a change of the socket then concerns that tunnel only.
    ///
    /// # Errors
    /// `EndpointError`.
    pub fn dialing(
        address: SocketAddr,
        keys: &EndpointKeys,
        spawn: Arc<dyn Spawn>,
    ) -> Result<Self, EndpointError> {
        Self::bind(address, None, keys, ServerNumber::default(), spawn)
    }

    fn bind(
        address: SocketAddr,
        server: Option<quinn::ServerConfig>,
        keys: &EndpointKeys,
        number: ServerNumber,
        spawn: Arc<dyn Spawn>,
    ) -> Result<Self, EndpointError> {
        let in_vain = |source| EndpointError::Bind { address, source };
        let socket = socket::bind(address).map_err(in_vain)?;
        let config = settings::endpoint(keys, number.0);
        let quic = quinn::Endpoint::new(config, server, socket, Arc::new(Owned(spawn))).map_err(in_vain)?;
        Ok(Self { quic })
    }

    /// The address that was bound.
    ///
    /// # Errors
    /// Where the system does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.quic.local_addr()
    }

    /// The next agent that knocks; `None` once the endpoint was closed. Cancel-safe.
    pub async fn accept(&self) -> Option<Arriving> {
        self.quic.accept().await.map(|incoming| Arriving { incoming })
    }

    /// Dials, shakes hands and greets.
    ///
    /// # Errors
    /// `DialError`, within `HANDSHAKE_MAX` + `GREETING_MAX`.
    pub async fn dial(
        &self,
        address: SocketAddr,
        server_name: &str,
        tls: &DialTls,
        hello: Hello,
    ) -> Result<Dialed, DialError> {
        let connecting = self
            .quic
            .connect_with(tls.0.clone(), address, server_name)
            .map_err(|error| dial_refused(&error, server_name))?;
        let connection = match timeout(HANDSHAKE_MAX, connecting).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(handshake_failed(error)),
            Err(_) => return Err(DialError::NoAnswer),
        };
        match timeout(GREETING_MAX, greet_server(&connection, hello)).await {
            Ok(Ok((stream, welcome))) => {
                let silence_max = Duration::from_millis(welcome.silence_max_ms.into());
                let (tunnel, driver) =
                    Driver::new(connection, stream, Session::new(Instant::now(), silence_max));
                Ok(Dialed { tunnel, driver, welcome })
            }
            Ok(Err(error)) => {
                let reason = connection.close_reason();
                close(&connection);
                // A certificate that the server does not accept shows only now, as a close in place of a Welcome.
                match (reason, error) {
                    (Some(reason @ ConnectionError::ConnectionClosed(_)), DialError::Broke(_)) => {
                        Err(handshake_failed(reason))
                    }
                    (_, error) => Err(error),
                }
            }
            Err(_) => {
                close(&connection);
                Err(DialError::TooSlow)
            }
        }
    }

    /// Closes the endpoint and every connection on it, and waits until the other sides were told.
    pub async fn close(&self, code: CloseCode) {
        self.quic.close(VarInt::from_u32(code.number()), code.to_string().as_bytes());
        // A peer that does not answer must not hold this up: three probe timeouts of a slow link.
        let _ = timeout(Duration::from_secs(1), self.quic.wait_idle()).await;
    }
}

/// An agent's TLS, made once and used for every dial.
#[derive(Clone)]
pub struct DialTls(ClientConfig);

impl DialTls {
    /// Builds it.
    ///
    /// # Errors
    /// `TlsError`.
    pub fn new(material: Material) -> Result<Self, TlsError> {
        let crypto = QuicClientConfig::try_from(tls::agent(material)?)
            .map_err(|error| TlsError::Provider(rustls::Error::General(error.to_string())))?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(settings::connection(Side::Agent)));
        Ok(Self(config))
    }
}

impl Arriving {
    /// Where it knocks from; not verified unless `is_validated`.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.incoming.remote_address()
    }

    /// Whether the address was shown to be the sender's.
    #[must_use]
    pub fn is_validated(&self) -> bool {
        self.incoming.remote_address_validated()
    }

    /// Asks the sender to show that the address is its own (RFC 9000, section 8.1.2), at the cost of a round trip.
    pub fn retry(self) {
        // Only an address that was validated cannot be asked again.
        let _ = self.incoming.retry();
    }

    /// Turns the sender away.
    pub fn refuse(self) {
        self.incoming.refuse();
    }

    /// Shakes hands. The connection's driver is spawned from the task that awaits this: that is the tunnel's home.
    ///
    /// # Errors
    /// `TooSlow` after `HANDSHAKE_MAX`, or `Handshake`.
    pub async fn shake_hands(self) -> Result<Arrived, GreetError> {
        let connecting = self.incoming.accept().map_err(GreetError::Handshake)?;
        let connection = match timeout(HANDSHAKE_MAX, connecting).await {
            Ok(shaken) => shaken.map_err(GreetError::Handshake)?,
            Err(_) => return Err(GreetError::TooSlow),
        };
        let chain = connection.peer_identity().and_then(|chain| chain.downcast().ok());
        let chain: Vec<CertificateDer<'static>> = chain.map(|chain| *chain).unwrap_or_default();
        Ok(Arrived { connection, chain })
    }
}

impl Arrived {
    /// The agent's verified certificate, leaf first.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// Where the agent is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.connection.remote_address()
    }

    /// Ends the connection of an agent whose certificate says nothing useful, with a sentence for its log.
    pub fn turn_away(self, reason: &str) {
        self.connection.close(VarInt::from_u32(CloseCode::NotGreeted.number()), reason.as_bytes());
    }

    /// Reads the agent's greeting, judges it against the identity from its certificate, and answers.
    ///
    /// `may_enter` has the last word: a limit, or a server that is stopping.
    ///
    /// # Errors
    /// `GreetError`; the connection is closed then.
    pub async fn greet(
        self,
        agent: &AgentId,
        server_id: &str,
        software: &str,
        may_enter: impl FnOnce(&Greeting) -> Result<(), (Reason, String)>,
    ) -> Result<(Tunnel, Driver, Greeting), GreetError> {
        let greeted =
            timeout(GREETING_MAX, greet_agent(&self.connection, agent, server_id, software, may_enter)).await;
        match greeted {
            Ok(Ok((stream, greeting))) => {
                let (tunnel, driver) =
                    Driver::new(self.connection, stream, Session::new(Instant::now(), SILENCE_MAX));
                Ok((tunnel, driver, greeting))
            }
            Ok(Err(error)) => {
                close(&self.connection);
                Err(error)
            }
            Err(_) => {
                close(&self.connection);
                Err(GreetError::TooSlow)
            }
        }
    }
}

async fn greet_server(connection: &Connection, hello: Hello) -> Result<(ControlStream, Welcome), DialError> {
    let pair = connection.open_bi().await.map_err(TunnelEnded::from)?;
    let mut stream = ControlStream::new(pair);
    stream.write(Frame::Hello(hello)).await?;
    loop {
        match stream.read().await?.frame {
            Some(Frame::Welcome(welcome)) if greeting::VERSIONS.contains(&welcome.version) => {
                return Ok((stream, welcome));
            }
            Some(Frame::Refused(refused)) => return Err(DialError::Refused(refused)),
            // A newer server's frame that may be ignored.
            None => {}
            Some(_) => return Err(DialError::NotAWelcome),
        }
    }
}

async fn greet_agent(
    connection: &Connection,
    agent: &AgentId,
    server_id: &str,
    software: &str,
    may_enter: impl FnOnce(&Greeting) -> Result<(), (Reason, String)>,
) -> Result<(ControlStream, Greeting), GreetError> {
    let pair = connection.accept_bi().await.map_err(TunnelEnded::from)?;
    let mut stream = ControlStream::new(pair);
    let Some(Frame::Hello(hello)) = stream.read().await?.frame else {
        return Err(GreetError::NotAHello);
    };
    let judged = greeting::judge(hello, agent).and_then(|greeting| {
        may_enter(&greeting).map_err(|(reason, message)| greeting::refuse(reason, message))?;
        Ok(greeting)
    });
    match judged {
        Ok(greeting) => {
            let welcome = greeting::welcome(&greeting, server_id, software, SILENCE_MAX);
            stream.write(Frame::Welcome(welcome)).await?;
            Ok((stream, greeting))
        }
        Err(refused) => {
            let message = refused.message.clone();
            stream.write(Frame::Refused(refused)).await?;
            stream.finish().await;
            Err(GreetError::Refused(message))
        }
    }
}

fn close(connection: &Connection) {
    let code = CloseCode::NotGreeted;
    connection.close(VarInt::from_u32(code.number()), code.to_string().as_bytes());
}

fn dial_refused(error: &quinn::ConnectError, server_name: &str) -> DialError {
    use quinn::ConnectError;
    match error {
        ConnectError::InvalidServerName(_) => DialError::Name(server_name.to_owned()),
        ConnectError::EndpointStopping
        | ConnectError::CidsExhausted
        | ConnectError::InvalidRemoteAddress(_)
        | ConnectError::NoDefaultClientConfig
        | ConnectError::UnsupportedVersion => DialError::Local(io::Error::other(error.to_string())),
    }
}

fn handshake_failed(error: ConnectionError) -> DialError {
    match error {
        ConnectionError::TimedOut => DialError::NoAnswer,
        ConnectionError::ConnectionClosed(close) => {
            DialError::Handshake(format!("the server closed it: {close}; check the agent's certificate"))
        }
        ConnectionError::TransportError(error) => DialError::Handshake(error.to_string()),
        error @ (ConnectionError::VersionMismatch
        | ConnectionError::ApplicationClosed(_)
        | ConnectionError::Reset
        | ConnectionError::LocallyClosed
        | ConnectionError::CidsExhausted) => DialError::Handshake(error.to_string()),
    }
}
