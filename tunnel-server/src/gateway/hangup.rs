//! Notices that a caller on HTTP/1.1 hung up, also while nobody reads from its connection.
//!
//! hyper reads nothing while it waits for an answer and bytes of a next request stand before it, so it would see a
//! caller's end of file only after the answer: an idle watch would live on at the API server. This wrapper reads ahead,
//! up to a limit, while an exchange runs, and takes the end of file for what it is on such a connection, a hang-up.
//! PrefixedStream an upload that nobody reads the limit is reached; there the socket itself says that a FIN or a RST has come.
//! When the last answer was given, such an upload is read on for a moment (`linger`), or the RST for it would cut the answer short.

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

use super::linger::Lingering;
use crate::dialing::local_stream::{self, LocalStream, PrefixedStream};

/// Bytes that a caller may send before the answer to what it sent before: pipelined requests, mostly.
const AHEAD_BYTES_MAX: usize = 64 * 1024;

/// Bytes that hyper gets at a time: a TLS record.
const READ_BYTES_MAX: usize = 16 * 1024;

/// A caller's connection, shared by hyper and by the watch for its end. Both are polled by one task.
pub(super) struct Watched(Arc<Mutex<Ahead>>);

/// Resolves when the caller hung up in the middle of an exchange.
pub(super) struct HungUp {
    ahead: Weak<Mutex<Ahead>>,
    exchange: Arc<Exchange>,
    /// Resolves with the caller's FIN or RST; there once an upload has filled the room.
    far_end: Option<FarEnd>,
}

type FarEnd = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where the exchange on the connection stands; at most one runs at a time on HTTP/1.1.
#[derive(Default)]
pub(super) struct Exchange {
    running: AtomicBool,
    uploading: AtomicBool,
    upgraded: AtomicBool,
}

/// Marks an exchange as running until it is dropped.
pub(super) struct Running(Arc<Exchange>);

struct Ahead {
    stream: Lingering<TlsStream<TcpStream>>,
    bytes: BytesMut,
    ended: Option<io::Result<()>>,
    exchange: Arc<Exchange>,
}

/// Wraps a caller's connection.
pub(super) fn watch(stream: TlsStream<TcpStream>) -> (Watched, HungUp, Arc<Exchange>) {
    let exchange = Arc::new(Exchange::default());
    let stream = Lingering::new(stream);
    let ahead = Ahead { stream, bytes: BytesMut::new(), ended: None, exchange: Arc::clone(&exchange) };
    let ahead = Arc::new(Mutex::new(ahead));
    let hung_up = HungUp { ahead: Arc::downgrade(&ahead), exchange: Arc::clone(&exchange), far_end: None };
    (Watched(ahead), hung_up, exchange)
}

/// Whether behind such an answer the connection is a pipe's and no longer HTTP's.
pub(super) fn is_handed_over(is_connect: bool, status: StatusCode) -> bool {
    status == StatusCode::SWITCHING_PROTOCOLS || (is_connect && status.is_success())
}

impl Watched {
    /// The connection itself, behind what was read ahead of it, once nobody watches it any more.
    pub(super) fn into_near(self) -> Box<dyn LocalStream> {
        match Arc::try_unwrap(self.0) {
            Ok(ahead) => {
                let Ahead { stream, bytes, .. } = ahead.into_inner().unwrap_or_else(PoisonError::into_inner);
                Box::new(PrefixedStream::new(bytes.freeze(), stream.into_inner()))
            }
            Err(watched) => Box::new(TokioIo::new(Self(watched))),
        }
    }
}

impl LocalStream for TokioIo<Watched> {
    /// It may be watched where it is.
    fn move_to_current_runtime(&mut self) {}
}

impl Exchange {
    /// Begins an exchange whose request has a body, or none.
    pub(super) fn begin(self: &Arc<Self>, has_body: bool) -> Running {
        self.uploading.store(has_body, Ordering::Relaxed);
        self.running.store(true, Ordering::Relaxed);
        Running(Arc::clone(self))
    }

    /// From its answer on the connection is no longer HTTP's, and its halves end by themselves.
    pub(super) fn upgrade(&self) {
        self.upgraded.store(true, Ordering::Relaxed);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Relaxed);
        self.0.uploading.store(false, Ordering::Relaxed);
    }
}

impl Ahead {
    /// Reads ahead until there is nothing to read, or no room.
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
}

impl Future for HungUp {
    type Output = ();

    /// Never ready between exchanges: there hyper reads, and sees the end itself. The task that polls this is the one
    /// that polls hyper, so each of its turns looks here as well.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if !this.exchange.running.load(Ordering::Relaxed) {
            this.far_end = None;
            return Poll::Pending;
        }
        // PrefixedStream an upgrade it is whoever has the connection that sees its end.
        let Some(ahead) = this.ahead.upgrade() else { return Poll::Pending };
        let mut ahead = lock(&ahead);
        ahead.poll_fill(cx);
        if ahead.ended.is_some() {
            return Poll::Ready(());
        }
        if ahead.bytes.len() < AHEAD_BYTES_MAX {
            return Poll::Pending;
        }
        // An upload may fill the room and wait for its reader; anything else that does says more than it may.
        if !this.exchange.uploading.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        let far_end =
            this.far_end.get_or_insert_with(|| Box::pin(far_end(ahead.stream.get_ref().get_ref().0)));
        far_end.as_mut().poll(cx)
    }
}

impl Read for Watched {
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
            // Seen once; a reader that asks again sees the same.
            ahead.ended = Some(Ok(()));
            return Poll::Ready(ended);
        }
        let mut chunk = [0; READ_BYTES_MAX];
        let room = chunk.len().min(into.remaining());
        let mut read = ReadBuf::new(&mut chunk[..room]);
        ready!(Pin::new(&mut ahead.stream).poll_read(cx, &mut read))
            .inspect_err(|_| ahead.ended = Some(Ok(())))?;
        if read.filled().is_empty() {
            // hyper keeps this from an exchange whose upload nobody reads.
            ahead.ended = Some(Ok(()));
        }
        into.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl Write for Watched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut lock(&self.0).stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.0).stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut ahead = lock(&self.0);
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
        Pin::new(&mut lock(&self.0).stream).poll_write_vectored(cx, pieces)
    }
}

fn lock(ahead: &Mutex<Ahead>) -> MutexGuard<'_, Ahead> {
    ahead.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the other side's FIN or RST has arrived, also behind bytes that nobody reads.
fn far_end(socket: &TcpStream) -> impl Future<Output = ()> + Send + use<> {
    // A descriptor of its own, because this must not borrow the stream.
    let duplicate_socket = local_stream::duplicate_socket(socket, TcpStream::from_std);
    async move {
        let Ok(duplicate_socket) = duplicate_socket else {
            // No descriptor was left: the end is seen when the upload is read on.
            return pending().await;
        };
        // Urgent bytes are not registered for, so of what is asked for here only the end of reading ever comes.
        let _ = duplicate_socket.ready(Interest::PRIORITY).await; // Fails with the runtime, which takes the connection along.
    }
}
