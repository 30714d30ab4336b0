//! A stream of a tunnel, whose end always shows whether the peer finished it or broke it off.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use proto::AbortCode;
use proto::frame::{self, FrameError, Message};
use proto::peering::ViaOutcome;
use proto::wire::{DialReply, StreamOpen, ViaReply};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::task::coop;

use crate::carrier::Stream;
use crate::carrier::contract::Stopped;
use crate::error::{abort_code, aborted};
use crate::priority::SendBudget;
use crate::task_budget;
use crate::tunnel_state::StreamGuard;

/// A bidirectional stream of bytes.
///
/// It ends in one of two ways: each direction is *shut down* on its own (`AsyncWrite::poll_shutdown` here,
/// end of file there), or the whole stream is *aborted* with a code, by [`TunnelStream::abort`] or by being
/// dropped before it was shut down. A peer sees the first as a clean end and the second as an error, always.
///
/// `poll_shutdown` is ready once the peer's carrier has acknowledged the last byte: then, and not before,
/// closing the tunnel would lose nothing.
pub struct TunnelStream {
    carrier_stream: Stream,
    /// The number in our first frame; zero if the peer has opened the stream.
    number: u64,
    write: WriteState,
    read_to_end: bool,
    abort_codes: AbortCodes,
    guard: StreamGuard,
    /// The budget of the writing direction.
    budget: SendBudget,
}

/// The abort codes of a stream in both directions, for code that has handed the stream itself over to other
/// code.
#[derive(Clone, Debug)]
pub struct AbortCodes(Arc<SharedCodes>);

#[derive(Debug)]
struct SharedCodes {
    /// The code with which a drop aborts.
    ours: AtomicU32,
    /// The code with which the peer aborted; zero, which is no code, until then.
    theirs: AtomicU32,
}

/// The state of the writing direction.
enum WriteState {
    Open,
    /// Finished; waits for the acknowledgement.
    Finishing(Stopped),
    Finished,
    /// The stream was aborted, by either side.
    Aborted,
}

