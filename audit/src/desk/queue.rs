//! What waits to be written: bounded by places for what may be refused, and by open exchanges for what may not.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::Receipt;
use crate::event::{Completion, Event};

/// One line to be.
pub(crate) struct Entry {
    pub(crate) event: Arc<Event>,
    /// Without one it is an intent.
    pub(crate) completion: Option<Completion>,
    pub(crate) duty: Duty,
}

/// Who waits for a line.
pub(crate) enum Duty {
    /// Somebody who goes on only when it is written, and holds a place in the queue until then.
    Intent(oneshot::Sender<Receipt>, OwnedSemaphorePermit),
    /// The same, for something that is over when it is said.
    Single(oneshot::Sender<()>, OwnedSemaphorePermit),
    /// Nobody, and it must be written: an intent was.
    Owed,
    /// Nobody, and it must be written before all others.
    Reserved,
    /// Nobody, and it may be left out.
    Aside,
}

/// The queue between all and the one who writes.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Entry>,
    is_closed: bool,
}

impl Duty {
    /// Whether somebody still waits, if somebody did.
    pub(crate) fn is_wanted(&self) -> bool {
        match self {
            Self::Intent(told, _) => !told.is_closed(),
            Self::Single(told, _) => !told.is_closed(),
            Self::Owed | Self::Reserved | Self::Aside => true,
        }
    }
}

impl Queue {
    /// Puts `entry` at the end; `false` where nobody writes any more.
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

    /// Up to `most` entries, the oldest first, as soon as there is one, or after `wait`; and whether there will be more.
    pub(crate) fn take(&self, most: usize, wait: Duration) -> (Vec<Entry>, bool) {
        let state = self.state();
        let is_idle = |state: &mut State| state.entries.is_empty() && !state.is_closed;
        let (mut state, _) =
            self.wake.wait_timeout_while(state, wait, is_idle).unwrap_or_else(PoisonError::into_inner);
        let taken = state.entries.len().min(most);
        let entries = state.entries.drain(..taken).collect();
        (entries, !state.is_closed || !state.entries.is_empty())
    }

    /// Takes no more.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.wake.notify_one();
    }

    pub(crate) fn len(&self) -> usize {
        self.state().entries.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
