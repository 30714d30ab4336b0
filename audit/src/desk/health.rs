//! Whether the log can be written, and since when not.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Whether the log can be written.
pub(crate) struct Health(watch::Sender<Option<Failing>>);

/// It cannot.
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
    /// It cannot be written. What was said first stays, and whether it is the first is the answer.
    pub(crate) fn fails(&self, why: &str) -> bool {
        self.0.send_if_modified(|failing| {
            let is_first = failing.is_none();
            if is_first {
                *failing = Some(Failing { since: Instant::now(), why: why.to_owned() });
            }
            is_first
        })
    }

    /// It can be written, and for how long it could not.
    pub(crate) fn is_well(&self) -> Option<Duration> {
        self.0.send_replace(None).map(|failing| failing.since.elapsed())
    }

    pub(crate) fn failing(&self) -> Option<String> {
        self.0.borrow().as_ref().map(|failing| failing.why.clone())
    }

    /// Resolves once it could not be written for `limit` without a break.
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

    /// Resolves once it is failing, or is not, as `failing` says.
    pub(crate) async fn becomes(&self, failing: bool) {
        // Fails only if the sender is gone, which lives as long as this is borrowed.
        let _ = self.0.subscribe().wait_for(|is| is.is_some() == failing).await;
    }
}
