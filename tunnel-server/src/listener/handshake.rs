//! A TLS handshake of one connection, under a deadline.

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

use super::tls::{self, ALPN_H2, ALPN_HTTP1};
use super::{AgreedProtocol, ListenerTls};

/// A connection after its handshake, with its certificate and protocol.
pub(super) struct CompletedHandshake {
    pub(super) stream: TlsStream<TcpStream>,
    pub(super) peer_certificates: Option<Vec<CertificateDer<'static>>>,
    pub(super) protocol: AgreedProtocol,
}

/// The peer's role, which selects the TLS configuration and therefore the client CA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PeerRole {
    Callers,
    Agents,
}

/// The reason why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("the socket cannot be used")]
    Socket(#[source] io::Error),
    #[error("no ClientHello")]
    Hello(#[source] io::Error),
    #[error("this listener has no TLS configuration for such a peer")]
    NoListener,
    #[error("the tunnel's protocol was offered together with others")]
    MixedAlpn,
    #[error("the agreed protocol does not belong to the TLS configuration that was used")]
    WrongAlpn,
    #[error("TLS was not agreed on")]
    Tls(#[source] io::Error),
    #[error("too many connections of its source, and it showed no certificate in time")]
    Displaced,
    #[error("the handshake took longer than {} s", .0.as_secs())]
    Deadline(Duration),
}

/// Does the handshake on the runtime of the calling task.
pub(super) async fn accept(
    stream: TcpStream,
    listener: &ListenerTls,
    deadline: Duration,
) -> Result<CompletedHandshake, HandshakeError> {
    let stream = registered_here(stream).map_err(HandshakeError::Socket)?;
    let agreed = async {
        let hello =
            LazyConfigAcceptor::new(Acceptor::default(), stream).await.map_err(HandshakeError::Hello)?;
        let (role, config) = config(listener, &hello.client_hello())?;
        Ok((role, hello.into_stream(config).await.map_err(HandshakeError::Tls)?))
    };
    let tunnel = tunnel_protocol(listener);
    let (role, stream) =
        timeout(deadline, agreed).await.map_err(|_| HandshakeError::Deadline(deadline))??;
    let (_, connection) = stream.get_ref();
    let protocol = role.protocol_for(connection.alpn_protocol(), tunnel)?;
    let peer_certificates = connection
        .peer_certificates()
        .map(|chain| chain.iter().map(|certificate| certificate.clone().into_owned()).collect::<Vec<_>>())
        .filter(|chain| {
            listener.optional.as_deref().is_none_or(|verifier| tls::is_verified(verifier, chain))
        });
    Ok(CompletedHandshake { stream, peer_certificates, protocol })
}

impl PeerRole {
    /// The protocol of a connection in this role. The role's own configuration offers nothing else, so this
    /// check matters only if the two configurations were confused.
    ///
    /// `tunnel` is the name of the tunnel's protocol at this listener.
    fn protocol_for(
        self,
        agreed: Option<&[u8]>,
        tunnel: Option<&[u8]>,
    ) -> Result<AgreedProtocol, HandshakeError> {
        match (self, agreed) {
            (Self::Agents, Some(_)) if agreed == tunnel => Ok(AgreedProtocol::Tunnel),
            (Self::Callers, Some(ALPN_H2)) => Ok(AgreedProtocol::Http2),
            // A client without ALPN speaks HTTP/1.1.
            (Self::Callers, Some(ALPN_HTTP1) | None) => Ok(AgreedProtocol::Http1),
            (Self::Agents, Some(_) | None) | (Self::Callers, Some(_)) => Err(HandshakeError::WrongAlpn),
        }
    }
}

/// Selects the role and its TLS configuration by the ClientHello, before the handshake agrees on anything.
fn config(
    tls: &ListenerTls,
    hello: &ClientHello<'_>,
) -> Result<(PeerRole, Arc<ServerConfig>), HandshakeError> {
    let offered: Vec<&[u8]> = hello.alpn().map(Iterator::collect).unwrap_or_default();
    // A client that offers the protocol of a tunnel together with others is at the wrong listener, or was redirected.
    let is_tunnels = |protocol: &&[u8]| [transport::tls::ALPN, transport::tls::PEER_ALPN].contains(protocol);
    if offered.len() > 1 && offered.iter().any(is_tunnels) {
        return Err(HandshakeError::MixedAlpn);
    }
    let offers_tunnel = tunnel_protocol(tls).is_some_and(|tunnel| offered.contains(&tunnel));
    match (&tls.agents, &tls.callers) {
        (Some(agents), _) if offers_tunnel => Ok((PeerRole::Agents, Arc::clone(agents))),
        (_, Some(callers)) => Ok((PeerRole::Callers, Arc::clone(&callers.borrow()))),
        // The client does not offer the tunnel's protocol, so TLS will refuse it.
        (Some(agents), None) => Ok((PeerRole::Agents, Arc::clone(agents))),
        (None, None) => Err(HandshakeError::NoListener),
    }
}

/// The name of the tunnel's protocol at this listener: that of agents, or of other servers.
fn tunnel_protocol(tls: &ListenerTls) -> Option<&[u8]> {
    tls.agents.as_ref().and_then(|tunnel| tunnel.alpn_protocols.first()).map(Vec::as_slice)
}

/// Registers the socket with the runtime of the calling task, because another runtime has accepted it.
fn registered_here(stream: TcpStream) -> io::Result<TcpStream> {
    // Small answers must not wait for the acknowledgement of earlier ones.
    stream.set_nodelay(true)?;
    TcpStream::from_std(stream.into_std()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_accepts_only_its_own_protocols() {
        let tunnel = Some(transport::tls::ALPN);
        for (role, agreed, protocol) in [
            (PeerRole::Callers, None, Some(AgreedProtocol::Http1)),
            (PeerRole::Callers, Some(ALPN_HTTP1), Some(AgreedProtocol::Http1)),
            (PeerRole::Callers, Some(ALPN_H2), Some(AgreedProtocol::Http2)),
            (PeerRole::Callers, tunnel, None),
            (PeerRole::Callers, Some(b"other".as_slice()), None),
            (PeerRole::Agents, tunnel, Some(AgreedProtocol::Tunnel)),
            (PeerRole::Agents, Some(transport::tls::PEER_ALPN), None),
            (PeerRole::Agents, Some(ALPN_H2), None),
            (PeerRole::Agents, Some(ALPN_HTTP1), None),
            (PeerRole::Agents, None, None),
        ] {
            assert_eq!(role.protocol_for(agreed, tunnel).ok(), protocol, "{role:?}: {agreed:?}");
        }
    }
}
