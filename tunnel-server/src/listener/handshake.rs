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

use super::tls::{ALPN_H2, ALPN_HTTP1};
use super::{Doors, Spoken};

/// A connection after its handshake.
pub(super) struct Shaken {
    pub(super) stream: TlsStream<TcpStream>,
    pub(super) peer_certificates: Option<Vec<CertificateDer<'static>>>,
    pub(super) spoken: Spoken,
}

/// By which of a socket's doors somebody came: whose TLS configuration, and so whose CA, the handshake used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Callers,
    Agents,
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
    #[error("what was agreed on is not spoken at the door whose CA was asked")]
    OtherDoor,
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
        let (door, config) = config(doors, &hello.client_hello())?;
        Ok((door, hello.into_stream(config).await.map_err(HandshakeError::Tls)?))
    };
    let (door, stream) =
        timeout(deadline, agreed).await.map_err(|_| HandshakeError::Deadline(deadline))??;
    let (_, connection) = stream.get_ref();
    let spoken = door.speaks(connection.alpn_protocol())?;
    let peer_certificates = connection
        .peer_certificates()
        .map(|chain| chain.iter().map(|certificate| certificate.clone().into_owned()).collect());
    Ok(Shaken { stream, peer_certificates, spoken })
}

impl Door {
    /// What a connection by this door speaks, of whose CA its certificate is. The door's own configuration offers nothing else;
    /// this holds where somebody has mixed the two up.
    fn speaks(self, agreed: Option<&[u8]>) -> Result<Spoken, HandshakeError> {
        match (self, agreed) {
            (Self::Agents, Some(transport::tls::ALPN)) => Ok(Spoken::Tunnel),
            (Self::Callers, Some(ALPN_H2)) => Ok(Spoken::Http2),
            // Whoever offers nothing speaks it.
            (Self::Callers, Some(ALPN_HTTP1) | None) => Ok(Spoken::Http1),
            (Self::Agents, Some(_) | None) | (Self::Callers, Some(_)) => Err(HandshakeError::OtherDoor),
        }
    }
}

/// The door for who says this, and its configuration: one door, before anything is agreed on.
fn config(doors: &Doors, hello: &ClientHello<'_>) -> Result<(Door, Arc<ServerConfig>), HandshakeError> {
    let offered: Vec<&[u8]> = hello.alpn().map(Iterator::collect).unwrap_or_default();
    let offers_tunnel = offered.contains(&transport::tls::ALPN);
    if offers_tunnel && offered.len() > 1 {
        return Err(HandshakeError::TwoDoors);
    }
    match (&doors.agents, &doors.callers) {
        (Some(agents), _) if offers_tunnel => Ok((Door::Agents, Arc::clone(agents))),
        (_, Some(callers)) => Ok((Door::Callers, Arc::clone(&callers.borrow()))),
        // It offers what agents do not speak, so that TLS will say no to it.
        (Some(agents), None) => Ok((Door::Agents, Arc::clone(agents))),
        (None, None) => Err(HandshakeError::NoDoor),
    }
}

/// The same socket, known to the runtime of the calling task: it was accepted on another one.
fn registered_here(stream: TcpStream) -> io::Result<TcpStream> {
    // Small answers must not wait for the acknowledgement of earlier ones.
    stream.set_nodelay(true)?;
    TcpStream::from_std(stream.into_std()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_each_door_its_own_protocols_are_spoken_and_no_others() {
        let tunnel = Some(transport::tls::ALPN);
        for (door, agreed, spoken) in [
            (Door::Callers, None, Some(Spoken::Http1)),
            (Door::Callers, Some(ALPN_HTTP1), Some(Spoken::Http1)),
            (Door::Callers, Some(ALPN_H2), Some(Spoken::Http2)),
            (Door::Callers, tunnel, None),
            (Door::Callers, Some(b"other".as_slice()), None),
            (Door::Agents, tunnel, Some(Spoken::Tunnel)),
            (Door::Agents, Some(ALPN_H2), None),
            (Door::Agents, Some(ALPN_HTTP1), None),
            (Door::Agents, None, None),
        ] {
            assert_eq!(door.speaks(agreed).ok(), spoken, "{door:?}: {agreed:?}");
        }
    }
}
