//! What the listener counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;

use super::Limits;

/// Counters that only grow, and the places that are taken.
#[derive(Debug)]
pub struct Counts {
    limits: Limits,
    pub(super) connections: Arc<Semaphore>,
    pub(super) handshakes: Arc<Semaphore>,
    pub(super) accepted: AtomicU64,
    pub(super) turned_away: AtomicU64,
    pub(super) accept_failed: AtomicU64,
    pub(super) handshake_failed: AtomicU64,
}

/// The values of [`Counts`] at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Connections that were handed over after their handshake.
    pub accepted: u64,
    /// Connections that were closed at once, because there were too many connections or handshakes.
    pub turned_away: u64,
    /// Times that the system gave an error instead of a connection.
    pub accept_failed: u64,
    /// Handshakes that failed or took too long.
    pub handshake_failed: u64,
    /// Connections that are open now, those that shake hands included.
    pub connections_open: usize,
    /// Handshakes in progress now.
    pub handshakes_open: usize,
}

impl Tally {
    /// Of both doors.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            accepted: self.accepted + other.accepted,
            turned_away: self.turned_away + other.turned_away,
            accept_failed: self.accept_failed + other.accept_failed,
            handshake_failed: self.handshake_failed + other.handshake_failed,
            connections_open: self.connections_open + other.connections_open,
            handshakes_open: self.handshakes_open + other.handshakes_open,
        }
    }
}

impl Counts {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            connections: Arc::new(Semaphore::new(limits.connections_max)),
            handshakes: Arc::new(Semaphore::new(limits.handshakes_max)),
            accepted: AtomicU64::new(0),
            turned_away: AtomicU64::new(0),
            accept_failed: AtomicU64::new(0),
            handshake_failed: AtomicU64::new(0),
        }
    }

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
            connections_open: self.limits.connections_max - self.connections.available_permits(),
            handshakes_open: self.limits.handshakes_max - self.handshakes.available_permits(),
        }
    }

    pub(super) fn one_more(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
