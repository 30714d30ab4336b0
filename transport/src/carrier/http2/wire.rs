//! Counts the bytes under HTTP/2, and scans them for the ends of streams and for floods of frames.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use proto::session::{FrameAllowance, ProtocolViolation};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;

use crate::settings::Side;
use crate::task_budget;

/// Length of the preface of an HTTP/2 client, before its first frame (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;

/// A frame's header (RFC 9113, section 4.1): three bytes of length, type, flags, four bytes of stream.
const HEADER_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;

/// A connection's byte stream, as HTTP/2 reads and writes it.
pub(super) struct Wire<T> {
    io: T,
    scanner: Scanner,
    /// The frames that the peer may still send apart from those that streams need.
    allowance: FrameAllowance,
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
    /// Streams that this side has opened, each of which has one head of an answer.
    opened: AtomicU64,
    violation: OnceLock<ProtocolViolation>,
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
    /// Frames whose header has been complete since the last call of `take_counts`.
    counts: FrameCounts,
    heads: StreamHeads,
}

/// The numbers of received frames, by their need.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct FrameCounts {
    all: u32,
    /// Those that no stream needs. h2 sends hardly any: SETTINGS at the start, and their acknowledgement.
    extra: u32,
}

/// The heads that the peer's streams need. Others are informational (1xx) or trailers, and nobody reads those.
#[derive(Debug, Clone, Copy)]
enum StreamHeads {
    /// The peer opens streams: the highest that it has opened.
    Opening(u32),
    /// The peer answers streams: the number of its answers.
    Answering(u64),
}

impl<T> Wire<T> {
    pub(super) fn new(io: T, side: Side) -> (Self, Arc<WireStats>) {
        let stats = Arc::new(WireStats::default());
        // The tunnel's server is the HTTP/2 client.
        let (skip, heads) = match side {
            Side::Agent => (PREFACE_BYTES, StreamHeads::Opening(0)),
            Side::Server => (0, StreamHeads::Answering(0)),
        };
        let (scanner, allowance) = (Scanner::new(skip, heads), FrameAllowance::new(Instant::now()));
        (Self { io, scanner, allowance, stats: Arc::clone(&stats) }, stats)
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

    /// Notes that this side opens a stream, before its head is sent.
    pub(super) fn stream_opens(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    /// The reason why the connection was ended, if the peer has sent too many frames.
    pub(super) fn violation(&self) -> Option<ProtocolViolation> {
        self.violation.get().cloned()
    }

    fn end(&self, stream: u32) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
    }
}

impl Scanner {
    fn new(skip: usize, heads: StreamHeads) -> Self {
        let counts = FrameCounts::default();
        Self { header: [0; HEADER_BYTES], have: 0, skip, ends: None, counts, heads }
    }

    /// Scans the next bytes and reports each stream whose last byte is among them. `opened` is the number of
    /// streams that this side has opened.
    fn feed(&mut self, mut bytes: &[u8], opened: u64, mut ended: impl FnMut(u32)) {
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
                self.begin_frame(opened);
                if self.skip == 0 {
                    self.ends.take().into_iter().for_each(&mut ended);
                }
            }
            bytes = rest;
        }
    }

    fn begin_frame(&mut self, opened: u64) {
        let [l0, l1, l2, kind, flags, id @ ..] = self.header;
        self.skip = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        let ends = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
        // The first bit is reserved.
        let id = u32::from_be_bytes(id) & (u32::MAX >> 1);
        self.ends = ends.then_some(id);
        self.counts.all += 1;
        let is_needed = match kind {
            HEADERS => self.heads.needs(id, opened),
            // h2 bounds empty and small DATA frames by a budget. Resets and windows are answered by nothing,
            // so they cost their reader less than their sender.
            DATA | RST_STREAM | WINDOW_UPDATE => true,
            _ => false,
        };
        self.counts.extra += u32::from(!is_needed);
    }

    /// The numbers of frames since the last call.
    fn take_counts(&mut self) -> FrameCounts {
        std::mem::take(&mut self.counts)
    }
}

