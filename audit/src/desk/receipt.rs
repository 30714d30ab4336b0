//! What stands between an intent and its completion.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::time::Instant;
use tracing::warn;

use super::{Desk, Duty, Entry};
use crate::event::{Completion, EndReason, Event, Note};

/// Proof that an intent is written. Completed, or dropped, it becomes the intent's one completion.
#[must_use = "the exchange is over for the log when this is dropped"]
pub struct Receipt {
    /// Nothing where nothing is written, and once it is completed.
    desk: Option<Arc<Desk>>,
    event: Arc<Event>,
    sequence: u64,
    began: Instant,
}

impl Receipt {
    /// Of the intent in line `sequence`.
    pub(crate) fn of(desk: &Arc<Desk>, event: Arc<Event>, sequence: u64) -> Self {
        desk.counts.open.fetch_add(1, Relaxed);
        Self { desk: Some(Arc::clone(desk)), event, sequence, began: Instant::now() }
    }

    /// Of an intent that nobody writes.
    pub(crate) fn of_nothing(event: Event) -> Self {
        Self { desk: None, event: Arc::new(event), sequence: 0, began: Instant::now() }
    }

    /// The line of the intent; 0 where nothing is written.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// It is over.
    pub fn complete(mut self, completion: Completion) {
        self.end(completion);
    }

    fn end(&mut self, completion: Completion) {
        let Some(desk) = self.desk.take() else { return };
        desk.counts.open.fetch_sub(1, Relaxed);
        let completion = completion
            .with(Note::Intent, self.sequence.to_string())
            .with(Note::DurationMs, self.began.elapsed().as_millis().to_string());
        let entry = Entry { event: Arc::clone(&self.event), completion: Some(completion), duty: Duty::Owed };
        if !desk.queue.push(entry) {
            warn!(intent = self.sequence, "an exchange ended after its audit log was closed");
        }
    }
}

impl Drop for Receipt {
    /// Whoever held it was dropped before it could say more.
    fn drop(&mut self) {
        self.end(Completion::new(None, EndReason::ClientCancel));
    }
}
