//! A proxy before a real API server that refuses every so many streams by `REFUSED_STREAM` (RFC 9113, section
//! 8.7), unprocessed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Request, Uri};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::caller::{read_to_end, send_all};
use crate::dial::{acceptor, dial};
use crate::pki::Authority;

/// The proxy. It ends with the test's runtime.
#[derive(Debug)]
pub struct RefusingProxy {
    /// The address on which it listens.
    pub address: SocketAddr,
    /// The certificate of the authority that signed the proxy's.
    pub ca_pem: String,
    refused: Arc<AtomicUsize>,
}

/// The API server behind the proxy, and the order of refusals.
struct Upstream {
    address: SocketAddr,
    ca_pem: String,
    every: usize,
    streams: AtomicUsize,
    refused: Arc<AtomicUsize>,
}

impl RefusingProxy {
    /// Starts one before the API server at `address`. It refuses one stream of `every`.
    pub async fn start(address: SocketAddr, ca_pem: &str, every: usize) -> Self {
        let authority = Authority::new("refusing proxy");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let acceptor = acceptor(&authority.issue_server(&[], &[at.ip()]), &["h2"]);
        let refused = Arc::new(AtomicUsize::new(0));
        let upstream = Arc::new(Upstream {
            address,
            ca_pem: ca_pem.to_owned(),
            every,
            streams: AtomicUsize::new(0),
            refused: Arc::clone(&refused),
        });
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, acceptor.clone(), Arc::clone(&upstream)));
            }
        });
        Self { address: at, ca_pem: authority.certificate_pem().to_owned(), refused }
    }

    /// Number of streams that it refused.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }
}

/// Serves a connection by one of its own to the API server.
async fn serve(socket: TcpStream, acceptor: TlsAcceptor, upstream: Arc<Upstream>) {
    let Ok(stream) = acceptor.accept(socket).await else { return };
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    let dialed = dial(upstream.address, &upstream.ca_pem, &["h2"], None).await.expect("the API server");
    let (sender, driver) = h2::client::handshake(dialed).await.expect("HTTP/2 is spoken");
    tokio::spawn(async move { drop(driver.await) });
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let stream = upstream.streams.fetch_add(1, Ordering::Relaxed);
        if stream % upstream.every == upstream.every - 1 {
            upstream.refused.fetch_add(1, Ordering::Relaxed);
            respond.send_reset(Reason::REFUSED_STREAM);
            continue;
        }
        let address = upstream.address;
        tokio::spawn(forward(request, respond, sender.clone(), address));
    }
}

/// Forwards one request with its whole body, and its answer.
async fn forward(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    sender: SendRequest<Bytes>,
    address: SocketAddr,
) -> Option<()> {
    let (mut head, body) = request.into_parts();
    let (body, end) = read_to_end(body).await;
    end.ok()?;
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    head.uri = format!("https://{address}{path}").parse::<Uri>().ok()?;
    let mut sender = sender.ready().await.ok()?;
    let (answer, mut stream) = sender.send_request(Request::from_parts(head, ()), body.is_empty()).ok()?;
    if !body.is_empty() {
        send_all(&mut stream, body.into(), true).await.ok()?;
    }
    let (head, body) = answer.await.ok()?.into_parts();
    let (body, end) = read_to_end(body).await;
    end.ok()?;
    let mut stream = respond.send_response(http::Response::from_parts(head, ()), false).ok()?;
    send_all(&mut stream, body.into(), true).await.ok()
}
