//! Detects that a caller on HTTP/1.1 has disconnected, also while nobody reads from its connection.
//!
//! hyper does not read while it waits for an answer and holds bytes of the next request. It would see the
//! caller's end of file only after the answer, and an idle watch would stay open at the API server. While an
//! exchange runs this wrapper reads ahead, up to a limit, and treats the end of file as a disconnect. An
//! upload that nobody reads fills that limit; then the socket itself reports a FIN or RST. After the last
//! answer such an upload is read for a short time (`linger`), because the RST for it would truncate the
//! answer.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use http::StatusCode;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::linger::LingeringStream;
use super::malformed::{PendingAnswer, http1};
use crate::dialing::local_stream::{self, LocalStream, PrefixedStream};

/// Most bytes that a caller may send before the answer to its previous request. They are mostly pipelined
/// requests.
const AHEAD_BYTES_MAX: usize = 64 * 1024;

/// Size of one read by hyper, in bytes: a TLS record.
const READ_BYTES_MAX: usize = 16 * 1024;

/// A caller's connection, shared by hyper and [`Disconnected`]. One task polls both.
pub(super) struct WatchedConnection(Arc<Mutex<ReadAhead>>);

/// Resolves when the caller disconnects during an exchange.
pub(super) struct Disconnected {
    ahead: Weak<Mutex<ReadAhead>>,
    exchange: Arc<ExchangeState>,
    /// Resolves with the caller's FIN or RST. `None` until an upload has filled the read-ahead buffer.
    peer_closed: Option<PeerClosed>,
}

type PeerClosed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The state of the exchange on a connection. On HTTP/1.1 at most one runs at a time.
#[derive(Default)]
pub(super) struct ExchangeState {
    running: AtomicBool,
    /// True from the beginning of an exchange until all bytes of its answer were written.
    unwritten: AtomicBool,
    uploading: AtomicBool,
    upgraded: AtomicBool,
}

/// Marks an exchange as running until it is dropped.
pub(super) struct RunningGuard(Arc<ExchangeState>);

struct ReadAhead {
    stream: LingeringStream<TlsStream<TcpStream>>,
    bytes: BytesMut,
    ended: Option<io::Result<()>>,
    exchange: Arc<ExchangeState>,
    /// An answer in place of hyper's own, which is not written yet.
    answer: PendingAnswer,
}

/// Wraps a caller's connection, which drops up to `linger_bytes_max` unread bytes when it closes.
pub(super) fn watch(
    stream: TlsStream<TcpStream>,
    linger_bytes_max: usize,
) -> (WatchedConnection, Disconnected, Arc<ExchangeState>) {
    let exchange = Arc::new(ExchangeState::default());
    let stream = LingeringStream::new(stream, linger_bytes_max);
    let ahead = ReadAhead {
        stream,
        bytes: BytesMut::new(),
        ended: None,
        exchange: Arc::clone(&exchange),
        answer: PendingAnswer::default(),
    };
    let ahead = Arc::new(Mutex::new(ahead));
    let disconnected =
        Disconnected { ahead: Arc::downgrade(&ahead), exchange: Arc::clone(&exchange), peer_closed: None };
    (WatchedConnection(ahead), disconnected, exchange)
}

/// Returns true if the connection is no longer HTTP after an answer with this status.
pub(super) fn is_protocol_switch(is_connect: bool, status: StatusCode) -> bool {
    status == StatusCode::SWITCHING_PROTOCOLS || (is_connect && status.is_success())
}

impl WatchedConnection {
    /// The connection itself, after the bytes that were read ahead, once nothing else shares it.
    pub(super) fn into_near(self) -> Box<dyn LocalStream> {
        match Arc::try_unwrap(self.0) {
            Ok(ahead) => {
                let ReadAhead { stream, bytes, .. } =
                    ahead.into_inner().unwrap_or_else(PoisonError::into_inner);
                Box::new(PrefixedStream::new(bytes.freeze(), stream.into_inner()))
            }
            Err(shared) => Box::new(TokioIo::new(Self(shared))),
        }
    }
}

impl LocalStream for TokioIo<WatchedConnection> {
    /// Does nothing: another task may still watch the connection on its own runtime.
    fn move_to_current_runtime(&mut self) {}
}

impl ExchangeState {
    /// Marks an exchange as running, and as uploading if its request has a body.
    pub(super) fn begin(self: &Arc<Self>, has_body: bool) -> RunningGuard {
        self.uploading.store(has_body, Ordering::Relaxed);
        self.unwritten.store(true, Ordering::Relaxed);
        self.running.store(true, Ordering::Relaxed);
        RunningGuard(Arc::clone(self))
    }

    /// Returns true if what hyper writes now is no answer of an exchange, but its own to a request that it cannot
    /// read.
    fn is_between_exchanges(&self) -> bool {
        let is_any = [&self.running, &self.unwritten, &self.upgraded];
        !is_any.into_iter().any(|state| state.load(Ordering::Relaxed))
    }

    /// Notes that everything was written. Bytes of a running exchange may still follow.
    fn flushed(&self) {
        if !self.running.load(Ordering::Relaxed) {
            self.unwritten.store(false, Ordering::Relaxed);
        }
    }

