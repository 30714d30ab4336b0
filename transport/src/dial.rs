//! The agent's side of a new connection: dial, handshake, greeting.

mod proxy;
mod tcp;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::greeting::{self, GREETING_MAX};
use proto::session::{SILENCE_MAX, SILENCE_MOST};
use proto::wire::{Hello, Refused, Welcome, control_frame::Frame};
use proto::{CloseCode, Session};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, ConnectionError, TransportErrorCode};
use rustls::AlertDescription;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use tokio::time::timeout;

use crate::alert;
use crate::carrier::{Connection, number};
use crate::control::{ControlStream, Driver};
use crate::endpoint::Endpoint;
use crate::error::TunnelEnded;
use crate::path_mtu;
use crate::probe::Probe;
use crate::rebind::Rebinding;
use crate::settings::{self, Side};
use crate::tls::{self, ExpectedServers, Material, TlsError};
use crate::tunnel::Tunnel;

pub use self::proxy::{NotAProxy, Proxy, ProxyError};
pub use self::tcp::{DialPath, dial_tcp};

/// An agent's TLS, made once and used for every dial.
#[derive(Clone)]
pub struct DialTls {
    quic: ClientConfig,
    tcp: Arc<rustls::ClientConfig>,
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
    /// TCP came to no connection, or broke before TLS was agreed on.
    #[error("no TCP connection: check that TCP to this address is allowed, and that the server runs")]
    Tcp(#[source] io::Error),
    /// The proxy on the way opened no connection.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The server refuses the handshake; the reason is its TLS alert in words.
    #[error("the server refuses the handshake: {0}")]
    Rejected(String),
    /// The server's certificate is not what was asked for.
    #[error(
        "the server cannot be trusted: {0}; check tls.serverCAFile and serverName, and that nothing in between opens TLS"
    )]
    Untrusted(String),
    /// The handshake broke.
    #[error("the handshake failed: {0}")]
    Handshake(String),
    /// The server takes nobody at the moment; a later dial may find it, or its successor, otherwise.
    #[error("the server takes no new tunnel at the moment: it is stopping, or holds as many as it may")]
    ServerUnavailable,
    /// The server accepted the certificate and cannot use what it says, for this reason.
    #[error("turned away by the server: {0}")]
    TurnedAway(String),
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

impl DialTls {
    /// Builds it, for dials of the servers that are `meant`.
    ///
    /// # Errors
    /// `TlsError`.
    pub fn new(material: Material, expected: ExpectedServers) -> Result<Self, TlsError> {
        Self::with_clock(material, expected, Arc::new(DefaultTimeProvider))
    }

    /// The same, judging servers' certificates by another clock than the system's.
    ///
    /// # Errors
    /// `TlsError`.
    pub fn with_clock(
        material: Material,
        expected: ExpectedServers,
        clock: Arc<dyn TimeProvider>,
    ) -> Result<Self, TlsError> {
        let tcp = Arc::new(tls::agent(material, expected, clock)?);
        let crypto = QuicClientConfig::try_from(Arc::clone(&tcp))
            .map_err(|error| TlsError::Provider(rustls::Error::General(error.to_string())))?;
        Ok(Self { quic: ClientConfig::new(Arc::new(crypto)), tcp })
    }
}

impl Endpoint {
    /// Dials, shakes hands and greets. The tunnel is held without a sign of life for as long as `hello` and the server bear.
    ///
    /// # Errors
    /// `DialError`, within `handshake_max` + `GREETING_MAX`.
    pub async fn dial(
        &self,
        address: SocketAddr,
        server_name: &str,
        tls: &DialTls,
        hello: Hello,
        handshake_max: Duration,
    ) -> Result<Dialed, DialError> {
        let (probe, mut config) = (Probe::new(), tls.quic.clone());
        let packet_bytes = path_mtu::packet_bytes(address);
        let tunnel = settings::connection(Side::Agent, &probe, silence_limit(&hello), packet_bytes);
        config.transport_config(Arc::new(tunnel));
        let connecting = self
            .quic()
            .connect_with(config, address, server_name)
            .map_err(|error| dial_refused(&error, server_name))?;
        let connection = match timeout(handshake_max, connecting).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(handshake_failed(error)),
            Err(_) => return Err(DialError::NoAnswer),
        };
        let carrier = Connection::Quic(connection.clone(), probe);
        match greet(carrier.clone(), hello).await {
            Ok(dialed) => {
                let endpoint = self.clone();
                let rebinding = Rebinding::new(Box::new(move || endpoint.rebind()), Instant::now());
                Ok(Dialed { driver: dialed.driver.rebinding(rebinding), ..dialed })
            }
            Err(error) => {
                let reason = connection.close_reason();
                carrier.close(CloseCode::NotGreeted);
                Err(greeting_failed(reason, error))
            }
        }
    }
}

