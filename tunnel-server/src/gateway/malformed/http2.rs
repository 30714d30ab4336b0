//! Answers a request of HTTP/2 that h2 resets because it cannot read it.
//!
//! h2 has no place for an answer of ours, so that it is put between the frames that h2 writes. It is one HEADERS
//! frame with 400 and the words in `Warning`, which kubectl prints. It has no body: h2 does not know of the frame,
//! and would exceed the caller's flow-control window by the bytes of a DATA frame. Its header block uses the
//! static table only, so that the tables of both ends stay as h2 keeps them.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{PendingAnswer, refusal};
use crate::gateway::refusal::MalformedRequest;

/// The length of a frame's head, in bytes (RFC 9113, section 4.1).
const FRAME_HEAD_BYTES: usize = 9;

/// The length of a whole RST_STREAM frame, in bytes.
const RESET_BYTES: usize = FRAME_HEAD_BYTES + 4;

/// Types of frames, and flags of HEADERS.
const HEADERS: u8 = 0x1;
const RST_STREAM: u8 = 0x3;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// Error codes of RST_STREAM (RFC 9113, section 7).
const NO_ERROR: [u8; 4] = [0; 4];
const PROTOCOL_ERROR: [u8; 4] = [0, 0, 0, 1];

/// Entries of HPACK's static table (RFC 7541, appendix A): `:status: 400` as a whole, and the name
/// `content-length` of a literal that is not indexed.
const STATUS_400: u8 = 0x80 | 12;
const CONTENT_LENGTH: [u8; 2] = [0x0f, 28 - 15];

/// A literal with a new name that is not indexed.
const NEW_NAME: u8 = 0;

/// Streams that are older than the newest one and were not answered, of which so many are remembered. The reset
/// of an older one passes as it is.
const UNANSWERED_MAX: usize = 1024;

/// The stream of a caller's HTTP/2 connection, which answers requests that h2 would reset.
pub(in crate::gateway) struct AnsweredResets<S> {
    stream: S,
    /// The frame whose bytes are being written.
    frame: FrameProgress,
    unanswered: Unanswered,
    /// An answer that is not written yet.
    answer: PendingAnswer,
}

/// The part of a frame that was written. At its end another frame begins.
#[derive(Debug, Clone, Copy, Default)]
struct FrameProgress {
    head: [u8; FRAME_HEAD_BYTES],
    /// Bytes of the head that are known.
    known: usize,
    /// Bytes of the payload that are to come, once the head is known.
    payload: usize,
}

/// The streams whose answer has not begun. Streams have odd numbers, each higher than those before.
#[derive(Debug, Default)]
struct Unanswered {
    newest: u32,
    older: BTreeSet<u32>,
}

impl<S> AnsweredResets<S> {
    /// Wraps the stream to which h2 writes its frames, from the first one on.
    pub(in crate::gateway) fn new(stream: S) -> Self {
        let (frame, unanswered) = (FrameProgress::default(), Unanswered::default());
        Self { stream, frame, unanswered, answer: PendingAnswer::default() }
    }

