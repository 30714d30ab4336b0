//! Dials a server over TCP: through a proxy if there is one, then TLS, then HTTP/2 in which the agent serves.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use proto::session::Protocol;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::{DialError, turned_away, untrusted};
use super::greet::{Dialed, Opening, greet};
use super::proxy::Proxy;
use super::tls::DialTls;
use crate::alert;
use crate::carrier::{Connection, http2};
use crate::runtime::Spawn;

/// The path of a TCP connection to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DialPath {
    /// Directly to this address and port.
    Direct(SocketAddr),
    /// Through a proxy, which resolves the name.
    Proxied {
        /// The HTTP proxy to ask.
        proxy: Proxy,
        /// The server's name or address.
        host: String,
        /// The server's port behind the proxy.
        port: u16,
    },
}

impl DialPath {
    /// Opens a TCP connection to the server, for any protocol on it.
    ///
    /// # Errors
    /// `DialError::Tcp` or `DialError::Proxy`.
    pub async fn connect(&self) -> Result<TcpStream, DialError> {
        match self {
            Self::Direct(address) => TcpStream::connect(address).await.map_err(DialError::Tcp),
            Self::Proxied { proxy, host, port } => Ok(proxy.connect(host, *port).await?),
        }
    }
}

/// Dials over TCP, completes the TLS handshake and greets.
///
/// The server has to present a certificate for `server_name`, or the one of the peer that is meant. TLS, greeting and tunnel are those of
/// [`Endpoint::dial`](crate::Endpoint::dial). The connection's driver goes to `spawn`. Dropping the future
/// aborts the dial and closes its connection.
///
/// # Errors
/// `DialError`, within `handshake_max`, the proxy's answer included, + `GREETING_MAX`.
pub async fn dial_tcp<O: Opening>(
    path: &DialPath,
    server_name: &str,
    tls: &DialTls<O>,
    opening: O,
    handshake_max: Duration,
    spawn: &dyn Spawn,
) -> Result<Dialed<O::Welcome>, DialError> {
    let name =
        ServerName::try_from(server_name.to_owned()).map_err(|_| DialError::Name(server_name.to_owned()))?;
    let too_slow = || DialError::Tcp(io::ErrorKind::TimedOut.into());
    let connecting = async {
        let (stream, peer) = connect(path, name, tls).await?;
        let exporter = crate::tls::exporter(stream.get_ref().1);
        // Waits for the server's first bytes, which it sends only after it has verified our certificate.
        let (connection, driver) = http2::Http2Connection::agent(stream, peer)
            .await
            .map_err(|error| of_handshake(error, O::PROTOCOL))?;
        Ok((connection.exporting(exporter), driver))
    };
    let (connection, driver) =
        timeout(handshake_max, connecting).await.unwrap_or_else(|_| Err(too_slow()))?;
    spawn.spawn(Box::pin(driver));
    // Dropping the connection without a greeting closes it.
    greet(Connection::Http2(connection.clone()), &opening).await.map_err(|error| {
        match (connection.peer_close_reason(), error) {
            (Some(close), DialError::Broke(_)) => turned_away(close.code, &close.message),
            (_, error) => error,
        }
    })
}

async fn connect<O: Opening>(
    path: &DialPath,
    name: ServerName<'static>,
    tls: &DialTls<O>,
) -> Result<(TlsStream<TcpStream>, SocketAddr), DialError> {
    let tcp = path.connect().await?;
    http2::socket(&tcp).map_err(DialError::Local)?;
    let peer = tcp.peer_addr().map_err(DialError::Tcp)?;
    let connector = TlsConnector::from(std::sync::Arc::clone(&tls.tcp));
    let mut stream = connector.connect(name, tcp).await.map_err(|error| of_tls(error, O::PROTOCOL))?;
    stream.get_mut().1.set_buffer_limit(Some(http2::TLS_BYTES));
    Ok((stream, peer))
}

/// The error of a TLS handshake: which side refused it, and why.
fn of_tls(error: io::Error, protocol: Protocol) -> DialError {
    match error.get_ref().and_then(|inside| inside.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(alert)) => DialError::Rejected(alert::explain_to(protocol, *alert)),
        Some(rustls::Error::InvalidCertificate(error)) => untrusted(&error.to_string()),
        Some(tls) => DialError::Handshake(tls.to_string()),
        None => DialError::Tcp(error),
    }
}

/// The error of an HTTP/2 handshake. The server's TLS alert about our certificate shows only here.
fn of_handshake(error: h2::Error, protocol: Protocol) -> DialError {
    let text = error.to_string();
    error.into_io().map_or(DialError::Handshake(text), |error| of_tls(error, protocol))
}