/// The reason why the first frame of a stream could not be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenFrameError {
    /// The stream ended or broke before the frame's end.
    #[error("the stream ended before its first frame")]
    Stream(#[source] io::Error),
    /// The bytes are no frame.
    #[error("the stream's first frame cannot be read")]
    Frame(#[from] FrameError),
}

impl AbortCodes {
    fn new() -> Self {
        let ours = AtomicU32::new(AbortCode::Abandoned.number());
        Self(Arc::new(SharedCodes { ours, theirs: AtomicU32::new(0) }))
    }

    /// Sets the code with which the stream is aborted if it is dropped before it was shut down; `Abandoned`
    /// until then.
    pub fn set(&self, code: AbortCode) {
        self.0.ours.store(code.number(), Ordering::Relaxed);
    }

    /// The code with which the peer aborted, once a read or a write has failed with it.
    #[must_use]
    pub fn peer_code(&self) -> Option<AbortCode> {
        match self.0.theirs.load(Ordering::Relaxed) {
            0 => None,
            number => Some(AbortCode::from_number(number)),
        }
    }

    fn ours(&self) -> u32 {
        self.0.ours.load(Ordering::Relaxed)
    }

    /// Remembers the code in an error of the stream, if it has one.
    fn note(&self, error: io::Error) -> io::Error {
        if let Some(code) = abort_code(&error) {
            self.0.theirs.store(code.number(), Ordering::Relaxed);
        }
        error
    }
}

impl TunnelStream {
    pub(crate) fn new(carrier_stream: Stream, guard: StreamGuard) -> Self {
        let budget = guard.budget();
        Self {
            carrier_stream,
            number: 0,
            write: WriteState::Open,
            read_to_end: false,
            abort_codes: AbortCodes::new(),
            guard,
            budget,
        }
    }

    /// The stream with the number that its first frame has.
    pub(crate) fn numbered(self, number: u64) -> Self {
        // Not by `..self`: the type has a destructor.
        let mut numbered = self;
        numbered.number = number;
        numbered
    }

    /// The number of this stream among those that this side has opened on its tunnel, from 1. Zero if the peer
    /// has opened it: then its first frame has the number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A handle that sets the code of a drop, and remembers the peer's code.
    #[must_use]
    pub fn abort_codes(&self) -> AbortCodes {
        self.abort_codes.clone()
    }

    /// Reads the first frame, and not one byte behind it.
    ///
    /// # Errors
    /// `OpenFrameError`; the caller aborts the stream with `AbortCode::BadOpen`. The deadline is the
    /// caller's, too.
    pub async fn read_open(&mut self) -> Result<StreamOpen, OpenFrameError> {
        self.read_frame().await
    }

    /// Reads the peer's reply to our first frame, and not one byte behind it.
    ///
    /// # Errors
    /// `OpenFrameError`. The deadline is the caller's.
    pub async fn read_reply(&mut self) -> Result<DialReply, OpenFrameError> {
        self.read_frame().await
    }

    /// Replies to the first frame of the peer.
    ///
    /// # Errors
    /// The stream broke. The deadline is the caller's.
    pub async fn write_reply(&mut self, reply: &DialReply) -> io::Result<()> {
        self.write_frame(reply).await
    }

    /// Reads the other server's reply to a first frame for it ([`proto::peering::ViaRequest`]), and not one byte
    /// behind it.
    ///
    /// # Errors
    /// `OpenFrameError`. The deadline is the caller's.
    pub async fn read_via_reply(&mut self) -> Result<ViaOutcome, OpenFrameError> {
        Ok(self.read_frame::<ViaReply>().await?.into())
    }

    /// Replies to the first frame of another server.
    ///
    /// # Errors
    /// The stream broke. The deadline is the caller's.
    pub async fn write_via_reply(&mut self, outcome: ViaOutcome) -> io::Result<()> {
        self.write_frame(&ViaReply::from(outcome)).await
    }

    async fn write_frame(&mut self, message: &impl Message) -> io::Result<()> {
        let mut frame = BytesMut::new();
        frame::encode(message, &mut frame).map_err(io::Error::other)?;
        self.write_all(&frame).await?;
        self.flush().await
    }

    async fn read_frame<M: Message + Default>(&mut self) -> Result<M, OpenFrameError> {
        let mut buffer = BytesMut::new();
        while let Some(lacking) = frame::missing(&buffer)? {
            let frame_bytes = buffer.len() + lacking;
            // At most `FRAME_BYTES_MAX`: `missing` has refused longer frames.
            buffer.reserve(lacking);
            while buffer.len() < frame_bytes {
                let rest = frame_bytes - buffer.len();
                let read = (&mut *self).take(rest as u64).read_buf(&mut buffer).await;
                match read {
                    Ok(0) => return Err(OpenFrameError::Stream(io::ErrorKind::UnexpectedEof.into())),
                    Ok(_) => {}
                    Err(error) => return Err(OpenFrameError::Stream(error)),
                }
            }
        }
        frame::decode(&mut buffer)?.ok_or_else(|| OpenFrameError::Stream(io::ErrorKind::UnexpectedEof.into()))
    }

    /// Aborts both directions: the peer's reads and writes fail with this code.
    pub fn abort(self, code: AbortCode) {
        self.abort_codes.set(code);
    }

    /// Resolves when the peer has aborted the stream or the tunnel has ended, also while nobody reads or
    /// writes. Never resolves if the stream was shut down and the peer received everything.
    pub fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let stopped = self.carrier_stream.stopped();
        async move {
            if stopped.await.is_ok() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns true if both directions came to a clean end.
    fn is_over(&self) -> bool {
        let written = match self.write {
            WriteState::Finishing(_) | WriteState::Finished => true,
            WriteState::Open | WriteState::Aborted => false,
        };
        written && self.read_to_end
    }
}

impl Drop for TunnelStream {
    fn drop(&mut self) {
        if self.is_over() {
            return;
        }
        // quinn would finish a dropped sender and so make half a response look complete.
        self.carrier_stream.abort(self.abort_codes.ours());
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read_to_end {
            return Poll::Ready(Ok(()));
        }
        let (before, wanted) = (into.filled().len(), into.remaining());
        // A stream whose bytes have arrived is always ready, so its reader would not yield by itself.
        let unit = ready!(coop::poll_proceed(cx));
        ready!(self.carrier_stream.poll_read(cx, into)).map_err(|error| self.abort_codes.note(error))?;
        unit.made_progress();
        let read = into.filled().len() - before;
        task_budget::spend_bytes(cx, read);
        self.guard.received(read);
        if wanted > 0 && read == 0 {
            self.read_to_end = true;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !matches!(self.write, WriteState::Open) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let this = &mut *self;
        let priority = this.guard.priority(&mut this.budget, bytes.len());
        let written = ready!(this.carrier_stream.poll_write(cx, bytes, priority));
        let written = written.map_err(|error| this.abort_codes.note(error))?;
        this.guard.sent(&mut this.budget, written, priority);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Written bytes belong to the carrier already.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match &mut self.write {
                WriteState::Open => {
                    if self.carrier_stream.finish().is_err() {
                        self.write = WriteState::Aborted;
                        continue;
                    }
                    self.write = WriteState::Finishing(self.carrier_stream.stopped());
                }
                WriteState::Finishing(stopped) => {
                    let outcome = ready!(stopped.as_mut().poll(cx));
                    self.write = if outcome.is_ok() { WriteState::Finished } else { WriteState::Aborted };
                    return Poll::Ready(outcome);
                }
                WriteState::Finished => return Poll::Ready(Ok(())),
                WriteState::Aborted => {
                    return Poll::Ready(Err(aborted(AbortCode::Abandoned.number())));
                }
            }
        }
    }
}
