//! A bulk transfer over QUIC and small requests beside it, with a given congestion controller.

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ::tests::pki::Authority;
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    Connection, Endpoint, EndpointConfig, RecvStream, SendStream, TokioRuntime, TransportConfig, VarInt,
};
use rustix::net::sockopt::{set_socket_recv_buffer_size_force, set_socket_send_buffer_size_force};
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::path::{Path, SENDER};
use super::{LinkTurn, small_requests};

const NAME: &str = "sender.test";
/// Most unacknowledged bytes of all streams, as in `transport`.
const SEND_WINDOW_BYTES: u64 = 16 * 1024 * 1024;
const SOCKET_BYTES: usize = 4 * 1024 * 1024;
const WRITE_BYTES: usize = 64 * 1024;

/// Size of a small request and of its response.
pub(super) const SMALL_BYTES: usize = 1024;

/// The first byte on each stream: the kind of request.
const BULK: u8 = b'b';
const ECHO: u8 = b'e';

/// The congestion controller of a QUIC sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Controller {
    /// The controller of `transport`, which ships.
    LossTolerant,
    Cubic,
    Bbr,
}

impl Controller {
    fn factory(self) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self {
            Self::LossTolerant => Arc::new(transport::LossTolerantFactory),
            Self::Cubic => Arc::new(CubicConfig::default()),
            Self::Bbr => Arc::new(BbrConfig::default()),
        }
    }

    fn transport(self, stream_window: u32) -> Arc<TransportConfig> {
        let mut config = TransportConfig::default();
        config
            .stream_receive_window(VarInt::from_u32(stream_window))
            .send_window(SEND_WINDOW_BYTES)
            .congestion_controller_factory(self.factory());
        Arc::new(config)
    }
}

/// Runs one turn over a new connection.
pub async fn turn(
    path: &Path,
    controller: Controller,
    stream_window: u32,
    warm_up: Duration,
    lasts: Duration,
) -> Result<LinkTurn, Box<dyn Error>> {
    let authority = Authority::new("link");
    let transport = controller.transport(stream_window);
    let server = server(&authority, Arc::clone(&transport))?;
    let client = client(&authority, transport)?;
    let (listening, listens) = oneshot::channel();
    let serving =
        path.at_sender(
            move || async move { serve(server, listening).await.map_err(|error| error.to_string()) },
        )?;
    let address = listens.await.map_err(|_| "the sender could not listen")?;
    let measured = path.at_receiver(move || async move {
        measure(client, address, warm_up, lasts).await.map_err(|error| error.to_string())
    })?;
    let turn = measured.await?;
    serving.await??;
    Ok(turn?)
}

fn server(
    authority: &Authority,
    transport: Arc<TransportConfig>,
) -> Result<quinn::ServerConfig, Box<dyn Error>> {
    let issued = authority.issue_server(&[NAME], &[]);
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(issued.certificate_pem.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes())?;
    let tls = rustls::ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain?, key)?;
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config.transport_config(transport);
    Ok(config)
}

fn client(
    authority: &Authority,
    transport: Arc<TransportConfig>,
) -> Result<quinn::ClientConfig, Box<dyn Error>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate_pem().as_bytes())?)?;
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(transport);
    Ok(config)
}

/// An endpoint with a socket in the namespace of the calling thread.
fn endpoint(server: Option<quinn::ServerConfig>) -> std::io::Result<Endpoint> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    set_socket_recv_buffer_size_force(&socket, SOCKET_BYTES)?;
    set_socket_send_buffer_size_force(&socket, SOCKET_BYTES)?;
    Endpoint::new(EndpointConfig::default(), server, socket, Arc::new(TokioRuntime))
}

/// Serves one connection until it is closed.
async fn serve(
    config: quinn::ServerConfig,
    listening: oneshot::Sender<SocketAddr>,
) -> Result<(), Box<dyn Error>> {
    let endpoint = endpoint(Some(config))?;
    let port = endpoint.local_addr()?.port();
    let _ = listening.send((SENDER, port).into()); // The receiver is gone if the run was given up.
    let connection = endpoint.accept().await.ok_or("the endpoint was closed")?.await?;
    while let Ok((send, receive)) = connection.accept_bi().await {
        tokio::spawn(answer(send, receive));
    }
    Ok(())
}

/// Serves one stream. The end of the connection ends it without an error.
async fn answer(mut send: SendStream, mut receive: RecvStream) -> Option<()> {
    let mut kind = [0];
    receive.read_exact(&mut kind).await.ok()?;
    if kind == [BULK] {
        let bytes = vec![0; WRITE_BYTES];
        loop {
            send.write_all(&bytes).await.ok()?;
        }
    }
    let small = receive.read_to_end(SMALL_BYTES).await.ok()?;
    send.write_all(&small).await.ok()?;
    send.finish().ok()
}

async fn measure(
    config: quinn::ClientConfig,
    address: SocketAddr,
    warm_up: Duration,
    lasts: Duration,
) -> Result<LinkTurn, Box<dyn Error>> {
    let endpoint = endpoint(None)?;
    let connection = endpoint.connect_with(config, address, NAME)?.await?;
    let received = Arc::new(AtomicU64::new(0));
    let bulk = tokio::spawn(download(connection.clone(), Arc::clone(&received)));
    sleep(warm_up).await;

    let asked = connection.clone();
    let turn = small_requests::measure(lasts, &received, || ask(asked.clone())).await;
    bulk.abort();
    connection.close(VarInt::from_u32(0), b"");
    endpoint.wait_idle().await;
    Ok(turn)
}

async fn download(connection: Connection, received: Arc<AtomicU64>) -> Option<()> {
    let (mut send, mut receive) = connection.open_bi().await.ok()?;
    send.write_all(&[BULK]).await.ok()?;
    while let Some(chunk) = receive.read_chunk(usize::MAX, true).await.ok()? {
        received.fetch_add(chunk.bytes.len() as u64, Relaxed);
    }
    Some(())
}

/// Sends one small request, and reads its response.
async fn ask(connection: Connection) -> Option<()> {
    let (mut send, mut receive) = connection.open_bi().await.ok()?;
    send.write_all(&[ECHO]).await.ok()?;
    send.write_all(&[0; SMALL_BYTES]).await.ok()?;
    send.finish().ok()?;
    receive.read_to_end(SMALL_BYTES).await.ok().map(drop)
}
