//! Notices that a caller on HTTP/1.1 hung up, also while nobody reads from its connection.
//!
//! hyper reads nothing while it waits for an answer and bytes of a next request stand before it, so it would see a
//! caller's end of file only after the answer: an idle watch would live on at the API server. This wrapper reads ahead,
//! up to a limit, while an exchange runs, and takes the end of file for what it is on such a connection, a hang-up.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that a caller may send before the answer to what it sent before: pipelined requests, mostly.
const AHEAD_BYTES_MAX: usize = 64 * 1024;

/// A caller's connection, shared by hyper and by the watch for its end. Both are polled by one task.
pub(super) struct Watched<S>(Arc<Mutex<Ahead<S>>>);

/// Resolves when the caller hung up in the middle of an exchange.
pub(super) struct HungUp<S> {
    ahead: Arc<Mutex<Ahead<S>>>,
    exchange: Arc<Exchange>,
}

/// Where the exchange on the connection stands; at most one runs at a time on HTTP/1.1.
#[derive(Default)]
pub(super) struct Exchange {
    running: AtomicBool,
    uploading: AtomicBool,
}

/// Marks an exchange as running until it is dropped.
pub(super) struct Running(Arc<Exchange>);

struct Ahead<S> {
    stream: S,
    bytes: BytesMut,
    ended: Option<io::Result<()>>,
}

/// Wraps a caller's connection.
pub(super) fn watch<S: AsyncRead + Unpin>(stream: S) -> (Watched<S>, HungUp<S>, Arc<Exchange>) {
    let ahead = Arc::new(Mutex::new(Ahead { stream, bytes: BytesMut::new(), ended: None }));
    let exchange = Arc::new(Exchange::default());
    (Watched(Arc::clone(&ahead)), HungUp { ahead, exchange: Arc::clone(&exchange) }, exchange)
}

impl Exchange {
    /// Begins an exchange whose request has a body, or none.
    pub(super) fn begin(self: &Arc<Self>, has_body: bool) -> Running {
        self.uploading.store(has_body, Ordering::Relaxed);
        self.running.store(true, Ordering::Relaxed);
        Running(Arc::clone(self))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Relaxed);
        self.0.uploading.store(false, Ordering::Relaxed);
    }
}

impl<S: AsyncRead + Unpin> Ahead<S> {
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

impl<S: AsyncRead + Unpin> Future for HungUp<S> {
    type Output = ();

    /// Never ready between exchanges: there hyper reads, and sees the end itself. The task that polls this is the one
    /// that polls hyper, so each of its turns looks here as well.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.exchange.running.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        let mut ahead = lock(&self.ahead);
        ahead.poll_fill(cx);
        // An upload may fill the room and wait for its reader; anything else that does says more than it may.
        let says_too_much =
            ahead.bytes.len() >= AHEAD_BYTES_MAX && !self.exchange.uploading.load(Ordering::Relaxed);
        if ahead.ended.is_some() || says_too_much { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<S: AsyncRead + Unpin> Read for Watched<S> {
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
        Pin::new(&mut TokioIo::new(&mut ahead.stream)).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> Write for Watched<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut lock(&self.0).stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.0).stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.0).stream).poll_shutdown(cx)
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

fn lock<S>(ahead: &Mutex<Ahead<S>>) -> MutexGuard<'_, Ahead<S>> {
    ahead.lock().unwrap_or_else(PoisonError::into_inner)
}
