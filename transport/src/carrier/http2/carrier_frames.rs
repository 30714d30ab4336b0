//! The carrier's own frames on a stream of their own: acknowledged stream ends, pings and the close reason.
//!
//! HTTP/2 does not acknowledge bytes. Its PING says nothing about data that waits behind a window, and only
//! one side could use it: h2 reads nothing while a PING cannot be written, so two busy sides that both ping
//! could wait for each other.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, BytesMut};
use proto::frame;
use proto::session::{FrameAllowance, ProtocolViolation};
use proto::wire::{CarrierNote, carrier_note::Note};
use tokio::io::ReadBuf;

use super::settings::CARRIER_FRAMES_BYTES_MAX;
use super::stream::Http2Stream;
use crate::priority::Priority;

/// Bytes read from the stream at once.
const READ_BYTES: usize = 1024;

/// The stream of the carrier's own frames, with queues in both directions.
pub(super) struct CarrierFrames {
    /// At the agent it arrives with the server's first requests.
    stream: Option<Http2Stream>,
    inbox: BytesMut,
    outbox: BytesMut,
    pings: u32,
    /// The frames that the peer may still send, apart from acknowledgements.
    allowance: FrameAllowance,
}

/// The reason why carrier frames can no longer be exchanged.
#[derive(Debug, thiserror::Error)]
pub(super) enum CarrierFramesError {
    #[error("the carrier's own stream broke: {0}")]
    Stream(io::Error),
    #[error("the carrier's own stream was shut down")]
    ShutDown,
    #[error("the carrier's own stream cannot be read: {0}")]
    Frame(frame::FrameError),
    #[error("the other side does not read the carrier's own stream")]
    NotRead,
    #[error(transparent)]
    Violation(#[from] ProtocolViolation),
}

impl CarrierFrames {
    pub(super) fn new(stream: Option<Http2Stream>) -> Self {
        Self {
            stream,
            inbox: BytesMut::new(),
            outbox: BytesMut::new(),
            pings: 0,
            allowance: FrameAllowance::new(Instant::now()),
        }
    }

    /// Sets the stream once it has arrived. A second one is dropped.
    pub(super) fn set_stream(&mut self, stream: Http2Stream) {
        self.stream.get_or_insert(stream);
    }

    /// Queues a frame for sending.
    pub(super) fn queue(&mut self, note: Note) -> Result<(), CarrierFramesError> {
        frame::encode(&CarrierNote { note: Some(note) }, &mut self.outbox)
            .map_err(CarrierFramesError::Frame)?;
        if self.outbox.len() > CARRIER_FRAMES_BYTES_MAX { Err(CarrierFramesError::NotRead) } else { Ok(()) }
    }

    /// Queues a ping with a new number.
    pub(super) fn ping(&mut self) -> Result<(), CarrierFramesError> {
        self.pings = self.pings.wrapping_add(1);
        self.queue(Note::Ping(self.pings))
    }

    /// Counts a frame that the peer may send only so many times a second.
    pub(super) fn count(&mut self, now: Instant) -> Result<(), ProtocolViolation> {
        if self.allowance.take(now, 1) { Ok(()) } else { Err(ProtocolViolation::TooManyFrames) }
    }

    /// Returns true if a pong of this number answers the last ping.
    pub(super) fn is_answer(&self, number: u32) -> bool {
        number == self.pings
    }

    /// Writes queued frames, and then reads the next frame. Cancel-safe: bytes that were read stay in the
    /// inbox. `None` is a frame of a newer peer.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Note>, CarrierFramesError>> {
        while let Poll::Ready(written) = self.poll_write(cx) {
            written?;
        }
        self.poll_next(cx)
    }

    /// Reads the next frame of the peer.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Note>, CarrierFramesError>> {
        loop {
            if let Some(note) =
                frame::decode::<CarrierNote>(&mut self.inbox).map_err(CarrierFramesError::Frame)?
            {
                return Poll::Ready(Ok(note.note));
            }
            let Some(stream) = &mut self.stream else {
                return Poll::Pending;
            };
            let mut bytes = [0; READ_BYTES];
            let mut into = ReadBuf::new(&mut bytes);
            ready!(stream.poll_read(cx, &mut into)).map_err(CarrierFramesError::Stream)?;
            if into.filled().is_empty() {
                return Poll::Ready(Err(CarrierFramesError::ShutDown));
            }
            self.inbox.extend_from_slice(into.filled());
        }
    }

    /// Writes queued frames; pending also while the queue is empty.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CarrierFramesError>> {
        let Some(stream) = self.stream.as_mut().filter(|_| !self.outbox.is_empty()) else {
            return Poll::Pending;
        };
        let written = ready!(stream.poll_write(cx, &self.outbox, Priority::Control))
            .map_err(CarrierFramesError::Stream)?;
        self.outbox.advance(written);
        Poll::Ready(Ok(()))
    }
}
