//! One TLS handshake, under a deadline.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::Acceptor;
use rustls_pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::tls::ALPN_H2;

/// A connection after its handshake.
pub(super) struct Shaken {
    pub(super) stream: TlsStream<TcpStream>,
    pub(super) peer_certificates: Option<Vec<CertificateDer<'static>>>,
    pub(super) is_h2: bool,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("the socket cannot be used")]
    Socket(#[source] io::Error),
    #[error("no ClientHello")]
    Hello(#[source] io::Error),
    #[error("TLS was not agreed on")]
    Tls(#[source] io::Error),
    #[error("the handshake took longer than {} s", .0.as_secs())]
    Deadline(Duration),
}

/// Shakes hands on the runtime of the calling task.
pub(super) async fn shake(
    stream: TcpStream,
    tls: watch::Receiver<Arc<ServerConfig>>,
    deadline: Duration,
) -> Result<Shaken, HandshakeError> {
    let stream = registered_here(stream).map_err(HandshakeError::Socket)?;
    let agreed = async {
        let hello =
            LazyConfigAcceptor::new(Acceptor::default(), stream).await.map_err(HandshakeError::Hello)?;
        let config = Arc::clone(&tls.borrow());
        hello.into_stream(config).await.map_err(HandshakeError::Tls)
    };
    let stream = timeout(deadline, agreed).await.map_err(|_| HandshakeError::Deadline(deadline))??;
    let (_, connection) = stream.get_ref();
    let is_h2 = connection.alpn_protocol() == Some(ALPN_H2);
    let peer_certificates = connection
        .peer_certificates()
        .map(|chain| chain.iter().map(|certificate| certificate.clone().into_owned()).collect());
    Ok(Shaken { stream, peer_certificates, is_h2 })
}

/// The same socket, known to the runtime of the calling task: it was accepted on another one.
fn registered_here(stream: TcpStream) -> io::Result<TcpStream> {
    // Small answers must not wait for the acknowledgement of earlier ones.
    stream.set_nodelay(true)?;
    TcpStream::from_std(stream.into_std()?)
}
