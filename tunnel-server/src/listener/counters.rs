//! The counters of a listener, and its limits on sources.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{Semaphore, oneshot};
use tracing::debug;

use super::source_limits::{SourceDecision, Sources};
use super::{ListenerLimits, SourceGuard};

/// Counters that only grow, and the semaphores of connections and handshakes.
#[derive(Debug)]
pub struct Counters {
    limits: ListenerLimits,
    pub(super) connections: Arc<Semaphore>,
    pub(super) handshakes: Arc<Semaphore>,
    pub(super) accepted: AtomicU64,
    pub(super) turned_away: AtomicU64,
    pub(super) accept_failed: AtomicU64,
    pub(super) handshake_failed: AtomicU64,
    pub(super) source_limited: AtomicU64,
    /// The use of the listener by each source, if that is limited.
    sources: Option<Mutex<Sources<oneshot::Sender<()>>>>,
}

/// The values of [`Counters`] at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CounterValues {
    /// Connections that completed their handshake and were handed over.
    pub accepted: u64,
    /// Connections that were closed at once, because there were too many connections or handshakes.
    pub turned_away: u64,
    /// Errors of the system in place of a connection.
    pub accept_failed: u64,
    /// Handshakes that failed or took too long.
    pub handshake_failed: u64,
    /// Connections without a certificate that were closed because their source had too many, or opened them
    /// too fast.
    pub source_limited: u64,
    /// Connections without a certificate of the source that has most of them.
    pub busiest_source: usize,
    /// Connections that are open now, including those in a handshake.
    pub connections_open: usize,
    /// Handshakes that are in progress now.
    pub handshakes_open: usize,
}

impl CounterValues {
    /// The sum of the values of two listeners.
    #[must_use]
    pub fn sum(self, other: Self) -> Self {
        Self {
            accepted: self.accepted + other.accepted,
            turned_away: self.turned_away + other.turned_away,
            accept_failed: self.accept_failed + other.accept_failed,
            handshake_failed: self.handshake_failed + other.handshake_failed,
            source_limited: self.source_limited + other.source_limited,
            busiest_source: self.busiest_source.max(other.busiest_source),
            connections_open: self.connections_open + other.connections_open,
            handshakes_open: self.handshakes_open + other.handshakes_open,
        }
    }
}

impl Counters {
    pub(super) fn new(limits: ListenerLimits) -> Self {
        Self {
            limits,
            connections: Arc::new(Semaphore::new(limits.connections_max)),
            handshakes: Arc::new(Semaphore::new(limits.handshakes_max)),
            accepted: AtomicU64::new(0),
            turned_away: AtomicU64::new(0),
            accept_failed: AtomicU64::new(0),
            handshake_failed: AtomicU64::new(0),
            source_limited: AtomicU64::new(0),
            sources: limits.source.map(|limits| Mutex::new(Sources::new(limits))),
        }
    }

    /// The values of all counters now.
    #[must_use]
    pub fn values(&self) -> CounterValues {
        // Each counter is independent, so relaxed ordering is enough.
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CounterValues {
            accepted: value(&self.accepted),
            turned_away: value(&self.turned_away),
            accept_failed: value(&self.accept_failed),
            handshake_failed: value(&self.handshake_failed),
            source_limited: value(&self.source_limited),
            busiest_source: self.sources().map_or(0, |sources| sources.busiest()),
            connections_open: self.limits.connections_max - self.connections.available_permits(),
            handshakes_open: self.limits.handshakes_max - self.handshakes.available_permits(),
        }
    }

    /// Admits one more connection from `peer`. The receiver resolves when another connection displaces it.
    /// `None` if its source has too many connections.
    pub(super) fn admit_source(
        self: &Arc<Self>,
        peer: SocketAddr,
    ) -> Option<(SourceGuard, oneshot::Receiver<()>)> {
        let (ends, displaced) = oneshot::channel();
        let Some(mut sources) = self.sources() else {
            return Some((SourceGuard { counters: Arc::clone(self), admission: None }, displaced));
        };
        // A displaced sender is dropped here, which ends its handshake.
        match sources.admit(peer.ip(), ends, Instant::now()) {
            SourceDecision::Granted(admission, _) => {
                Some((SourceGuard { counters: Arc::clone(self), admission: Some(admission) }, displaced))
            }
            SourceDecision::Refused => {
                Self::increment(&self.source_limited);
                debug!(%peer, "too many connections of its source, closed a new one");
                None
            }
        }
    }

    pub(super) fn sources(&self) -> Option<MutexGuard<'_, Sources<oneshot::Sender<()>>>> {
        let sources = self.sources.as_ref()?;
        Some(sources.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn increment(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
