//! The queue of lines to write. Slots bound the lines that may be refused; open exchanges bound those that
//! may not.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::Receipt;
use crate::event::{self, Event};

/// One line that is to be written.
pub(crate) struct Entry {
    pub(crate) event: Arc<Event>,
    /// The completion; `None` for an intent.
    pub(crate) completion: Option<event::Completion>,
    pub(crate) kind: EntryKind,
}

/// The kind of a queued line: its waiter, and whether the writer may drop it.
pub(crate) enum EntryKind {
    /// An intent. Its sender waits for the receipt, and occupies a slot until then.
    Intent(oneshot::Sender<Receipt>, OwnedSemaphorePermit),
    /// A single line without an intent. Its sender waits until it is written, and occupies a slot.
    Single(oneshot::Sender<()>, OwnedSemaphorePermit),
    /// A completion. Nobody waits; it must be written, because its intent was.
    Completion,
    /// A line that may use the reserve. Nobody waits; it is written even while the log fails.
    Reserved,
    /// A line that may be dropped. Nobody waits for it.
    BestEffort,
}

/// The queue between the log's users and the writer thread.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    wake: Condvar,
}

#[derive(Default)]
struct QueueState {
    entries: VecDeque<Entry>,
    is_closed: bool,
}

impl EntryKind {
    /// `false` if the sender of this line has stopped waiting for it.
    pub(crate) fn is_wanted(&self) -> bool {
        match self {
            Self::Intent(answer, _) => !answer.is_closed(),
            Self::Single(answer, _) => !answer.is_closed(),
            Self::Completion | Self::Reserved | Self::BestEffort => true,
        }
    }
}

impl Queue {
    /// Appends `entry`; `false` if the queue is closed.
    pub(crate) fn push(&self, entry: Entry) -> bool {
        let mut state = self.state();
        if state.is_closed {
            return false;
        }
        state.entries.push_back(entry);
        drop(state);
        self.wake.notify_one();
        true
    }

    /// Takes up to `most` entries, the oldest first, as soon as there is one, or after `wait`. Also returns whether more may
    /// come.
    pub(crate) fn take(&self, most: usize, wait: Duration) -> (Vec<Entry>, bool) {
        let state = self.state();
        let is_idle = |state: &mut QueueState| state.entries.is_empty() && !state.is_closed;
        let (mut state, _) =
            self.wake.wait_timeout_while(state, wait, is_idle).unwrap_or_else(PoisonError::into_inner);
        let taken = state.entries.len().min(most);
        let entries = state.entries.drain(..taken).collect();
        (entries, !state.is_closed || !state.entries.is_empty())
    }

    /// Refuses all further entries; queued ones are still taken.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.wake.notify_one();
    }

    pub(crate) fn len(&self) -> usize {
        self.state().entries.len()
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        // No code panics while it holds this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
