//! Tracks whether the log can be written, and since when it cannot.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Health of the log: `None` while it can be written.
pub(crate) struct Health(watch::Sender<Option<Failing>>);

/// The state of a log that cannot be written.
#[derive(Debug, Clone)]
struct Failing {
    since: Instant,
    why: String,
}

impl Default for Health {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Health {
    /// Marks the log as failing. The first error stays; returns whether this is the first.
    pub(crate) fn mark_failing(&self, why: &str) -> bool {
        self.0.send_if_modified(|failing| {
            let is_first = failing.is_none();
            if is_first {
                *failing = Some(Failing { since: Instant::now(), why: why.to_owned() });
            }
            is_first
        })
    }

    /// Marks the log as working, and returns for how long it was failing.
    pub(crate) fn mark_working(&self) -> Option<Duration> {
        self.0.send_replace(None).map(|failing| failing.since.elapsed())
    }

    pub(crate) fn failing(&self) -> Option<String> {
        self.0.borrow().as_ref().map(|failing| failing.why.clone())
    }

    /// Resolves once the log has been failing for `limit` without a break.
    pub(crate) async fn failed_for(&self, limit: Duration) {
        let mut health = self.0.subscribe();
        loop {
            let until = health.borrow_and_update().as_ref().map(|failing| failing.since + limit);
            // Both arms are cancel-safe. The sender lives as long as this is borrowed.
            tokio::select! {
                changed = health.changed() => if changed.is_err() { std::future::pending::<()>().await },
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => return,
            }
        }
    }

    /// Resolves once the log is failing (`true`) or working (`false`).
    pub(crate) async fn becomes(&self, failing: bool) {
        // Fails only if the sender is gone, which lives as long as this is borrowed.
        let _ = self.0.subscribe().wait_for(|is| is.is_some() == failing).await;
    }
}