/// Greets the server on a connection whose handshake is done. The caller closes it where that comes to nothing.
async fn greet(connection: Connection, hello: Hello) -> Result<Dialed, DialError> {
    let limit = silence_limit(&hello);
    let greeted = timeout(GREETING_MAX, greet_server(&connection, hello)).await;
    let (stream, welcome) = greeted.unwrap_or(Err(DialError::TooSlow))?;
    let session = Session::new(Instant::now(), agreed_silence(&welcome, limit));
    let (tunnel, driver) = Driver::new(connection, stream, session, Side::Agent);
    Ok(Dialed { tunnel, driver, welcome })
}

/// The silence that the agent bears: what it says, or whatever the server does.
fn silence_limit(hello: &Hello) -> Duration {
    match Duration::from_millis(hello.silence_max_ms.into()) {
        Duration::ZERO => SILENCE_MOST,
        ours => ours,
    }
}

/// The silence that is borne by both: a server that does not know the agent's limit says its own.
fn agreed_silence(welcome: &Welcome, limit: Duration) -> Duration {
    match Duration::from_millis(welcome.silence_max_ms.into()) {
        Duration::ZERO => SILENCE_MAX.min(limit),
        theirs => theirs.min(limit),
    }
}

async fn greet_server(connection: &Connection, hello: Hello) -> Result<(ControlStream, Welcome), DialError> {
    let mut stream = ControlStream::new(connection.control(Side::Agent).await?);
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

/// What a server says that closes the connection in place of a Welcome.
fn turned_away(code: CloseCode, reason: &str) -> DialError {
    match code {
        CloseCode::Stopping | CloseCode::Drained => DialError::ServerUnavailable,
        CloseCode::NotGreeted
        | CloseCode::Violation
        | CloseCode::Lost
        | CloseCode::KeyCopied
        | CloseCode::Revoked
        | CloseCode::Expired
        | CloseCode::Replaced
        | CloseCode::Unknown(_) => {
            DialError::TurnedAway(reason.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').collect())
        }
    }
}

/// A certificate that the server does not accept shows only in the greeting, as a close in place of a Welcome.
fn greeting_failed(reason: Option<ConnectionError>, error: DialError) -> DialError {
    match (reason, error) {
        (Some(reason @ ConnectionError::ConnectionClosed(_)), DialError::Broke(_)) => {
            handshake_failed(reason)
        }
        (Some(ConnectionError::ApplicationClosed(close)), DialError::Broke(_)) => {
            let reason = String::from_utf8_lossy(&close.reason);
            turned_away(CloseCode::from_number(number(close.error_code)), &reason)
        }
        (_, error) => error,
    }
}

fn handshake_failed(error: ConnectionError) -> DialError {
    match error {
        ConnectionError::TimedOut => DialError::NoAnswer,
        ConnectionError::ConnectionClosed(close)
            if close.error_code == TransportErrorCode::CONNECTION_REFUSED =>
        {
            DialError::ServerUnavailable
        }
        ConnectionError::ConnectionClosed(close) => match alert(close.error_code) {
            Some(alert) => DialError::Rejected(alert::explain(alert)),
            None => DialError::Handshake(close.to_string()),
        },
        ConnectionError::TransportError(error) => match alert(error.code) {
            Some(_) => DialError::Untrusted(untrusted(&error.reason)),
            None => DialError::Handshake(error.to_string()),
        },
        error @ (ConnectionError::VersionMismatch
        | ConnectionError::ApplicationClosed(_)
        | ConnectionError::Reset
        | ConnectionError::LocallyClosed
        | ConnectionError::CidsExhausted) => DialError::Handshake(error.to_string()),
    }
}

/// What is wrong with a server's certificate, without the names of rustls's types around what our own verifier says.
fn untrusted(reason: &str) -> String {
    let ours = reason.split_once("Other(OtherError(").and_then(|(_, ours)| ours.strip_suffix("))"));
    ours.unwrap_or(reason).to_owned()
}

/// The TLS alert in an error code of QUIC (RFC 9001, section 4.8).
fn alert(code: TransportErrorCode) -> Option<AlertDescription> {
    let alert = u64::from(code).checked_sub(0x100)?;
    u8::try_from(alert).ok().map(AlertDescription::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_says_nothing_of_the_limit_has_the_one_that_is_common_unless_the_agents_is_shorter() {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        for (agents, servers, limit) in
            [(0, 0, 300), (0, 600, 600), (60, 0, 60), (60, 600, 60), (600, 60, 60)]
        {
            let hello = Hello { silence_max_ms: agents * 1000, ..Hello::default() };
            let welcome = Welcome { silence_max_ms: servers * 1000, ..Welcome::default() };
            assert_eq!(
                agreed_silence(&welcome, silence_limit(&hello)),
                seconds(limit),
                "{agents} and {servers}"
            );
        }
    }
}