    /// Notes that the connection is no longer HTTP, so that its halves end independently.
    pub(super) fn upgrade(&self) {
        self.upgraded.store(true, Ordering::Relaxed);
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Relaxed);
        self.0.uploading.store(false, Ordering::Relaxed);
    }
}

impl ReadAhead {
    /// Reads ahead until the stream has no bytes or the buffer is full.
    fn poll_fill(&mut self, cx: &mut Context<'_>) {
        let mut chunk = [0; 4096];
        while self.ended.is_none() && self.bytes.len() < AHEAD_BYTES_MAX {
            let room = chunk.len().min(AHEAD_BYTES_MAX - self.bytes.len());
            let mut into = ReadBuf::new(&mut chunk[..room]);
            match Pin::new(&mut self.stream).poll_read(cx, &mut into) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) if into.filled().is_empty() => self.ended = Some(Ok(())),
                Poll::Ready(Ok(())) => self.bytes.extend_from_slice(into.filled()),
                Poll::Ready(Err(error)) => self.ended = Some(Err(error)),
            }
        }
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.answer.poll_write(&mut self.stream, cx)
    }
}

impl Future for Disconnected {
    type Output = ();

    /// Never ready between exchanges, where hyper reads and sees the end itself. The task that polls hyper
    /// polls this too, so that it is polled after each change.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if !this.exchange.running.load(Ordering::Relaxed) {
            this.peer_closed = None;
            return Poll::Pending;
        }
        // After an upgrade the pipe has the connection and sees its end.
        let Some(ahead) = this.ahead.upgrade() else { return Poll::Pending };
        let mut ahead = lock(&ahead);
        ahead.poll_fill(cx);
        if ahead.ended.is_some() {
            return Poll::Ready(());
        }
        if ahead.bytes.len() < AHEAD_BYTES_MAX {
            return Poll::Pending;
        }
        // An upload may fill the buffer and wait for its reader. Any other caller has sent more than the
        // limit.
        if !this.exchange.uploading.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        let peer_closed =
            this.peer_closed.get_or_insert_with(|| Box::pin(peer_closed(ahead.stream.get_ref().get_ref().0)));
        peer_closed.as_mut().poll(cx)
    }
}

impl Read for WatchedConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut ahead = lock(&self.0);
        if !ahead.bytes.is_empty() {
            let taken = ahead.bytes.len().min(into.remaining());
            into.put_slice(&ahead.bytes[..taken]);
            ahead.bytes.advance(taken);
            return Poll::Ready(Ok(()));
        }
        if let Some(ended) = ahead.ended.take() {
            // The error is returned once; later reads see the end.
            ahead.ended = Some(Ok(()));
            return Poll::Ready(ended);
        }
        let mut chunk = [0; READ_BYTES_MAX];
        let room = chunk.len().min(into.remaining());
        let mut read = ReadBuf::new(&mut chunk[..room]);
        ready!(Pin::new(&mut ahead.stream).poll_read(cx, &mut read))
            .inspect_err(|_| ahead.ended = Some(Ok(())))?;
        if read.filled().is_empty() {
            // hyper does not pass the end on to an exchange whose upload nobody reads.
            ahead.ended = Some(Ok(()));
        }
        into.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl Write for WatchedConnection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut ahead = lock(&self.0);
        ready!(ahead.poll_answer(cx))?;
        ready!(Pin::new(&mut ahead.stream).poll_flush(cx))?;
        ahead.exchange.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut ahead = lock(&self.0);
        ready!(ahead.poll_answer(cx))?;
        if ahead.exchange.upgraded.load(Ordering::Relaxed) {
            return Pin::new(ahead.stream.get_mut()).poll_shutdown(cx);
        }
        Pin::new(&mut ahead.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        lock(&self.0).stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut ahead = lock(&self.0);
        ready!(ahead.poll_answer(cx))?;
        let own = pieces.iter().map(|piece| &piece[..]).find(|piece| !piece.is_empty());
        if let Some(own) = own.filter(|_| ahead.exchange.is_between_exchanges()) {
            ahead.answer = http1::answer(own).into();
            return Poll::Ready(Ok(pieces.iter().map(|piece| piece.len()).sum()));
        }
        Pin::new(&mut ahead.stream).poll_write_vectored(cx, pieces)
    }
}

fn lock(ahead: &Mutex<ReadAhead>) -> MutexGuard<'_, ReadAhead> {
    ahead.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the peer's FIN or RST has arrived, also after bytes that nobody reads.
fn peer_closed(socket: &TcpStream) -> impl Future<Output = ()> + Send + use<> {
    // A second descriptor, because this must not borrow the stream.
    let second = local_stream::duplicate_socket(socket, TcpStream::from_std);
    async move {
        let Ok(second) = second else {
            // No descriptor was left: the end is seen when the upload is read.
            return pending().await;
        };
        // Urgent bytes are not registered for, so that only the end of reading makes this ready. It fails
        // only with the runtime, which ends the connection too.
        let _ = second.ready(Interest::PRIORITY).await;
    }
}
