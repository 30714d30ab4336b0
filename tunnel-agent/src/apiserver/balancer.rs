//! Balances requests among a cluster's API servers that are ready, and notifies the pools when these change.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::watch;
use tracing::{info, warn};

use super::endpoints::{Destination, Endpoints};
use super::error::ApiServerError;
use super::serving_certificates::ServingCertificates;
use crate::metrics;

/// The API servers of a cluster, shared by all clients of them.
pub(super) struct Balancer {
    endpoints: Mutex<Endpoints>,
    /// Notified when requests may go to other API servers, or others were configured.
    changed: watch::Sender<()>,
    /// Counts the changes of the destinations.
    version: AtomicU64,
    /// Counts requests for destinations, so that each begins with another one.
    next: AtomicUsize,
    /// The certificates that the API servers show.
    pub(super) certificates: ServingCertificates,
}

impl Default for Balancer {
    fn default() -> Self {
        Self {
            endpoints: Mutex::default(),
            changed: watch::Sender::new(()),
            version: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            certificates: ServingCertificates::default(),
        }
    }
}

impl Balancer {
    /// Replaces the addresses of the API servers.
    pub(super) fn set(&self, addresses: &[SocketAddr]) {
        let mut endpoints = self.endpoints();
        endpoints.set(addresses, Instant::now());
        self.publish(&endpoints);
        drop(endpoints);
        self.certificates.retain(addresses);
    }

    /// The destinations of requests, at least one, beginning with another one each time.
    pub(super) fn destinations(&self) -> Vec<Destination> {
        let mut destinations = self.endpoints().destinations();
        let next = self.next.fetch_add(1, Ordering::Relaxed) % destinations.len();
        destinations.rotate_left(next);
        destinations
    }

    /// A number that grows whenever the destinations change.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The API servers that are ready, beginning with another one each time.
    pub(super) fn ready(&self) -> Vec<SocketAddr> {
        self.destinations().into_iter().flatten().collect()
    }

    /// Returns true if an API server at this address is known and not ready.
    pub(super) fn is_down(&self, address: SocketAddr) -> bool {
        self.endpoints().is_down(address)
    }

    /// A connection to this destination could not be made.
    pub(super) fn failed(&self, destination: Destination, error: &ApiServerError) {
        let Some(address) = destination else { return };
        let mut endpoints = self.endpoints();
        if endpoints.failed(address, Instant::now()) {
            warn!(%address, error = %daemon::error_chain(error), "an API server cannot be reached: it gets no more requests");
            self.publish(&endpoints);
        }
    }

    /// Changes whenever requests may go to other API servers.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Returns once requests may no longer go to this destination.
    pub(super) async fn lost(&self, destination: Destination) {
        let mut changed = self.subscribe();
        while self.endpoints().destinations().contains(&destination) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// The API servers that are to be probed now, and the time at which the next one is.
    pub(super) fn due(&self) -> (Vec<SocketAddr>, Option<Instant>) {
        let mut endpoints = self.endpoints();
        (endpoints.due(Instant::now()), endpoints.next_due())
    }

    /// Returns true if an API server at this address is known.
    pub(super) fn has(&self, address: SocketAddr) -> bool {
        self.endpoints().has(address)
    }

    /// A probe of an API server has found whether it is ready.
    pub(super) fn probed(&self, address: SocketAddr, is_ready: bool) {
        let mut random = [0];
        // Without random numbers all agents probe at the same time, which does no harm.
        let _ = aws_lc_rs::rand::fill(&mut random);
        let mut endpoints = self.endpoints();
        if endpoints.probed(address, is_ready, Instant::now(), random[0]) {
            if is_ready {
                info!(%address, "an API server is ready: it gets requests from now on");
            } else {
                warn!(%address, "an API server is not ready: it gets no more requests");
            }
            self.publish(&endpoints);
        }
    }

    fn publish(&self, endpoints: &Endpoints) {
        let (ready, not_ready) = endpoints.count();
        metrics::api_servers(ready, not_ready);
        self.version.fetch_add(1, Ordering::Release);
        self.changed.send_replace(());
    }

    fn endpoints(&self) -> MutexGuard<'_, Endpoints> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