impl StreamHeads {
    /// Notes a head. Returns true if its stream needs it.
    fn needs(&mut self, id: u32, opened: u64) -> bool {
        match self {
            Self::Opening(highest) => {
                let is_new = id > *highest;
                *highest = id.max(*highest);
                is_new
            }
            Self::Answering(answered) => {
                *answered += 1;
                *answered <= opened
            }
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Wire<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        // TLS may hold frames that no socket is asked for. h2 handles all that it can read before it yields.
        let unit = ready!(coop::poll_proceed(cx));
        ready!(Pin::new(&mut self.io).poll_read(cx, into))?;
        unit.made_progress();
        let this = &mut *self;
        let read = &into.filled()[before..];
        this.stats.received.fetch_add(read.len() as u64, Ordering::Relaxed);
        let opened = this.stats.opened.load(Ordering::Relaxed);
        this.scanner.feed(read, opened, |stream| this.stats.end(stream));
        let FrameCounts { all, extra } = this.scanner.take_counts();
        if extra > 0 && !this.allowance.take(Instant::now(), extra) {
            let violation = ProtocolViolation::TooManyFrames;
            let _ = this.stats.violation.set(violation.clone());
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, violation)));
        }
        task_budget::spend(cx, all as usize);
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
    use proto::session::FRAMES_BURST_MAX;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

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
            let (mut scanner, mut fed, mut ended) =
                (Scanner::new(PREFACE_BYTES, StreamHeads::Opening(0)), 0, Vec::new());
            for piece in bytes.chunks(piece) {
                fed += piece.len();
                scanner.feed(piece, 0, |stream| ended.push(stream));
                assert_eq!(ended.contains(&5), fed >= whole, "{fed}");
            }
            assert_eq!(ended, [5, 7, 9], "in pieces of {piece}");
        }
    }

    #[test]
    fn each_stream_needs_one_head_and_every_further_one_is_extra() {
        let heads = |ids: &[u32]| ids.iter().flat_map(|id| frame(HEADERS, 4, *id, 1)).collect::<Vec<u8>>();
        let counted = |heads_of: StreamHeads, bytes: &[u8], opened| {
            let mut scanner = Scanner::new(0, heads_of);
            scanner.feed(bytes, opened, |_| {});
            scanner.take_counts()
        };
        // The server has opened three streams, and the agent answers one of them twice and another thrice.
        let answers = counted(StreamHeads::Answering(0), &heads(&[1, 5, 3, 5, 3, 3]), 3);
        assert_eq!(answers, FrameCounts { all: 6, extra: 3 });
        // The server opens three streams, and sends trailers or nonsense on two of them.
        let opens = counted(StreamHeads::Opening(0), &heads(&[1, 3, 1, 5, 5]), 0);
        assert_eq!(opens, FrameCounts { all: 5, extra: 2 });
    }

    #[test]
    fn frames_that_no_stream_needs_are_extra() {
        let kinds = (0..=20).filter(|kind| {
            let mut scanner = Scanner::new(0, StreamHeads::Opening(0));
            scanner.feed(&frame(*kind, 0, 1, 4), 0, |_| {});
            scanner.take_counts().extra == 0
        });
        assert_eq!(kinds.collect::<Vec<u8>>(), [DATA, HEADERS, RST_STREAM, WINDOW_UPDATE]);
    }

    #[tokio::test]
    async fn a_flood_of_http2s_own_frames_is_an_error_after_its_burst() {
        let (ours, mut theirs) = tokio::io::duplex(1024 * 1024);
        let (mut wire, stats) = Wire::new(ours, Side::Server);
        let burst = frame(6, 0, 0, 8).repeat(FRAMES_BURST_MAX as usize);
        theirs.write_all(&burst).await.unwrap();
        wire.read_exact(&mut vec![0; burst.len()]).await.unwrap();
        assert_eq!(stats.violation(), None);

        theirs.write_all(&frame(4, 0, 0, 0)).await.unwrap();

        let error = wire.read_exact(&mut [0; HEADER_BYTES]).await.unwrap_err();
        assert_eq!(error.to_string(), ProtocolViolation::TooManyFrames.to_string());
        assert_eq!(stats.violation(), Some(ProtocolViolation::TooManyFrames));
    }

    /// A turn is the time between two polls of the task by its runtime.
    #[tokio::test]
    async fn a_reader_of_many_small_frames_yields_between_them() {
        const READ_BYTES: usize = 900;
        let (ours, mut theirs) = tokio::io::duplex(1024 * 1024);
        let (mut wire, _) = Wire::new(ours, Side::Server);
        let flood = frame(WINDOW_UPDATE, 0, 0, 0).repeat(100_000);
        theirs.write_all(&flood).await.unwrap();
        drop(theirs);
        let mut turns = vec![0];
        std::future::poll_fn(|cx| {
            loop {
                let mut bytes = [0; READ_BYTES];
                let mut into = ReadBuf::new(&mut bytes);
                if Pin::new(&mut wire).poll_read(cx, &mut into).is_pending() {
                    turns.push(0);
                    return Poll::Pending;
                }
                if into.filled().is_empty() {
                    return Poll::Ready(());
                }
                *turns.last_mut().unwrap() += into.filled().len() / HEADER_BYTES;
            }
        })
        .await;
        let most = *turns.iter().max().unwrap();
        assert!(most <= 128 + READ_BYTES / HEADER_BYTES, "{most} frames in one turn");
        assert_eq!(turns.iter().sum::<usize>(), 100_000);
    }

    fn frame(kind: u8, flags: u8, stream: u32, bytes: u32) -> Vec<u8> {
        let mut frame = bytes.to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(vec![0xff; bytes as usize]);
        frame
    }
}
