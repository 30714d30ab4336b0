//! The counters of a listener, its slots, and its limits on sources and certificates.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tracing::debug;

use super::ListenerLimits;
use super::source_limits::{Lane, SourceAdmission, SourceDecision, Sources};

/// Counters that only grow, and the semaphores of connections and handshakes.
#[derive(Debug)]
pub struct Counters {
    limits: ListenerLimits,
    connections: Arc<Semaphore>,
    handshakes: Arc<Semaphore>,
    /// The slots beside the others, for clients that prove who they are.
    reserved: Arc<Semaphore>,
    accepted: AtomicU64,
    turned_away: AtomicU64,
    accept_failed: AtomicU64,
    handshake_failed: AtomicU64,
    source_limited: AtomicU64,
    certificate_limited: AtomicU64,
    /// The use of the listener by each source.
    sources: Mutex<Sources<oneshot::Sender<()>>>,
    /// The open connections of each certificate. No entry is zero, so there are never more than connections.
    certificates: Mutex<HashMap<u64, usize>>,
    /// Has a new key in each process, so that nobody can make a certificate with the hash of another one.
    hasher: RandomState,
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
    /// Connections without proof that were closed because their source had too many, or opened them too fast.
    pub source_limited: u64,
    /// Connections that were closed because their certificate had too many.
    pub certificate_limited: u64,
    /// Connections without proof of the source that has most of them.
    pub busiest_source: usize,
    /// Connections that are open now, including those in a handshake.
    pub connections_open: usize,
    /// Handshakes that are in progress now.
    pub handshakes_open: usize,
}

/// An event that a listener counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerEvent {
    /// A connection completed its handshake and was handed over.
    Accepted,
    /// A handshake failed or took too long.
    HandshakeFailed,
    /// A connection was closed because its source had too many.
    SourceLimited,
}

/// The slots of one connection.
#[derive(Debug)]
pub(super) struct Slots {
    /// Held as long as the connection.
    pub(super) connection: OwnedSemaphorePermit,
    /// Held until its handshake is over; none for a connection in a reserved slot.
    pub(super) handshake: Option<OwnedSemaphorePermit>,
    pub(super) lane: Lane,
}

/// The use that a connection makes of its source's limits, until this is dropped.
#[derive(Debug)]
pub(super) struct SourceGuard {
    counters: Arc<Counters>,
    admission: Option<SourceAdmission>,
}

/// One of a certificate's connections, until this is dropped.
#[derive(Debug)]
pub(super) struct CertificateGuard {
    counters: Arc<Counters>,
    key: u64,
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
            certificate_limited: self.certificate_limited + other.certificate_limited,
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
            reserved: Arc::new(Semaphore::new(limits.reserved)),
            accepted: AtomicU64::new(0),
            turned_away: AtomicU64::new(0),
            accept_failed: AtomicU64::new(0),
            handshake_failed: AtomicU64::new(0),
            source_limited: AtomicU64::new(0),
            certificate_limited: AtomicU64::new(0),
            sources: Mutex::new(Sources::new(limits.source)),
            certificates: Mutex::default(),
            hasher: RandomState::new(),
        }
    }

    /// The values of all counters now.
    #[must_use]
    pub fn values(&self) -> CounterValues {
        // Each counter is independent, so relaxed ordering is enough.
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let in_reserve = self.limits.reserved - self.reserved.available_permits();
        CounterValues {
            accepted: value(&self.accepted),
            turned_away: value(&self.turned_away),
            accept_failed: value(&self.accept_failed),
            handshake_failed: value(&self.handshake_failed),
            source_limited: value(&self.source_limited),
            certificate_limited: value(&self.certificate_limited),
            busiest_source: self.sources().busiest(),
            connections_open: self.limits.connections_max - self.connections.available_permits() + in_reserve,
            handshakes_open: self.limits.handshakes_max - self.handshakes.available_permits(),
        }
    }

    /// Counts an event of a connection that was handed over.
    pub fn count(&self, event: ListenerEvent) {
        increment(match event {
            ListenerEvent::Accepted => &self.accepted,
            ListenerEvent::HandshakeFailed => &self.handshake_failed,
            ListenerEvent::SourceLimited => &self.source_limited,
        });
    }

    pub(super) fn count_failed_accept(&self) {
        increment(&self.accept_failed);
    }

    /// Takes the slots of one more connection. `None` if the listener is full.
    pub(super) fn take_slots(&self) -> Option<Slots> {
        let connection = Arc::clone(&self.connections).try_acquire_owned();
        let handshake = Arc::clone(&self.handshakes).try_acquire_owned();
        if let (Ok(connection), Ok(handshake)) = (connection, handshake) {
            return Some(Slots { connection, handshake: Some(handshake), lane: Lane::Open });
        }
        let Ok(connection) = Arc::clone(&self.reserved).try_acquire_owned() else {
            increment(&self.turned_away);
            return None;
        };
        Some(Slots { connection, handshake: None, lane: Lane::Proving })
    }

    /// Admits one more connection from `peer`, to the lane that its slots allow or a stricter one. The
    /// receiver resolves when another connection displaces it. `None` if its source has too many connections.
    pub(super) fn admit_source(
        self: &Arc<Self>,
        peer: SocketAddr,
        lane: Lane,
    ) -> Option<(SourceGuard, oneshot::Receiver<()>)> {
        let (ends, displaced) = oneshot::channel();
        // A displaced sender is dropped here, which ends its connection.
        match self.sources().admit(peer.ip(), lane, ends, Instant::now()) {
            SourceDecision::Granted(admission, _) => {
                Some((SourceGuard { counters: Arc::clone(self), admission: Some(admission) }, displaced))
            }
            SourceDecision::Refused => {
                increment(&self.source_limited);
                debug!(%peer, "too many connections of its source, closed a new one");
                None
            }
        }
    }

    /// Counts a connection from `peer` that was admitted before, by another process.
    pub(super) fn admit_source_again(self: &Arc<Self>, peer: SocketAddr) -> SourceGuard {
        let admission = self.sources().admit_again(peer.ip(), Instant::now());
        SourceGuard { counters: Arc::clone(self), admission: Some(admission) }
    }

    /// Counts one more connection with this certificate. `None` if the certificate has too many.
    pub(super) fn admit_certificate(self: &Arc<Self>, leaf: &[u8]) -> Option<CertificateGuard> {
        let key = self.hasher.hash_one(leaf);
        let mut certificates = self.certificates.lock().unwrap_or_else(PoisonError::into_inner);
        let open = certificates.get(&key).copied().unwrap_or_default();
        if open >= self.limits.of_certificate {
            increment(&self.certificate_limited);
            return None;
        }
        certificates.insert(key, open + 1);
        Some(CertificateGuard { counters: Arc::clone(self), key })
    }

    fn sources(&self) -> MutexGuard<'_, Sources<oneshot::Sender<()>>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SourceGuard {
    pub(super) fn must_prove(&self) -> bool {
        self.admission.is_some_and(SourceAdmission::must_prove)
    }

    /// Releases the use of the source's limits, because the client has proved who it is, or has gone.
    pub(super) fn proved(&mut self) {
        if let Some(admission) = self.admission.take() {
            self.counters.sources().released(admission);
        }
    }
}

impl Drop for SourceGuard {
    fn drop(&mut self) {
        self.proved();
    }
}

impl Drop for CertificateGuard {
    fn drop(&mut self) {
        let mut certificates = self.counters.certificates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = certificates.get_mut(&self.key) {
            *open -= 1;
            if *open == 0 {
                certificates.remove(&self.key);
            }
        }
    }
}

fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
