//! The receipt of a written intent, which becomes the intent's completion.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::time::Instant;
use tracing::warn;

use super::Shared;
use crate::event::{Annotation, Completion, EndReason, Event};

/// Proof that an intent is written. Completing or dropping it writes the intent's one completion.
#[must_use = "the exchange is over for the log when this is dropped"]
pub struct Receipt {
    /// `None` for a log that writes nothing, and after completion.
    shared: Option<Arc<Shared>>,
    event: Arc<Event>,
    sequence: u64,
    began: Instant,
}

impl Receipt {
    /// The receipt of the intent in line `sequence`.
    pub(crate) fn new(shared: &Arc<Shared>, event: Arc<Event>, sequence: u64) -> Self {
        shared.counts.open.fetch_add(1, Relaxed);
        Self { shared: Some(Arc::clone(shared)), event, sequence, began: Instant::now() }
    }

    /// The receipt of an intent in a log that writes nothing.
    pub(crate) fn unwritten(event: Event) -> Self {
        Self { shared: None, event: Arc::new(event), sequence: 0, began: Instant::now() }
    }

    /// The line number of the intent; 0 if the log writes nothing.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Ends the exchange for the log with `completion`.
    pub fn complete(mut self, completion: Completion) {
        self.end(completion);
    }

    fn end(&mut self, completion: Completion) {
        let Some(shared) = self.shared.take() else { return };
        shared.counts.open.fetch_sub(1, Relaxed);
        let completion = completion
            .with(Annotation::Intent, self.sequence.to_string())
            .with(Annotation::DurationMs, self.began.elapsed().as_millis().to_string());
        if !shared.push_completion(Arc::clone(&self.event), completion) {
            warn!(intent = self.sequence, "an exchange ended after its audit log was closed");
        }
    }
}

impl Drop for Receipt {
    /// Completes the intent as cancelled by the client: the owner was dropped before it named an outcome.
    fn drop(&mut self) {
        self.end(Completion::new(None, EndReason::ClientCancel));
    }
}
