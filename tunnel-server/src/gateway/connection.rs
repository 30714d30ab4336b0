//! One caller's connection: HTTP/1.1 or HTTP/2, with limits, until it ends or the drain asks it to.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use daemon::{Scope, chain};
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tracing::debug;

use super::aside::Aside;
use super::linger::Lingering;
use super::patience::Waits;
use super::{Gateway, WayIn, hangup};
use crate::identity::Certified;
use crate::listener::CallerStream;

/// Streams of one HTTP/2 connection. Go's programs open another connection beyond it.
const STREAMS_MAX: u32 = 250;

/// What one caller's stream may have in flight towards a cluster that does not read.
pub(super) const STREAM_WINDOW_BYTES: u32 = 256 * 1024;

/// All streams together: the connection's window never binds before the streams' own, because it is shared.
const CONNECTION_WINDOW_BYTES: u32 = STREAMS_MAX * STREAM_WINDOW_BYTES;

/// What hyper holds for one stream of a caller that does not read.
const SEND_BYTES_MAX: usize = 64 * 1024;

/// Largest head, in bytes. Beyond it HTTP/1.1 gets 431 and HTTP/2 a stream error.
const HEAD_BYTES_MAX: u32 = proto::headers::HEADER_BYTES_MAX as u32;

/// A head of HTTP/1.1 arrives within this time, counted from the end of the exchange before: slow heads and idle
/// connections are one thing to hyper. Longer than Go's clients keep idle connections (90 s) would be of no use.
const HEAD_OR_IDLE_MAX: Duration = Duration::from_secs(90);

/// An HTTP/2 connection that does not answer a PING is dead.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_MAX: Duration = Duration::from_secs(20);

/// Resets that a caller may provoke before its connection is closed (CVE-2023-44487, CVE-2025-8671).
const PENDING_RESETS_MAX: usize = 20;
const LOCAL_RESETS_MAX: usize = 1024;

/// Who is at the other end of a connection.
pub struct Peer {
    pub(super) address: SocketAddr,
    /// Whether that is nobody's, because it came by a Unix socket.
    pub(super) is_local: bool,
    pub(super) server_name: Option<String>,
    pub(super) certified: Option<Certified>,
    /// For clusters that are away.
    pub(super) waits: Waits,
    /// By which it came, if not by the callers' own door.
    pub(super) way_in: Option<WayIn>,
    /// Where its logins fail too often.
    pub(super) aside: Aside,
}

impl Gateway {
    /// Whose connection this is: its address, the name that it asked TLS for, and its certificate, if it showed one. One that
    /// names another role is no caller's.
    fn peer(&self, stream: &CallerStream) -> Peer {
        let certified =
            stream.peer_certificates().and_then(|chain| self.0.authenticator.read_certificate(chain));
        let server_name = stream.server_name().map(str::to_owned);
        let address = stream.peer();
        let (waits, aside) = (Waits::default(), Aside::default());
        Peer { address, is_local: false, server_name, certified, waits, way_in: None, aside }
    }

    /// Serves a connection whose handshake is done, until it ends. In a drain it takes no more requests and ends with
    /// its last answer.
    pub async fn serve_connection(self, stream: CallerStream) {
        let (peer, is_h2) = (self.peer(&stream), stream.is_http2());
        let stream = stream.into_stream();
        if is_h2 {
            let (peer, scope) = (Arc::new(peer), self.0.passage.scope.clone());
            let served = Box::pin(self.serve_h2(stream, Arc::clone(&peer), scope.clone()));
            note(peer.aside.drive(served, &scope).await, peer.address);
        } else {
            let (stream, hung_up, exchange) = hangup::watch(stream);
            self.serve_to_its_end(stream, peer, Some(exchange), hung_up).await;
        }
    }

    /// The same of one that speaks HTTP/1.1, which ends when `hung_up` resolves, too.
    pub(super) async fn serve_to_its_end<S>(
        self,
        stream: S,
        peer: Peer,
        watched: Option<Arc<hangup::Exchange>>,
        hung_up: impl Future<Output = ()> + Send + 'static,
    ) where
        S: Read + Write + Unpin + Send + 'static,
    {
        let (peer, scope) = (Arc::new(peer), self.0.passage.scope.clone());
        let served = Box::pin(self.serve_h1(stream, Arc::clone(&peer), watched, hung_up, scope.clone()));
        note(peer.aside.drive(served, &scope).await, peer.address);
    }

    async fn serve_h1<S>(
        self,
        stream: S,
        peer: Arc<Peer>,
        watched: Option<Arc<hangup::Exchange>>,
        hung_up: impl Future<Output = ()>,
        scope: Scope,
    ) -> hyper::Result<()>
    where
        S: Read + Write + Unpin + Send + 'static,
    {
        let service = TowerToHyperService::new(self.stack(peer, watched));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_OR_IDLE_MAX)
            .max_headers(proto::headers::HEADERS_MAX)
            .max_header_size(HEAD_BYTES_MAX as usize)
            .max_buf_size(HEAD_BYTES_MAX as usize)
            .keep_alive(true)
            .half_close(false)
            .serve_connection(stream, service)
            .with_upgrades();
        let mut connection = pin!(connection);
        let mut hung_up = pin!(hung_up);
        let mut draining = pin!(scope.draining());
        let mut drains = false;
        loop {
            // All arms are cancel-safe: each is polled by reference. Biased, so that hyper reads first and the watch
            // for a hang-up only reads what hyper does not.
            tokio::select! {
                biased;
                served = &mut connection => return served,
                () = &mut hung_up => return Ok(()),
                () = &mut draining, if !drains => {
                    drains = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }

    async fn serve_h2(
        self,
        stream: TlsStream<TcpStream>,
        peer: Arc<Peer>,
        scope: Scope,
    ) -> hyper::Result<()> {
        let service = TowerToHyperService::new(self.stack(peer, None));
        let connection = http2::Builder::new(scope.clone())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .adaptive_window(false)
            .max_send_buf_size(SEND_BYTES_MAX)
            .max_header_list_size(HEAD_BYTES_MAX)
            .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
            .max_local_error_reset_streams(LOCAL_RESETS_MAX)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_MAX)
            .serve_connection(TokioIo::new(Lingering::new(stream)), service);
        let mut connection = pin!(connection);
        // Both arms are cancel-safe: each is polled by reference.
        tokio::select! {
            served = &mut connection => return served,
            () = scope.draining() => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    }
}

fn note(served: Option<hyper::Result<()>>, from: SocketAddr) {
    if let Some(Err(error)) = served {
        debug!(%from, error = %chain(&error), "a caller's connection broke");
    }
}
