//! One connection to the API server: dialed, verified, and driven by a background task of the scope.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use daemon::Scope;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::ext::on_informational;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{interval, timeout};
use tokio_rustls::TlsConnector;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::debug;

use super::endpoints::Destination;
use super::error::ApiServerError;
use super::material::ApiServerAddress;
use super::request_body::RequestBody;
use super::serving_certificates::ServingCertificates;
use super::socket::Socket;
use super::tls::HTTP_2;
use super::tls_error::handshake_error;
use crate::metrics;
use http2_tasks::{Http2Driver, Http2Tasks};

mod http2_tasks;

/// Most requests on one HTTP/2 connection at a time. kube-apiserver grants 100. Requests beyond the grant
/// would wait in a queue of the HTTP/2 library that nobody sees.
pub const STREAMS_MAX: usize = 90;

/// Bytes that the API server may send of one answer before a caller has taken them. The API server is close,
/// so they fill the path. Each frame costs the HTTP/2 library 256 bytes, however small it is, as lines of a
/// log are. 256 KiB.
const STREAM_WINDOW: u32 = 256 * 1024;

/// Bytes that it may send on a connection: more than all windows of all streams, so that slow readers never
/// block others. The HTTP/2 library ends the connection once the cost of small unread frames exceeds half of
/// it. That is enough for as many logs of 30 bytes a line as the server allows slow readers on a tunnel. 128
/// MiB.
const CONNECTION_WINDOW: u32 = 128 * 1024 * 1024;
const _: () = assert!(CONNECTION_WINDOW as usize >= STREAMS_MAX * STREAM_WINDOW as usize);

/// Bytes of one request that are buffered while the API server does not take them.
const SEND_BUFFER_BYTES_MAX: usize = 128 * 1024;

/// Most streams that are remembered after a reset here, and for how long. Late frames of these are ignored.
/// For other streams the HTTP/2 library answers each late frame with a reset, counts them, and at last ends
/// the connection. No API server is so slow.
const RESETS_REMEMBERED_MAX: usize = 4096;
const RESETS_REMEMBERED_FOR: Duration = Duration::from_secs(30);

/// Interval at which a new connection is checked for the server's grant, because hyper wakes nobody when it
/// arrives.
const GRANT_CHECK_EVERY: Duration = Duration::from_millis(1);

/// Largest head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEAD_BYTES_MAX_HTTP_2: u32 = HEAD_BYTES_MAX as u32;

/// Most headers of an answer over HTTP/1.1. Over HTTP/2 only their size counts.
const HEADERS_MAX: usize = 100;

/// Most informational heads (1xx) before an answer over HTTP/1.1; with more the connection is closed. hyper
/// skips them, and HTTP allows them without end.
const INFORMATIONAL_MAX: usize = 64;

/// Interval of pings on a silent connection, also while it is idle: a firewall may have forgotten it.
const PING_EVERY: Duration = Duration::from_secs(20);
const PONG_MAX: Duration = Duration::from_secs(10);

/// The sender of an HTTP/2 connection. Clones are the same connection.
pub(super) type Http2Sender = http2::SendRequest<RequestBody>;

/// hyper's error for a request without an answer. It has the request, too, if no byte of it was written.
pub(super) type SendError = TrySendError<Request<RequestBody>>;

/// A connection, by the HTTP version that the server chose.
pub(super) enum Connection {
    Http2 {
        sender: Http2Sender,
        /// Streams that the server allows at a time, as it last said.
        granted: Arc<AtomicUsize>,
    },
    Http1(Http1Connection),
}

/// An HTTP/1.1 connection, for one exchange at a time. Dropping it closes it at once.
#[derive(Debug)]
pub(super) struct Http1Connection {
    sender: http1::SendRequest<RequestBody>,
    close: CancellationToken,
    _close_on_drop: DropGuard,
}

/// The purpose of a connection, which decides its protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Ordinary requests, over HTTP/2 or HTTP/1.1.
    Pooled,
    /// A single upgrade, over HTTP/1.1.
    Upgrade,
}

/// The API server to dial, and the record of the certificates that are shown.
pub(super) type DialTarget<'a> = (&'a (Destination, ApiServerAddress), &'a ServingCertificates);

/// Dials and verifies the API server, and counts the outcome.
pub(super) async fn dial(
    target: DialTarget<'_>,
    tls: Arc<ClientConfig>,
    purpose: Purpose,
    limit: Duration,
    permit: OwnedSemaphorePermit,
    scope: &Scope,
) -> Result<Connection, ApiServerError> {
    let dialed = connect(target, tls, purpose, limit, permit, scope).await;
    metrics::apiserver_dialed(dialed.as_ref().err().map(ApiServerError::code));
    dialed
}

