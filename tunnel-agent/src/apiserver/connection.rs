//! One connection to the API server: dialed, verified, and driven by an attendant of the scope.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use daemon::Scope;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::{AlertDescription, ClientConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{interval, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::debug;

use super::ApiServerError;
use super::body::RequestBody;
use super::endpoints::Place;
use super::material::Target;
use super::served::Served;
use super::tls::HTTP_2;
use crate::metrics;

/// Most requests on one HTTP/2 connection at a time. kube-apiserver grants 100; what is asked for beyond its grant would
/// wait unseen in a queue of the HTTP/2 library.
pub const STREAMS_MAX: usize = 90;

/// What the API server may send of one answer before a caller has taken it. The API server is near, so this fills the way
/// to it; and each frame costs the HTTP/2 library 256 bytes, however small it is, as the lines of a log are.
const STREAM_WINDOW: u32 = 256 * 1024;

/// What it may send on a connection: more than all windows of all streams, so that callers who do not read never make
/// others wait. Half of it is what the HTTP/2 library lets small frames that nobody took cost before it ends the whole
/// connection: enough for as many logs of 30 bytes a line as the server lets stall on a tunnel.
const CONNECTION_WINDOW: u32 = 128 * 1024 * 1024;
const _: () = assert!(CONNECTION_WINDOW as usize >= STREAMS_MAX * STREAM_WINDOW as usize);

/// What of one request is held here while the API server does not take it.
const SEND_BUFFER_BYTES_MAX: usize = 128 * 1024;

/// Streams that were reset here and are remembered, and for how long. What the API server sent before it knew is passed
/// over for these; for others the HTTP/2 library answers each late frame with a reset, counts, and at last ends the whole
/// connection. No server of ours is so slow.
const RESETS_REMEMBERED_MAX: usize = 4096;
const RESETS_REMEMBERED_FOR: Duration = Duration::from_secs(30);

/// How often a new connection is asked for the server's grant: hyper wakes nobody when it has come.
const GRANT_LOOK_EVERY: Duration = Duration::from_millis(1);

/// Largest head of an answer.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEAD_BYTES_MAX_HTTP_2: u32 = HEAD_BYTES_MAX as u32;

/// Most headers in one over HTTP/1.1; over HTTP/2 their size alone counts.
const HEADERS_MAX: usize = 100;

/// A silent connection is asked for a sign of life, also while idle: a firewall may have forgotten it.
const PING_EVERY: Duration = Duration::from_secs(20);
const PONG_MAX: Duration = Duration::from_secs(10);

/// The sender of an HTTP/2 connection. Clones are the same connection.
pub(super) type Streams = http2::SendRequest<RequestBody>;

/// What hyper gives back when a request was not answered; the request, too, if not one byte of it was written.
pub(super) type Unanswered = TrySendError<Request<RequestBody>>;

/// A connection, by what the server chose.
pub(super) enum Link {
    Multiplexed {
        streams: Streams,
        /// How many streams the server lets us open, as far as known.
        granted: Arc<AtomicUsize>,
    },
    Single(Single),
}

/// An HTTP/1.1 connection, for one exchange at a time. Dropping it closes the connection at once.
#[derive(Debug)]
pub(super) struct Single {
    sender: http1::SendRequest<RequestBody>,
    _close: DropGuard,
}

/// Which protocols a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Ordinary requests.
    Pooled,
    /// One upgrade.
    Upgrade,
}

/// Where an API server is asked, and who takes note of what it shows.
pub(super) type Towards<'a> = (&'a (Place, Target), &'a Served);

/// Dials and verifies the API server, and counts how that went.
pub(super) async fn dial(
    towards: Towards<'_>,
    tls: Arc<ClientConfig>,
    usage: Use,
    limit: Duration,
    seat: OwnedSemaphorePermit,
    scope: &Scope,
) -> Result<Link, ApiServerError> {
    let dialed = connect(towards, tls, usage, limit, seat, scope).await;
    metrics::apiserver_dialed(dialed.as_ref().err().map(ApiServerError::code));
    dialed
}

/// The same without counting.
pub(super) async fn connect(
    ((place, target), served): Towards<'_>,
    tls: Arc<ClientConfig>,
    usage: Use,
    limit: Duration,
    seat: OwnedSemaphorePermit,
    scope: &Scope,
) -> Result<Link, ApiServerError> {
    let mut deadline = pin!(tokio::time::sleep(limit));
    let unreachable =
        |error| ApiServerError::Unreachable { authority: target.authority.clone(), source: Arc::new(error) };
    // Both arms are cancel-safe: a dropped connect closes its socket.
    let tcp = tokio::select! {
        connected = TcpStream::connect((target.host.as_str(), target.port)) => connected.map_err(unreachable)?,
        () = &mut deadline => return Err(unreachable(io::ErrorKind::TimedOut.into())),
    };
    // Small frames of watches and of HTTP/2 must not wait for each other.
    tcp.set_nodelay(true).map_err(unreachable)?;
    let handshake = TlsConnector::from(tls).connect(target.server_name.clone(), tcp);
    // Cancel-safe in the same way.
    let tls = tokio::select! {
        shaken = handshake => shaken.map_err(|error| handshake_error(target, error))?,
        () = &mut deadline => return Err(ApiServerError::Silent(limit)),
    };
    if let Some([shown, ..]) = tls.get_ref().1.peer_certificates() {
        served.note(*place, &target.authority, shown);
    }
    let multiplexed = tls.get_ref().1.alpn_protocol() == Some(HTTP_2);
    let socket = TokioIo::new(Socket { tls, is_shut_down: false, _seat: seat });
    timeout(limit, open(socket, multiplexed, usage, scope))
        .await
        .map_err(|_| ApiServerError::Silent(limit))?
}

