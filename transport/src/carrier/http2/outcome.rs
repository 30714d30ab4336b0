//! The outcome of a stream's writing direction, shared by the stream and by the connection that learns of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Context;

use super::wakers::Wakers;

/// Tells the writers of a stream whether the peer has received its last byte.
#[derive(Default)]
pub(super) struct SendOutcome {
    /// Zero until the outcome is known, then one of the values below.
    state: AtomicU8,
    wakers: Arc<Wakers>,
}

const ACKNOWLEDGED: u8 = 1;
const LOST: u8 = 2;

/// The final outcome of a writing direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamDelivery {
    /// The peer has received the last byte.
    Acknowledged,
    /// The connection ended before that.
    Lost,
}

impl SendOutcome {
    /// Sets the outcome and wakes every task that waits for it.
    pub(super) fn set(&self, delivery: StreamDelivery) {
        let state = match delivery {
            StreamDelivery::Acknowledged => ACKNOWLEDGED,
            StreamDelivery::Lost => LOST,
        };
        self.state.store(state, Ordering::Release);
        self.wakers.wake_all();
    }

    /// The outcome, once it is known.
    pub(super) fn get(&self) -> Option<StreamDelivery> {
        match self.state.load(Ordering::Acquire) {
            ACKNOWLEDGED => Some(StreamDelivery::Acknowledged),
            LOST => Some(StreamDelivery::Lost),
            _ => None,
        }
    }

    /// Wakes the task of `cx` once, when the outcome is set or h2 wakes the stream.
    pub(super) fn register(&self, cx: &Context<'_>) {
        self.wakers.register(cx);
    }

    /// The wakers of all waiting tasks, to be given to h2 as one.
    pub(super) fn wakers(&self) -> Arc<Wakers> {
        Arc::clone(&self.wakers)
    }
}