/// Dials and verifies the API server without counting the outcome.
pub(super) async fn connect(
    ((destination, target), certificates): DialTarget<'_>,
    tls: Arc<ClientConfig>,
    purpose: Purpose,
    limit: Duration,
    permit: OwnedSemaphorePermit,
    scope: &Scope,
) -> Result<Connection, ApiServerError> {
    let mut deadline = pin!(tokio::time::sleep(limit));
    let unreachable =
        |error| ApiServerError::Unreachable { authority: target.authority.clone(), source: Arc::new(error) };
    // Both arms are cancel-safe: a dropped connect closes its socket.
    let tcp = tokio::select! {
        connected = TcpStream::connect((target.host.as_str(), target.port)) => connected.map_err(unreachable)?,
        () = &mut deadline => return Err(unreachable(io::ErrorKind::TimedOut.into())),
    };
    // Small frames of watches and of HTTP/2 are not delayed.
    tcp.set_nodelay(true).map_err(unreachable)?;
    let handshake = TlsConnector::from(tls).connect(target.server_name.clone(), tcp);
    // Cancel-safe in the same way.
    let tls = tokio::select! {
        shaken = handshake => shaken.map_err(|error| handshake_error(target, error))?,
        () = &mut deadline => return Err(ApiServerError::Silent(limit)),
    };
    if let Some([shown, ..]) = tls.get_ref().1.peer_certificates() {
        certificates.note(*destination, &target.authority, shown);
    }
    let is_multiplexed = tls.get_ref().1.alpn_protocol() == Some(HTTP_2);
    let socket = TokioIo::new(Socket::new(tls, permit));
    timeout(limit, open(socket, is_multiplexed, purpose, scope))
        .await
        .map_err(|_| ApiServerError::Silent(limit))?
}

impl Http1Connection {
    pub(super) fn send(
        &mut self,
        mut request: Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, SendError>> + use<> {
        let (close, count) = (self.close.clone(), AtomicUsize::new(0));
        on_informational(&mut request, move |_| {
            if count.fetch_add(1, Ordering::Relaxed) >= INFORMATIONAL_MAX {
                close.cancel();
            }
        });
        self.sender.try_send_request(request)
    }

    /// Returns true if the last exchange is over and another may begin.
    pub(super) fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Waits until another exchange may begin. Returns false if the connection has ended.
    pub(super) async fn ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }
}

async fn open(
    socket: TokioIo<Socket>,
    is_multiplexed: bool,
    purpose: Purpose,
    scope: &Scope,
) -> Result<Connection, ApiServerError> {
    if is_multiplexed && purpose == Purpose::Pooled {
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
    scope.spawn_background(async move {
        let driven = match purpose {
            Purpose::Pooled => closed.run_until_cancelled(drive_without_shutdown(connection)).await,
            Purpose::Upgrade => closed.run_until_cancelled(connection.with_upgrades()).await,
        };
        if let Some(Err(error)) = driven {
            debug!(%error, "a connection to the API server broke");
        }
    });
    // So that it is ready as soon as it is in the pool.
    sender.ready().await.map_err(lost)?;
    let _close_on_drop = close.clone().drop_guard();
    Ok(Connection::Http1(Http1Connection { sender, close, _close_on_drop }))
}

/// Drives a connection without ever shutting it down. hyper would shut it down also for an exchange that
/// broke off, and the FIN would wait behind an upload that the API server does not read. After a complete
/// exchange nothing is under way.
async fn drive_without_shutdown(
    mut connection: http1::Connection<TokioIo<Socket>, RequestBody>,
) -> Result<(), hyper::Error> {
    poll_fn(|cx| connection.poll_without_shutdown(cx)).await
}

/// Returns once the server has granted a number of streams. Requests beyond it would be refused, or wait in a
/// queue of the HTTP/2 library behind the longest one.
async fn open_multiplexed(socket: TokioIo<Socket>, scope: &Scope) -> Result<Connection, ApiServerError> {
    let tasks = Http2Tasks::default();
    let (sender, connection) = http2::Builder::new(tasks.clone())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        // Until the server's settings have arrived.
        .initial_max_send_streams(0)
        .max_send_buf_size(SEND_BUFFER_BYTES_MAX)
        .max_header_list_size(HEAD_BYTES_MAX_HTTP_2)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_MAX)
        .keep_alive_while_idle(true)
        .max_concurrent_reset_streams(RESETS_REMEMBERED_MAX)
        .reset_stream_duration(RESETS_REMEMBERED_FOR)
        // hyper counts these over the connection's whole life, and callers who hang up cause them. At the
        // limit all other requests of the connection would end, too.
        .max_local_error_reset_streams(None)
        .handshake(socket)
        .await
        .map_err(lost)?;
    let mut driver = Http2Driver::new(connection, tasks);
    let mut ticks = interval(GRANT_CHECK_EVERY);
    let first_grant = loop {
        // Both arms are cancel-safe: the driver is polled by reference, and a tick has nothing to lose.
        tokio::select! {
            ended = &mut driver => return Err(ended.map_or_else(lost, |()| ApiServerError::CutShort)),
            _ = ticks.tick() => match driver.granted_streams() {
                0 => {}
                grant => break grant,
            },
        }
    };
    let granted = Arc::new(AtomicUsize::new(first_grant));
    let grant = granted.clone();
    scope.spawn_background(async move {
        // Polled with every request, so that a changed grant is known soon.
        let driven = poll_fn(|cx| {
            let driven = Pin::new(&mut driver).poll(cx);
            grant.store(driver.granted_streams(), Ordering::Relaxed);
            driven
        });
        if let Err(error) = driven.await {
            debug!(%error, "a connection to the API server broke");
        }
    });
    Ok(Connection::Http2 { sender, granted })
}

fn lost(error: hyper::Error) -> ApiServerError {
    ApiServerError::Lost(Arc::new(error))
}
