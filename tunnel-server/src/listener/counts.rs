//! What the listener counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that only grow.
#[derive(Debug, Default)]
pub struct Counts {
    pub(super) accepted: AtomicU64,
    pub(super) turned_away: AtomicU64,
    pub(super) accept_failed: AtomicU64,
    pub(super) handshake_failed: AtomicU64,
}

/// The values of [`Counts`] at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Connections that were handed over after their handshake.
    pub accepted: u64,
    /// Connections that were closed at once, because there were too many connections or handshakes.
    pub turned_away: u64,
    /// Times that the system gave an error instead of a connection.
    pub accept_failed: u64,
    /// Handshakes that failed or took too long.
    pub handshake_failed: u64,
}

impl Counts {
    /// The values now.
    #[must_use]
    pub fn now(&self) -> Tally {
        // Each counter stands alone; nothing is derived from their order.
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Tally {
            accepted: value(&self.accepted),
            turned_away: value(&self.turned_away),
            accept_failed: value(&self.accept_failed),
            handshake_failed: value(&self.handshake_failed),
        }
    }

    pub(super) fn one_more(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
