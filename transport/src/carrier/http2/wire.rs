//! Counts the bytes under HTTP/2, and scans them for the ends of streams.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::settings::Side;

/// Length of the preface of an HTTP/2 client, before its first frame (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;

/// A frame's header (RFC 9113, section 4.1): three bytes of length, type, flags, four bytes of stream.
const HEADER_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;

/// A connection's byte stream, as HTTP/2 reads and writes it.
pub(super) struct Wire<T> {
    io: T,
    scanner: Scanner,
    stats: Arc<WireStats>,
}

/// Counters of a [`Wire`], and the streams that have ended on it.
#[derive(Default)]
pub(super) struct WireStats {
    received: AtomicU64,
    sent: AtomicU64,
    /// Streams whose last byte has arrived since the last call of `take_ended_streams`. The list is bounded
    /// by the streams that the peer ends between two polls of the connection.
    ended: Mutex<Vec<u32>>,
}

/// Finds the ends of streams in the received bytes. h2 reports an end only to a reader that has read up to
/// it; the peer wants to know when the bytes have arrived.
struct Scanner {
    header: [u8; HEADER_BYTES],
    have: usize,
    /// Bytes until the next header.
    skip: usize,
    /// The stream that ends with them.
    ends: Option<u32>,
}

impl<T> Wire<T> {
    pub(super) fn new(io: T, side: Side) -> (Self, Arc<WireStats>) {
        let stats = Arc::new(WireStats::default());
        // The tunnel's server is the HTTP/2 client.
        let skip = match side {
            Side::Agent => PREFACE_BYTES,
            Side::Server => 0,
        };
        (Self { io, scanner: Scanner::new(skip), stats: Arc::clone(&stats) }, stats)
    }
}

impl WireStats {
    /// Bytes of HTTP/2 received so far.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes of HTTP/2 sent so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns true if `take_ended_streams` would return a stream.
    pub(super) fn has_ended_streams(&self) -> bool {
        !self.ended.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Takes the streams whose last byte has arrived since the last call.
    pub(super) fn take_ended_streams(&self) -> Vec<u32> {
        std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn end(&self, stream: u32) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
    }
}

impl Scanner {
    fn new(skip: usize) -> Self {
        Self { header: [0; HEADER_BYTES], have: 0, skip, ends: None }
    }

    /// Scans the next bytes and reports each stream whose last byte is among them.
    fn feed(&mut self, mut bytes: &[u8], mut ended: impl FnMut(u32)) {
        while !bytes.is_empty() {
            let (skipped, rest) = bytes.split_at(self.skip.min(bytes.len()));
            self.skip -= skipped.len();
            if self.skip > 0 {
                return;
            }
            self.ends.take().into_iter().for_each(&mut ended);
            let (taken, rest) = rest.split_at(rest.len().min(HEADER_BYTES - self.have));
            self.header[self.have..self.have + taken.len()].copy_from_slice(taken);
            self.have += taken.len();
            if self.have == HEADER_BYTES {
                self.have = 0;
                self.begin_frame();
                if self.skip == 0 {
                    self.ends.take().into_iter().for_each(&mut ended);
                }
            }
            bytes = rest;
        }
    }

    fn begin_frame(&mut self) {
        let [l0, l1, l2, kind, flags, id @ ..] = self.header;
        self.skip = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        let ends = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
        // The first bit is reserved.
        self.ends = ends.then_some(u32::from_be_bytes(id) & (u32::MAX >> 1));
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Wire<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, into))?;
        let this = &mut *self;
        let read = &into.filled()[before..];
        this.stats.received.fetch_add(read.len() as u64, Ordering::Relaxed);
        this.scanner.feed(read, |stream| this.stats.end(stream));
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, bytes))?;
        self.stats.sent.fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, bytes))?;
        self.stats.sent.fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_ended_with_its_last_byte_however_the_bytes_are_cut() {
        let mut bytes = vec![b'P'; PREFACE_BYTES];
        bytes.extend(frame(4, 1, 0, 12));
        bytes.extend(frame(DATA, 0, 5, 300));
        bytes.extend(frame(DATA, END_STREAM, 5, 20));
        let whole = bytes.len();
        bytes.extend(frame(DATA, END_STREAM, 7, 0));
        bytes.extend(frame(HEADERS, END_STREAM | 4, 9, 3));
        for piece in [1, 2, 8, 9, 10, 100, bytes.len()] {
            let (mut scanner, mut fed, mut ended) = (Scanner::new(PREFACE_BYTES), 0, Vec::new());
            for piece in bytes.chunks(piece) {
                fed += piece.len();
                scanner.feed(piece, |stream| ended.push(stream));
                assert_eq!(ended.contains(&5), fed >= whole, "{fed}");
            }
            assert_eq!(ended, [5, 7, 9], "in pieces of {piece}");
        }
    }

    fn frame(kind: u8, flags: u8, stream: u32, bytes: u32) -> Vec<u8> {
        let mut frame = bytes.to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(vec![0xff; bytes as usize]);
        frame
    }
}