impl Single {
    pub(super) fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, Unanswered>> + use<> {
        self.sender.try_send_request(request)
    }

    /// Whether the last exchange is over and another may begin.
    pub(super) fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Waits until another exchange may begin; false if there will be none.
    pub(super) async fn ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }
}

async fn open(
    socket: TokioIo<Socket>,
    multiplexed: bool,
    usage: Use,
    scope: &Scope,
) -> Result<Link, ApiServerError> {
    if multiplexed && usage == Use::Pooled {
        return open_multiplexed(socket, scope).await;
    }
    let (mut sender, connection) = http1::Builder::new()
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake(socket)
        .await
        .map_err(lost)?;
    let close = CancellationToken::new();
    let closed = close.clone();
    scope.attend(async move {
        let driven = match usage {
            Use::Pooled => closed.run_until_cancelled(drive_unto_reset(connection)).await,
            Use::Upgrade => closed.run_until_cancelled(connection.with_upgrades()).await,
        };
        if let Some(Err(error)) = driven {
            debug!(%error, "a connection to the API server broke");
        }
    });
    // So that whoever finds it in the pool finds it ready.
    sender.ready().await.map_err(lost)?;
    Ok(Link::Single(Single { sender, _close: close.drop_guard() }))
}

/// Drives a connection and never shuts it down: hyper would do so in good order for an exchange that broke off, too, and
/// the FIN would stay behind an upload that the API server does not read. After a whole exchange nothing is on the way.
async fn drive_unto_reset(
    mut connection: http1::Connection<TokioIo<Socket>, RequestBody>,
) -> Result<(), hyper::Error> {
    poll_fn(|cx| connection.poll_without_shutdown(cx)).await
}

/// Returns once the server has said how many streams it grants. What was asked for beyond would be refused, or wait in a
/// queue of the HTTP/2 library behind whatever takes longest.
async fn open_multiplexed(socket: TokioIo<Socket>, scope: &Scope) -> Result<Link, ApiServerError> {
    let (streams, connection) = http2::Builder::new(scope.attendants())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        // Until the server's settings have come.
        .initial_max_send_streams(0)
        .max_send_buf_size(SEND_BUFFER_BYTES_MAX)
        .max_header_list_size(HEAD_BYTES_MAX_HTTP_2)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_MAX)
        .keep_alive_while_idle(true)
        .max_concurrent_reset_streams(RESETS_REMEMBERED_MAX)
        .reset_stream_duration(RESETS_REMEMBERED_FOR)
        // Counted over the connection's whole life, and callers who hang up bring it about: in the end it would take all
        // others along.
        .max_local_error_reset_streams(None)
        .handshake(socket)
        .await
        .map_err(lost)?;
    let mut connection = Box::pin(connection);
    let mut looks = interval(GRANT_LOOK_EVERY);
    let first_grant = loop {
        // Both arms are cancel-safe: the connection is polled by reference, and a tick has nothing to lose.
        tokio::select! {
            ended = &mut connection => return Err(ended.map_or_else(lost, |()| ApiServerError::CutShort)),
            _ = looks.tick() => match connection.current_max_send_streams() {
                0 => {}
                grant => break grant,
            },
        }
    };
    let granted = Arc::new(AtomicUsize::new(first_grant));
    let grant = granted.clone();
    scope.attend(async move {
        // Polled with every request, so that another grant is known soon after it has come.
        let driven = poll_fn(|cx| {
            let driven = connection.as_mut().poll(cx);
            grant.store(connection.current_max_send_streams(), Ordering::Relaxed);
            driven
        });
        if let Err(error) = driven.await {
            debug!(%error, "a connection to the API server broke");
        }
    });
    Ok(Link::Multiplexed { streams, granted })
}

fn lost(error: hyper::Error) -> ApiServerError {
    ApiServerError::Lost(Arc::new(error))
}

fn handshake_error(target: &Target, error: io::Error) -> ApiServerError {
    let authority = target.authority.clone();
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        None => ApiServerError::Unreachable { authority, source: Arc::new(error) },
        Some(rustls::Error::AlertReceived(alert)) if concerns_us(*alert) => {
            ApiServerError::NoCredential { authority, source: Arc::new(rustls::Error::AlertReceived(*alert)) }
        }
        Some(tls) => ApiServerError::Untrusted { authority, source: Arc::new(tls.clone()) },
    }
}

/// Whether the server's alert is about our certificate.
fn concerns_us(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::UnknownCA
    )
}

/// A socket and its place among [`super::CONNECTIONS_MAX`], which is free again when the socket is closed. Shut down is
/// whole; dropped is reset.
struct Socket {
    tls: TlsStream<TcpStream>,
    is_shut_down: bool,
    _seat: OwnedSemaphorePermit,
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut_down = Pin::new(&mut self.tls).poll_shutdown(cx);
        self.is_shut_down |= matches!(shut_down, Poll::Ready(Ok(())));
        shut_down
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.tls.is_write_vectored()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.is_shut_down {
            // Fails only on a socket that is gone already.
            let _ = self.tls.get_ref().0.set_zero_linger();
        }
    }
}
