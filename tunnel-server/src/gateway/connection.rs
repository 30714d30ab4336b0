//! Serves one caller's connection by HTTP/1.1 or HTTP/2, with limits, until it ends or the server drains.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use daemon::{Scope, error_chain};
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use policy::action::TARGET_BYTES_MAX;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;
use tracing::debug;

use super::connection_end::ConnectionEnd;
use super::disconnect::{self, ExchangeState};
use super::entry_point::EntryPoint;
use super::linger::LingeringStream;
use super::malformed::http2::AnsweredResets;
use super::peer::Peer;
use super::state::Gateway;
use crate::identity::Certified;
use crate::limits::ConnectionGuard;
use crate::listener::CallerStream;

/// Streams of one HTTP/2 connection. Go's programs open another connection beyond it.
const STREAMS_MAX: u32 = 250;

/// Flow-control window of one caller's stream, in bytes: the most it has in flight towards a cluster that
/// does not read.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;

/// Flow-control window of a connection. It never limits before the windows of its streams do, because they
/// share it.
const CONNECTION_WINDOW_BYTES: u32 = STREAMS_MAX * STREAM_WINDOW_BYTES;

/// Most bytes that hyper buffers for one stream whose caller does not read.
const SEND_BYTES_MAX: usize = 64 * 1024;

/// Largest head that the HTTP libraries take, in bytes, and most headers of HTTP/1.1. Both are above our own
/// limits, which are checked later and answered in words: a target, headers, and what HTTP/2 counts for each
/// header beside its name and value (RFC 9113, section 6.5.2).
const HEAD_BYTES_MAX: u32 = 192 * 1024;
const HEADERS_MAX: usize = proto::headers::HEADERS_MAX + 28;
const HEADER_OVERHEAD_BYTES: usize = 32;
const _: () = assert!(
    TARGET_BYTES_MAX + proto::headers::HEADER_BYTES_MAX + HEADERS_MAX * HEADER_OVERHEAD_BYTES
        < HEAD_BYTES_MAX as usize
);

/// Time for the head of an HTTP/1.1 request, counted from the end of the exchange before, because hyper does
/// not tell slow heads from idle connections. More would be of no use: Go's clients keep idle connections for
/// 90 s.
const HEAD_OR_IDLE_MAX: Duration = Duration::from_secs(90);

/// Interval and deadline of PINGs. An HTTP/2 connection that does not answer one is closed.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_MAX: Duration = Duration::from_secs(20);

/// Bytes that are read and dropped while a connection lingers: as much as one upload can have in flight.
const LINGER_BYTES_MAX: usize = STREAM_WINDOW_BYTES as usize;

/// Resets that a caller may provoke before its connection is closed (CVE-2023-44487, CVE-2025-8671).
const PENDING_RESETS_MAX: usize = 20;
const LOCAL_RESETS_MAX: usize = 1024;

impl Gateway {
    /// Serves a connection after its TLS handshake, until it ends. During a drain it accepts no more requests
    /// and ends after its last answer.
    pub async fn serve_connection(self, stream: CallerStream) {
        let certified =
            stream.peer_certificates().and_then(|chain| self.0.authenticator.read_certificate(chain));
        let (_counted, end) = self.count_connection(certified.as_ref());
        let peer =
            Peer::caller(stream.peer(), stream.server_name().map(str::to_owned), certified).ending(end);
        let is_h2 = stream.is_http2();
        let stream = stream.into_stream();
        if is_h2 {
            let (peer, scope) = (Arc::new(peer), self.0.forwarding.scope.clone());
            let served = Box::pin(self.serve_h2(stream, Arc::clone(&peer), scope.clone()));
            log_end(peer.low_priority.drive(served, &scope).await, peer.address);
        } else {
            self.serve_watched(stream, peer).await;
        }
    }

    /// Counts the connection of a caller with a certificate, until the guard is dropped. A connection beyond the caller's
    /// limit, or with a revoked certificate, ends with the answer to its first request.
    fn count_connection(&self, certified: Option<&Certified>) -> (Option<ConnectionGuard>, ConnectionEnd) {
        let Some(caller) = certified.and_then(Certified::caller) else {
            return (None, ConnectionEnd::default());
        };
        match self.0.limiter.enter_connection(caller) {
            Ok(counted) if self.0.exchanges.check_revoked(caller).is_ok() => {
                (Some(counted), ConnectionEnd::default())
            }
            Ok(counted) => (Some(counted), ConnectionEnd::soon(None)),
            Err(limited) => (None, ConnectionEnd::soon(Some(limited))),
        }
    }

