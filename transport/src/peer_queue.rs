//! Messages for another server that wait until the carrier takes them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use proto::frame::{self, FrameError};
use proto::peering::PeerMessage;
use proto::wire::{ControlFrame, control_frame::Frame};
use tokio::sync::Notify;

/// Most bytes of messages that wait for a server to read them: a full copy of 10,000 tunnels has 2 MB, unless their agents
/// advertise much.
pub const PEER_QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes that a message of this size needs in the queue beside its content.
const MESSAGE_OVERHEAD_BYTES: usize = 64;

/// The reason why another server cannot be told something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TellError {
    /// The tunnel is one of an agent.
    #[error("the tunnel is not a session between servers")]
    NotAPeer,
    /// More messages wait than may. The session ends for it.
    #[error("the other server does not read, and {max} bytes of messages wait for it", max = PEER_QUEUE_BYTES_MAX)]
    Unread,
    /// The message does not fit into a frame. Nothing of it is sent.
    #[error("the message cannot be sent")]
    Frame(#[from] FrameError),
}

/// Frames in the order in which they are to be sent.
#[derive(Default)]
pub(crate) struct PeerQueue {
    waiting: Mutex<WaitingFrames>,
    emptied: Notify,
}

#[derive(Default)]
struct WaitingFrames {
    frames: VecDeque<Bytes>,
    bytes: usize,
    /// A message did not fit, so the session has to end.
    is_overfull: bool,
}

impl PeerQueue {
    /// Encodes a message and queues it.
    pub(crate) fn push(&self, message: PeerMessage) -> Result<(), TellError> {
        let mut encoded = BytesMut::new();
        frame::encode(&ControlFrame::from(Frame::Peer(message.into())), &mut encoded)?;
        let (frame, mut waiting) = (encoded.freeze(), self.waiting());
        let bytes = waiting.bytes + frame.len() + MESSAGE_OVERHEAD_BYTES;
        if waiting.is_overfull || bytes > PEER_QUEUE_BYTES_MAX {
            waiting.is_overfull = true;
            return Err(TellError::Unread);
        }
        waiting.bytes = bytes;
        waiting.frames.push_back(frame);
        Ok(())
    }

    /// Takes the next frame out.
    pub(crate) fn pop(&self) -> Option<Bytes> {
        let mut waiting = self.waiting();
        let frame = waiting.frames.pop_front()?;
        waiting.bytes -= frame.len() + MESSAGE_OVERHEAD_BYTES;
        let is_empty = waiting.frames.is_empty();
        drop(waiting);
        if is_empty {
            self.emptied.notify_waiters();
        }
        Some(frame)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting().frames.is_empty()
    }

    /// Returns true once a message did not fit.
    pub(crate) fn is_overfull(&self) -> bool {
        self.waiting().is_overfull
    }

    /// Resolves when no frame waits. Cancel-safe.
    pub(crate) async fn emptied(&self) {
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            // Before the check, so that no notification is missed.
            emptied.as_mut().enable();
            if self.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingFrames> {
        // A panic under the lock leaves a valid queue behind.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_wait_up_to_the_limit_and_the_next_one_ends_the_session() {
        let queue = PeerQueue::default();
        let mut pushed = 0;
        while queue.push(PeerMessage::Draining).is_ok() {
            pushed += 1;
        }
        assert!(pushed > 100_000 && queue.is_overfull(), "{pushed} messages");
        assert!(queue.waiting().bytes <= PEER_QUEUE_BYTES_MAX);

        // It stays so, although there is room again.
        while queue.pop().is_some() {}
        let bytes = queue.waiting().bytes;
        assert_eq!((bytes, queue.is_empty()), (0, true));
        assert_eq!(queue.push(PeerMessage::Draining), Err(TellError::Unread));
    }

    #[test]
    fn frames_leave_in_the_order_of_their_messages() {
        let queue = PeerQueue::default();
        for revision in 0..3 {
            queue.push(PeerMessage::Applied { revision }).unwrap();
        }
        let told = std::iter::from_fn(|| queue.pop()).map(|frame| {
            let frame: ControlFrame = frame::decode(&mut BytesMut::from(frame)).unwrap().unwrap();
            let Some(Frame::Peer(peer)) = frame.frame else { panic!("{frame:?}") };
            PeerMessage::parse(peer).unwrap().unwrap()
        });
        assert!(told.eq((0..3).map(|revision| PeerMessage::Applied { revision })));
    }
}
