//! The state that the log's users share with its writer thread: queue, health and counts.

mod counts;
mod health;
mod queue;
mod receipt;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use crate::event::{Completion, Event};
use crate::unauthenticated::UnauthenticatedCounts;

pub use counts::Figures;
pub use receipt::Receipt;

use counts::Counts;
use health::Health;
use queue::Queue;
pub(crate) use queue::{Entry, EntryKind};

/// Intents and single lines that may be queued; further ones wait for a slot.
pub const QUEUE_MAX: usize = 4_096;

/// The state that the log's users share with its writer thread.
pub(crate) struct Shared {
    pub(crate) queue: Queue,
    pub(crate) health: Health,
    pub(crate) counts: Counts,
    /// One permit for each queued entry with a waiting sender.
    pub(crate) slots: Arc<Semaphore>,
    unauthenticated: Mutex<UnauthenticatedCounts>,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            queue: Queue::default(),
            health: Health::default(),
            counts: Counts::default(),
            slots: Arc::new(Semaphore::new(QUEUE_MAX)),
            unauthenticated: Mutex::default(),
        }
    }

    /// Queues the completion of a written intent; `false` if the log is closed.
    fn push_completion(&self, event: Arc<Event>, completion: Completion) -> bool {
        self.queue.push(Entry { event, completion: Some(completion), kind: EntryKind::Completion })
    }

    /// Runs `update` on the counts of unauthenticated requests, under their lock.
    pub(crate) fn unauthenticated<T>(&self, update: impl FnOnce(&mut UnauthenticatedCounts) -> T) -> T {
        update(&mut self.unauthenticated.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