    /// Serves a connection by `entry_point` after its TLS handshake, until it ends or becomes a target's.
    pub async fn serve_entry_point(self, stream: CallerStream, entry_point: EntryPoint) {
        let peer = Peer::of_entry_point(entry_point, Some(stream.peer()));
        self.serve_watched(stream.into_stream(), peer).await;
    }

    /// Serves a connection by `entry_point` at a Unix socket, until it ends or becomes a target's.
    pub async fn serve_local_entry_point(self, stream: UnixStream, entry_point: EntryPoint) {
        let peer = Peer::of_entry_point(entry_point, None);
        // hyper sees a disconnect itself if no bytes follow the request. A caller that sends more there waits
        // for its answer.
        self.serve_to_end(TokioIo::new(stream), peer, None, std::future::pending()).await;
    }

    /// Serves an HTTP/1.1 connection, and watches for its disconnect.
    async fn serve_watched(self, stream: TlsStream<TcpStream>, peer: Peer) {
        let (stream, disconnected, state) = disconnect::watch(stream, LINGER_BYTES_MAX);
        self.serve_to_end(stream, peer, Some(state), disconnected).await;
    }

    /// Serves an HTTP/1.1 connection until it ends or `disconnected` resolves.
    async fn serve_to_end<S>(
        self,
        stream: S,
        peer: Peer,
        state: Option<Arc<ExchangeState>>,
        disconnected: impl Future<Output = ()> + Send + 'static,
    ) where
        S: Read + Write + Unpin + Send + 'static,
    {
        let (peer, scope) = (Arc::new(peer), self.0.forwarding.scope.clone());
        let served = Box::pin(self.serve_h1(stream, Arc::clone(&peer), state, disconnected, scope.clone()));
        log_end(peer.low_priority.drive(served, &scope).await, peer.address);
    }

    async fn serve_h1<S>(
        self,
        stream: S,
        peer: Arc<Peer>,
        state: Option<Arc<ExchangeState>>,
        disconnected: impl Future<Output = ()>,
        scope: Scope,
    ) -> hyper::Result<()>
    where
        S: Read + Write + Unpin + Send + 'static,
    {
        let service = TowerToHyperService::new(self.stack(Arc::clone(&peer), state));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_OR_IDLE_MAX)
            .max_headers(HEADERS_MAX)
            .max_header_size(HEAD_BYTES_MAX as usize)
            .max_buf_size(HEAD_BYTES_MAX as usize)
            .keep_alive(true)
            .half_close(false)
            .serve_connection(stream, service)
            .with_upgrades();
        let mut connection = pin!(connection);
        let mut disconnected = pin!(disconnected);
        let mut draining = pin!(scope.draining());
        let mut ending = pin!(peer.end.requested());
        let mut due = pin!(peer.end.is_due());
        let mut drains = false;
        loop {
            // All arms are cancel-safe: each is polled by reference. Biased, so that hyper reads first and
            // the watch for a disconnect only reads what hyper does not.
            tokio::select! {
                biased;
                served = &mut connection => return served,
                () = &mut disconnected => return Ok(()),
                () = &mut due => return Ok(()),
                () = &mut draining, if !drains => {
                    drains = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = &mut ending, if !drains => {
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
        let service = TowerToHyperService::new(self.stack(Arc::clone(&peer), None));
        let stream = LingeringStream::new(stream, LINGER_BYTES_MAX);
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
            .serve_connection(TokioIo::new(AnsweredResets::new(stream)), service);
        let mut connection = pin!(connection);
        let mut due = pin!(peer.end.is_due());
        // All arms are cancel-safe: each is polled by reference, or holds nothing.
        tokio::select! {
            served = &mut connection => return served,
            () = &mut due => return Ok(()),
            () = scope.draining() => connection.as_mut().graceful_shutdown(),
            () = peer.end.requested() => connection.as_mut().graceful_shutdown(),
        }
        // Both arms are cancel-safe: each is polled by reference.
        tokio::select! {
            served = &mut connection => served,
            () = &mut due => Ok(()),
        }
    }
}

/// Logs the error with which a connection broke.
fn log_end(served: Option<hyper::Result<()>>, from: SocketAddr) {
    if let Some(Err(error)) = served {
        debug!(%from, error = %error_chain(&error), "a caller's connection broke");
    }
}
