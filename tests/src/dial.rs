//! TCP and TLS connections for peers that speak byte by byte.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::pki::Issued;

/// Connects to `address` and trusts `ca_pem` alone; the name that is asked for and verified is the address
/// itself.
///
/// `protocols` are offered by ALPN; `identity` is the client certificate shown, if any.
pub async fn dial(
    address: SocketAddr,
    ca_pem: &str,
    protocols: &[&str],
    identity: Option<&Issued>,
) -> io::Result<TlsStream<TcpStream>> {
    dial_name(address, &address.ip().to_string(), ca_pem, protocols, identity).await
}

/// The same, asking for (SNI) and verifying another name.
pub async fn dial_name(
    address: SocketAddr,
    name: &str,
    ca_pem: &str,
    protocols: &[&str],
    identity: Option<&Issued>,
) -> io::Result<TlsStream<TcpStream>> {
    let socket = TcpStream::connect(address).await?;
    shake(socket, name, ca_pem, protocols, identity).await
}

/// Connects from this IPv4 address of the machine, and a port that the system chooses, without TLS.
///
/// # Errors
/// An error of the system.
pub async fn connect_from(source: IpAddr, target: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((source, 0).into())?;
    socket.connect(target).await
}

/// Shakes hands over a connected socket.
pub async fn shake(
    socket: TcpStream,
    name: &str,
    ca_pem: &str,
    protocols: &[&str],
    identity: Option<&Issued>,
) -> io::Result<TlsStream<TcpStream>> {
    socket.set_nodelay(true)?;
    secure(socket, name, ca_pem, protocols, identity).await
}

/// Makes a TLS handshake with the server `name` over any stream.
pub async fn secure<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    name: &str,
    ca_pem: &str,
    protocols: &[&str],
    identity: Option<&Issued>,
) -> io::Result<TlsStream<S>> {
    let mut config = config(ca_pem, identity).map_err(io::Error::other)?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    secured(stream, name, &Arc::new(config)).await
}

/// The same by what [`config`] has made before.
pub async fn secured<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    name: &str,
    config: &Arc<ClientConfig>,
) -> io::Result<TlsStream<S>> {
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(Arc::clone(config)).connect(name, stream).await
}

/// Opens a tunnel by CONNECT to `target` over a connection to the gateway. `lines` are further header lines,
/// each ending in CRLF.
pub async fn through<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    target: &str,
    lines: &str,
) -> io::Result<S> {
    stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: gateway\r\n{lines}\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await?);
    }
    let is_there = answer.starts_with(b"HTTP/1.1 200 ");
    if is_there { Ok(stream) } else { Err(io::Error::other(String::from_utf8_lossy(&answer).into_owned())) }
}

/// The configuration of such a connection. It trusts `ca_pem` alone and keeps everything that could resume a
/// session.
///
/// # Errors
/// If an argument is no PEM, or the parts do not fit together.
pub fn config(ca_pem: &str, identity: Option<&Issued>) -> Result<ClientConfig, rustls::Error> {
    let pem = |error: rustls_pki_types::pem::Error| rustls::Error::General(error.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(certificate.map_err(pem)?)?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let Some(identity) = identity else { return Ok(builder.with_no_client_auth()) };
    let (chain, key) = pair(identity).map_err(pem)?;
    builder.with_client_auth_cert(chain, key)
}

/// A TLS acceptor that shows this certificate to every client, and takes `protocols` by ALPN.
///
/// # Panics
/// If it is no PEM, or the parts do not fit together.
pub fn acceptor(issued: &Issued, protocols: &[&str]) -> TlsAcceptor {
    let (chain, key) = pair(issued).expect("PEM");
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("the key is the certificate's");
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

fn pair(
    issued: &Issued,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), rustls_pki_types::pem::Error> {
    let chain =
        CertificateDer::pem_slice_iter(issued.certificate_pem.as_bytes()).collect::<Result<_, _>>()?;
    Ok((chain, PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes())?))
}
