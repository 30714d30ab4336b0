//! Dials a server over QUIC and greets it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::CloseCode;
use proto::session::Protocol;
use quinn::{ConnectionError, TransportErrorCode};
use rustls::AlertDescription;
use tokio::time::timeout;

use super::error::{DialError, turned_away, untrusted};
use super::greet::{Dialed, Opening, greet};
use super::tls::DialTls;
use crate::alert;
use crate::carrier::{Connection, number};
use crate::endpoint::Endpoint;
use crate::path_mtu;
use crate::probe::Probe;
use crate::rebind::Rebinding;
use crate::settings::{self, Side};

impl Endpoint {
    /// Dials, completes the handshake and greets with an agent's Hello or a server's `PeerOpening`. An agent's tunnel has
    /// the shorter limit for silence of its Hello's and the server's.
    ///
    /// # Errors
    /// `DialError`, within `handshake_max` + `GREETING_MAX`.
    pub async fn dial<O: Opening>(
        &self,
        address: SocketAddr,
        server_name: &str,
        tls: &DialTls<O>,
        opening: O,
        handshake_max: Duration,
    ) -> Result<Dialed<O::Welcome>, DialError> {
        let (probe, mut config) = (Probe::new(), tls.quic.clone());
        let packet_bytes = path_mtu::packet_bytes(address);
        let tunnel = settings::connection(Side::Agent, &probe, opening.silence_limit(), packet_bytes);
        config.transport_config(Arc::new(tunnel));
        let connecting = self
            .quic()
            .connect_with(config, address, server_name)
            .map_err(|error| dial_refused(&error, server_name))?;
        let connection = match timeout(handshake_max, connecting).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(handshake_failed(error, O::PROTOCOL)),
            Err(_) => return Err(DialError::NoAnswer),
        };
        let carrier = Connection::Quic(connection.clone(), probe);
        match greet(carrier.clone(), &opening).await {
            Ok(dialed) => {
                let endpoint = self.clone();
                let rebinding = Rebinding::new(Box::new(move || endpoint.rebind()), Instant::now());
                Ok(Dialed { driver: dialed.driver.rebinding(rebinding), ..dialed })
            }
            Err(error) => {
                let reason = connection.close_reason();
                carrier.close(CloseCode::NotGreeted);
                Err(greeting_failed(reason, error, O::PROTOCOL))
            }
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

/// The error of a greeting that failed. A certificate that the server does not accept shows only here, as a
/// close in place of a Welcome.
fn greeting_failed(reason: Option<ConnectionError>, error: DialError, protocol: Protocol) -> DialError {
    match (reason, error) {
        (Some(reason @ ConnectionError::ConnectionClosed(_)), DialError::Broke(_)) => {
            handshake_failed(reason, protocol)
        }
        (Some(ConnectionError::ApplicationClosed(close)), DialError::Broke(_)) => {
            let reason = String::from_utf8_lossy(&close.reason);
            turned_away(CloseCode::from_number(number(close.error_code)), &reason)
        }
        (_, error) => error,
    }
}

fn handshake_failed(error: ConnectionError, protocol: Protocol) -> DialError {
    match error {
        ConnectionError::TimedOut => DialError::NoAnswer,
        ConnectionError::ConnectionClosed(close)
            if close.error_code == TransportErrorCode::CONNECTION_REFUSED =>
        {
            DialError::ServerUnavailable
        }
        ConnectionError::ConnectionClosed(close) => match alert(close.error_code) {
            Some(alert) => DialError::Rejected(alert::explain_to(protocol, alert)),
            None => DialError::Handshake(close.to_string()),
        },
        ConnectionError::TransportError(error) => match alert(error.code) {
            Some(_) => untrusted(&error.reason),
            None => DialError::Handshake(error.to_string()),
        },
        error @ (ConnectionError::VersionMismatch
        | ConnectionError::ApplicationClosed(_)
        | ConnectionError::Reset
        | ConnectionError::LocallyClosed
        | ConnectionError::CidsExhausted) => DialError::Handshake(error.to_string()),
    }
}

/// The TLS alert in an error code of QUIC (RFC 9001, section 4.8).
fn alert(code: TransportErrorCode) -> Option<AlertDescription> {
    let alert = u64::from(code).checked_sub(0x100)?;
    u8::try_from(alert).ok().map(AlertDescription::from)
}
