//! One TLS handshake, under a deadline.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::{Acceptor, ClientHello};
use rustls_pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::tls::ALPN_H2;
use super::{Doors, Spoken};

/// A connection after its handshake.
pub(super) struct Shaken {
    pub(super) stream: TlsStream<TcpStream>,
    pub(super) peer_certificates: Option<Vec<CertificateDer<'static>>>,
    pub(super) spoken: Spoken,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("the socket cannot be used")]
    Socket(#[source] io::Error),
    #[error("no ClientHello")]
    Hello(#[source] io::Error),
    #[error("the door for agents is elsewhere")]
    NoDoor,
    #[error("the tunnel's protocol was offered beside others")]
    TwoDoors,
    #[error("TLS was not agreed on")]
    Tls(#[source] io::Error),
    #[error("another of the same source took its place, which had come to no certificate for too long")]
    Displaced,
    #[error("the handshake took longer than {} s", .0.as_secs())]
    Deadline(Duration),
}

/// Shakes hands on the runtime of the calling task.
pub(super) async fn shake(
    stream: TcpStream,
    doors: &Doors,
    deadline: Duration,
) -> Result<Shaken, HandshakeError> {
    let stream = registered_here(stream).map_err(HandshakeError::Socket)?;
    let agreed = async {
        let hello =
            LazyConfigAcceptor::new(Acceptor::default(), stream).await.map_err(HandshakeError::Hello)?;
        let config = config(doors, &hello.client_hello())?;
        hello.into_stream(config).await.map_err(HandshakeError::Tls)
    };
    let stream = timeout(deadline, agreed).await.map_err(|_| HandshakeError::Deadline(deadline))??;
    let (_, connection) = stream.get_ref();
    let spoken = match connection.alpn_protocol() {
        Some(transport::tls::ALPN) => Spoken::Tunnel,
        Some(ALPN_H2) => Spoken::Http2,
        // Whoever offers nothing speaks it.
        Some(_) | None if doors.callers.is_some() => Spoken::Http1,
        Some(_) | None => return Err(HandshakeError::NoDoor),
    };
    let peer_certificates = connection
        .peer_certificates()
        .map(|chain| chain.iter().map(|certificate| certificate.clone().into_owned()).collect());
    Ok(Shaken { stream, peer_certificates, spoken })
}

/// The door for who says this: one door, before anything is agreed on.
fn config(doors: &Doors, hello: &ClientHello<'_>) -> Result<Arc<ServerConfig>, HandshakeError> {
    let offered: Vec<&[u8]> = hello.alpn().map(Iterator::collect).unwrap_or_default();
    let offers_tunnel = offered.contains(&transport::tls::ALPN);
    if offers_tunnel && offered.len() > 1 {
        return Err(HandshakeError::TwoDoors);
    }
    match (&doors.agents, &doors.callers) {
        (Some(agents), _) if offers_tunnel => Ok(Arc::clone(agents)),
        (_, Some(callers)) => Ok(Arc::clone(&callers.borrow())),
        // It offers what agents do not speak, so that TLS will say no to it.
        (Some(agents), None) => Ok(Arc::clone(agents)),
        (None, None) => Err(HandshakeError::NoDoor),
    }
}

/// The same socket, known to the runtime of the calling task: it was accepted on another one.
fn registered_here(stream: TcpStream) -> io::Result<TcpStream> {
    // Small answers must not wait for the acknowledgement of earlier ones.
    stream.set_nodelay(true)?;
    TcpStream::from_std(stream.into_std()?)
}