    /// The number of bytes in `pieces` that pass as they are. The reset of a request that was not answered
    /// begins behind them, if they are not all.
    fn passing(&self, pieces: &[IoSlice<'_>]) -> usize {
        let (mut frame, mut passing) = (self.frame, 0);
        for piece in pieces {
            let mut rest: &[u8] = piece;
            while !rest.is_empty() {
                if frame.known == 0 && self.unanswered_reset(rest).is_some() {
                    return passing;
                }
                let taken = frame.advance(rest);
                (rest, passing) = (&rest[taken..], passing + taken);
                frame.finish();
            }
        }
        passing
    }

    /// The stream that the frame at the beginning of `bytes` resets, if the request on it is malformed and was
    /// not answered.
    fn unanswered_reset(&self, bytes: &[u8]) -> Option<u32> {
        let (head, code) = bytes.get(..RESET_BYTES)?.split_at(FRAME_HEAD_BYTES);
        let is_reset = head[..4] == [0, 0, 4, RST_STREAM] && code == PROTOCOL_ERROR;
        let stream = stream_of(head);
        (is_reset && self.unanswered.contains(stream)).then_some(stream)
    }

    /// Notes that `written` of `pieces` were written.
    fn wrote(&mut self, pieces: &[IoSlice<'_>], written: usize) {
        let mut left = written;
        for piece in pieces {
            let mut rest = &piece[..piece.len().min(left)];
            left -= rest.len();
            while !rest.is_empty() {
                let taken = self.frame.advance(rest);
                rest = &rest[taken..];
                if let Some(head) = self.frame.finish()
                    && matches!(head[3], HEADERS | RST_STREAM)
                {
                    self.unanswered.remove(stream_of(&head));
                }
            }
        }
    }

    /// Puts an answer in the place of a reset, and returns the number of bytes that h2 has written for it.
    fn replace(&mut self, stream: u32) -> usize {
        let refusal = refusal(MalformedRequest::Unreadable);
        self.answer = answer(stream, &refusal.to_string()).into();
        self.unanswered.remove(stream);
        RESET_BYTES
    }
}

impl<S: AsyncWrite + Unpin> AnsweredResets<S> {
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.answer.poll_write(&mut self.stream, cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for AnsweredResets<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for AnsweredResets<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.poll_answer(cx))?;
        let all: usize = pieces.iter().map(|piece| piece.len()).sum();
        let passing = this.passing(pieces);
        if passing == all {
            let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, pieces))?;
            this.wrote(pieces, written);
            return Poll::Ready(Ok(written));
        }
        // All of the first piece that is not empty passes, or the part before the reset.
        let first = pieces.iter().find(|piece| !piece.is_empty());
        let first: &[u8] = first.map_or(&[], |piece| &piece[..]);
        if passing > 0 {
            let first = &first[..first.len().min(passing)];
            let written = ready!(Pin::new(&mut this.stream).poll_write(cx, first))?;
            this.wrote(&[IoSlice::new(first)], written);
            return Poll::Ready(Ok(written));
        }
        Poll::Ready(Ok(this.unanswered_reset(first).map_or(0, |stream| this.replace(stream))))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_answer(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_answer(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl FrameProgress {
    /// Takes bytes of the head or of the payload from `bytes`, and returns how many.
    fn advance(&mut self, bytes: &[u8]) -> usize {
        if self.known == FRAME_HEAD_BYTES {
            let taken = self.payload.min(bytes.len());
            self.payload -= taken;
            return taken;
        }
        let taken = (FRAME_HEAD_BYTES - self.known).min(bytes.len());
        self.head[self.known..self.known + taken].copy_from_slice(&bytes[..taken]);
        self.known += taken;
        if self.known == FRAME_HEAD_BYTES {
            let [high, middle, low, ..] = self.head;
            self.payload = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        }
        taken
    }

    /// The head of the frame, once all of it was taken. The next frame begins then.
    fn finish(&mut self) -> Option<[u8; FRAME_HEAD_BYTES]> {
        if self.known < FRAME_HEAD_BYTES || self.payload > 0 {
            return None;
        }
        self.known = 0;
        Some(self.head)
    }
}

impl Unanswered {
    fn contains(&self, stream: u32) -> bool {
        stream > self.newest || self.older.contains(&stream)
    }

    /// Notes that a stream was answered or reset.
    fn remove(&mut self, stream: u32) {
        if stream <= self.newest {
            self.older.remove(&stream);
            return;
        }
        let remembered = 2 * UNANSWERED_MAX as u32;
        // Streams of callers have odd numbers, and the first is 1.
        let first = (self.newest + 1).max(stream.saturating_sub(remembered)) | 1;
        self.older.extend((first..stream).step_by(2));
        self.newest = stream;
        while self.older.len() > UNANSWERED_MAX {
            self.older.pop_first();
        }
    }
}

/// The stream's number in the head of a frame.
fn stream_of(head: &[u8]) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&head[5..FRAME_HEAD_BYTES]);
    u32::from_be_bytes(number) & 0x7fff_ffff
}

/// The frames of an answer without a body, which asks the caller to send nothing more (RFC 9113, section 8.1).
fn answer(stream: u32, words: &str) -> Vec<u8> {
    let visible: String =
        words.chars().filter(|c| (c.is_ascii_graphic() || *c == ' ') && !['"', '\\'].contains(c)).collect();
    let mut block = vec![STATUS_400];
    block.extend(CONTENT_LENGTH);
    put_text(&mut block, "0");
    block.push(NEW_NAME);
    put_text(&mut block, "warning");
    put_text(&mut block, &format!("299 - \"{visible}\""));
    let mut frames = Vec::with_capacity(block.len() + FRAME_HEAD_BYTES + RESET_BYTES);
    put_frame(&mut frames, HEADERS, END_STREAM | END_HEADERS, stream, &block);
    put_frame(&mut frames, RST_STREAM, 0, stream, &NO_ERROR);
    frames
}

fn put_frame(frames: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    // All payloads here are shorter than the least that a caller has to take (16 KiB).
    frames.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    frames.extend_from_slice(&[kind, flags]);
    frames.extend_from_slice(&stream.to_be_bytes());
    frames.extend_from_slice(payload);
}

/// Writes a string without Huffman's code (RFC 7541, section 5.2).
fn put_text(block: &mut Vec<u8>, text: &str) {
    const PREFIX_MAX: usize = 0x7f;
    if text.len() < PREFIX_MAX {
        block.push(text.len() as u8);
    } else {
        block.push(PREFIX_MAX as u8);
        let mut rest = text.len() - PREFIX_MAX;
        while rest >= 0x80 {
            block.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        block.push(rest as u8);
    }
    block.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests;
