//! The stream that the carrier keeps for itself: ends that have arrived, round trips, a last word.
//!
//! HTTP/2 acknowledges no bytes; its PING tells nothing of data that waits behind a window, and only one side could use it:
//! h2 reads nothing while a PING cannot be written, so that two busy sides which both ping could wait for each other.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use proto::frame;
use proto::wire::{CarrierNote, carrier_note::Note};
use tokio::io::ReadBuf;

use super::settings::NOTES_BYTES_MAX;
use super::stream::Stream;
use crate::precedence::Rank;

/// Bytes read at once.
const READ_BYTES: usize = 1024;

pub(super) struct Notes {
    /// The agent's comes with the server's first requests.
    stream: Option<Stream>,
    inbox: BytesMut,
    outbox: BytesMut,
    pings: u32,
}

/// The other side takes no notes, or what it writes is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotesError {
    #[error("the carrier's own stream broke: {0}")]
    Stream(io::Error),
    #[error("the carrier's own stream was shut down")]
    ShutDown,
    #[error("the carrier's own stream cannot be read: {0}")]
    Frame(frame::FrameError),
    #[error("the other side does not read the carrier's own stream")]
    NotRead,
}

impl Notes {
    pub(super) fn new(stream: Option<Stream>) -> Self {
        Self { stream, inbox: BytesMut::new(), outbox: BytesMut::new(), pings: 0 }
    }

    /// The stream has come. A second one is dropped.
    pub(super) fn begin(&mut self, stream: Stream) {
        self.stream.get_or_insert(stream);
    }

    /// Queues a note.
    pub(super) fn put(&mut self, note: Note) -> Result<(), NotesError> {
        frame::encode(&CarrierNote { note: Some(note) }, &mut self.outbox).map_err(NotesError::Frame)?;
        if self.outbox.len() > NOTES_BYTES_MAX { Err(NotesError::NotRead) } else { Ok(()) }
    }

    /// Queues a ping that is told from all others.
    pub(super) fn ping(&mut self) -> Result<(), NotesError> {
        self.pings = self.pings.wrapping_add(1);
        self.put(Note::Ping(self.pings))
    }

    /// Whether a pong answers the last ping.
    pub(super) fn is_answer(&self, number: u32) -> bool {
        number == self.pings
    }

    /// Hands over what is queued, and then the next note. Cancel-safe: what was read stays in the inbox. `None` is a newer
    /// peer's note.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Note>, NotesError>> {
        while let Poll::Ready(written) = self.poll_write(cx) {
            written?;
        }
        self.poll_next(cx)
    }

    /// The next note.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Note>, NotesError>> {
        loop {
            if let Some(note) = frame::decode::<CarrierNote>(&mut self.inbox).map_err(NotesError::Frame)? {
                return Poll::Ready(Ok(note.note));
            }
            let Some(stream) = &mut self.stream else {
                return Poll::Pending;
            };
            let mut bytes = [0; READ_BYTES];
            let mut into = ReadBuf::new(&mut bytes);
            ready!(stream.poll_read(cx, &mut into)).map_err(NotesError::Stream)?;
            if into.filled().is_empty() {
                return Poll::Ready(Err(NotesError::ShutDown));
            }
            self.inbox.extend_from_slice(into.filled());
        }
    }

    /// Hands over what is queued; pending also where nothing is.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), NotesError>> {
        let Some(stream) = self.stream.as_mut().filter(|_| !self.outbox.is_empty()) else {
            return Poll::Pending;
        };
        let written =
            ready!(stream.poll_write(cx, &self.outbox, Rank::Control)).map_err(NotesError::Stream)?;
        self.outbox.advance(written);
        Poll::Ready(Ok(()))
    }
}
