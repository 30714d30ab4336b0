//! What the log's users and its writer share: the queue, how it goes, and what was counted.

mod counts;
mod health;
mod queue;
mod receipt;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use crate::strangers::Strangers;

pub use counts::Figures;
pub use receipt::Receipt;

use counts::Counts;
use health::Health;
use queue::Queue;
pub(crate) use queue::{Duty, Entry};

/// Intents, and what is written once, that wait to be written; further ones wait for a place.
pub const QUEUE_MAX: usize = 4_096;

/// What the log's users and its writer share.
pub(crate) struct Desk {
    pub(crate) queue: Queue,
    pub(crate) health: Health,
    pub(crate) counts: Counts,
    /// One for each entry that somebody waits for.
    pub(crate) places: Arc<Semaphore>,
    strangers: Mutex<Strangers>,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self {
            queue: Queue::default(),
            health: Health::default(),
            counts: Counts::default(),
            places: Arc::new(Semaphore::new(QUEUE_MAX)),
            strangers: Mutex::default(),
        }
    }

    /// With the strangers, for a moment.
    pub(crate) fn strangers<T>(&self, look: impl FnOnce(&mut Strangers) -> T) -> T {
        look(&mut self.strangers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
