//! Limits the exchanges of each caller and each cluster, at whatever listener a caller arrives, and queues
//! requests fairly.
//!
//! A request that exceeds a limit is refused before a byte of it is sent. The limits of a caller and of a
//! cluster count what is running. Requests of one cluster share its seats fairly among callers. A
//! long-running request needs a seat only until its response has started.

mod digest;
mod elsewhere;
mod exceeded;
mod ledger;
mod list_watches;
mod peers;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use daemon::{NoSeat, Seat, SeatLimits, Seats};
use policy::action::Action;
use proto::ClusterId;
use proto::upgrade_protocol::UpgradeProtocol;

use crate::config::LimitsConfig;
use crate::identity::{Caller, Method};
use crate::metrics;
use elsewhere::UsageElsewhere;
use ledger::Ledger;
use list_watches::{LIST_WATCHES_MAX, LIST_WATCHES_PER_CALLER_MAX, ListWatches};

pub use exceeded::LimitExceeded;
pub(crate) use list_watches::ListWatchGuard;
pub use peers::PeerUsage;

/// Most requests in one of a cluster's fair queues. It is half of all that wait in the default configuration.
const QUEUED_PER_QUEUE_MAX: usize = 50;

/// Most reads of cluster sets that one caller may have under way.
const SET_READS_MAX: usize = 4;

/// The limiter of all callers and clusters. Clones share one ledger.
#[derive(Clone)]
pub struct Limiter(Arc<SharedLimiter>);

struct SharedLimiter {
    limits: LimitsConfig,
    ledger: Mutex<Ledger>,
    /// The gateway's connections of each caller. No entry is zero, so there are never more callers than connections.
    connections: Mutex<HashMap<CallerKey, usize>>,
    /// The reads of cluster sets of each caller. No entry is zero.
    set_reads: Mutex<HashMap<CallerKey, usize>>,
    list_watches: ListWatches,
    /// The use at the other servers, as these tell of it.
    elsewhere: Mutex<UsageElsewhere>,
}

/// Guard of one connection of a caller, which counts until it is dropped.
#[must_use = "the connection is no longer counted when this is dropped"]
pub(crate) struct ConnectionGuard {
    limiter: Limiter,
    key: CallerKey,
}

/// Guard of one read of a cluster set, which counts until it is dropped.
#[must_use = "the read is no longer counted when this is dropped"]
pub(crate) struct SetReadGuard {
    limiter: Limiter,
    key: CallerKey,
}

/// Guard of one exchange, which counts against the limits until it is dropped.
#[must_use = "the exchange is no longer counted when this is dropped"]
pub(crate) struct LimitGuard {
    // Dropped before `entry`, because the cluster's seats exist only while it has an entry.
    seat: Option<Seat>,
    entry: LedgerEntry,
}

/// One exchange in the ledger, until it is dropped.
struct LedgerEntry {
    limiter: Limiter,
    key: CallerKey,
    cluster: ClusterId,
    kind: ExchangeKind,
}

/// The identity by which a caller is counted. A name counts only together with the method that proved it. A
/// caller who proved nothing is identified by its source address too.
type CallerKey = (Method, String, Option<IpAddr>);

/// The lifetime of an exchange, which decides which limits apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExchangeKind {
    /// A request that ends by itself.
    Request,
    /// A watch, a log, or a request through `proxy`, which lasts as long as its caller wants.
    Watch,
    /// A long-running connection of another protocol, for example a shell.
    Upgrade,
    /// A connection from an entry point that has a limit on connections of its own.
    EntryPoint,
    /// One cluster's part of a read of a cluster set, which counts for its caller as a whole.
    SetMember,
}

/// The current use of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitUsage {
    /// The name of the limit in metrics.
    pub limit: &'static str,
    /// The configured value of the limit.
    pub max: usize,
    /// The use by the caller, or the cluster, that uses most.
    pub most: usize,
}

impl Limiter {
    /// Creates a limiter with these limits, which apply to each caller and each cluster.
    pub(crate) fn new(limits: LimitsConfig) -> Self {
        metrics::describe_limits(LimitExceeded::NAMES);
        Self(Arc::new(SharedLimiter {
            limits,
            ledger: Mutex::default(),
            connections: Mutex::default(),
            set_reads: Mutex::default(),
            list_watches: ListWatches::default(),
            elsewhere: Mutex::default(),
        }))
    }

    /// Counts one more request of `caller` against its rate.
    ///
    /// # Errors
    /// [`LimitExceeded::CallerRate`] if the caller sends requests too fast.
    pub(crate) fn check_rate(&self, caller: &Caller) -> Result<(), LimitExceeded> {
        self.check_rate_at(caller, Instant::now())
    }

    fn check_rate_at(&self, caller: &Caller, now: Instant) -> Result<(), LimitExceeded> {
        let (key, rate) = (key(caller), self.0.limits.caller.rate);
        let interval = self.token_interval(&key, now);
        let may = self.lock().check_rate(&key, rate, interval, now);
        if may { Ok(()) } else { Err(count_exceeded(LimitExceeded::CallerRate(rate.per_second))) }
    }

    /// Counts one more exchange of `caller` with `cluster`. It has no seat yet.
    ///
    /// # Errors
    /// [`LimitExceeded`] if a limit of the caller or of the cluster is reached.
    pub(crate) fn admit(
        &self,
        caller: &Caller,
        cluster: &ClusterId,
        kind: ExchangeKind,
    ) -> Result<LimitGuard, LimitExceeded> {
        self.admit_at(caller, cluster, kind, Instant::now())
    }

    fn admit_at(
        &self,
        caller: &Caller,
        cluster: &ClusterId,
        kind: ExchangeKind,
        now: Instant,
    ) -> Result<LimitGuard, LimitExceeded> {
        let key = key(caller);
        let room = self.room(&key, cluster, kind, now);
        let entered = self.lock().enter(&key, cluster, kind, &self.0.limits, room, now);
        entered.map_err(count_exceeded)?;
        let entry = LedgerEntry { limiter: self.clone(), key, cluster: cluster.clone(), kind };
        Ok(LimitGuard { seat: None, entry })
    }

    /// Counts one more connection of `caller` to the gateway.
    ///
    /// # Errors
    /// [`LimitExceeded::CallerConnections`] if the caller has as many as it may have.
    pub(crate) fn enter_connection(&self, caller: &Caller) -> Result<ConnectionGuard, LimitExceeded> {
        let (key, max) = (key(caller), self.0.limits.caller.connections);
        let room = self.connections_room(&key, Instant::now());
        let mut connections = self.connections();
        if !enter(&mut connections, &key, room) {
            return Err(count_exceeded(LimitExceeded::CallerConnections(max)));
        }
        drop(connections);
        Ok(ConnectionGuard { limiter: self.clone(), key })
    }

    /// Counts one more read of a cluster set by `caller`, whatever number of clusters it asks.
    ///
    /// # Errors
    /// [`LimitExceeded::CallerSetReads`] if the caller has [`SET_READS_MAX`] already.
    pub(crate) fn enter_set_read(&self, caller: &Caller) -> Result<SetReadGuard, LimitExceeded> {
        let key = key(caller);
        if !enter(&mut self.set_reads(), &key, SET_READS_MAX) {
            return Err(count_exceeded(LimitExceeded::CallerSetReads(SET_READS_MAX)));
        }
        Ok(SetReadGuard { limiter: self.clone(), key })
    }

    /// The configured limits of callers and clusters.
    pub(crate) fn limits(&self) -> &LimitsConfig {
        &self.0.limits
    }

    /// Counts in metrics that `limit` was exceeded, and returns it.
    pub(crate) fn count_exceeded(&self, limit: LimitExceeded) -> LimitExceeded {
        count_exceeded(limit)
    }

    /// The current use of each limit.
    pub(crate) fn usage(&self) -> Vec<LimitUsage> {
        let LimitsConfig { caller, cluster, server, .. } = self.0.limits;
        let most = self.lock().most();
        let connections = self.connections().values().copied().max().unwrap_or_default();
        let set_reads = self.set_reads().values().copied().max().unwrap_or_default();
        let list_watches = self.0.list_watches.most();
        let used = |limit: LimitExceeded, max, most| LimitUsage { limit: limit.as_str(), max, most };
        vec![
            used(LimitExceeded::CallerExchanges(0), server.requests_per_caller(), most.caller_exchanges),
            used(LimitExceeded::CallerRequests(0), caller.requests, most.caller_requests),
            used(LimitExceeded::CallerWatches(0), caller.watches_per_cluster, most.caller_watches),
            used(LimitExceeded::CallerUpgrades(0), caller.upgrades, most.caller_upgrades),
            used(LimitExceeded::CallerConnections(0), caller.connections, connections),
            used(LimitExceeded::CallerSetReads(0), SET_READS_MAX, set_reads),
            used(LimitExceeded::CallerListWatches(0), LIST_WATCHES_PER_CALLER_MAX, list_watches.of_caller),
            used(LimitExceeded::ListWatches(0), LIST_WATCHES_MAX, list_watches.all),
            used(LimitExceeded::ClusterWatches(0), cluster.watches, most.cluster_watches),
            used(LimitExceeded::ClusterUpgrades(0), cluster.upgrades, most.cluster_upgrades),
            used(LimitExceeded::ClusterQueue, cluster.queue, most.cluster_queue),
            used(LimitExceeded::ClusterRequests(0), cluster.requests, most.cluster_requests),
        ]
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<CallerKey, usize>> {
        self.0.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_reads(&self) -> MutexGuard<'_, HashMap<CallerKey, usize>> {
        self.0.set_reads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LimitGuard {
    /// Waits for a seat of the cluster. Cancel-safe: dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`LimitExceeded`] if no seat becomes free in time, or the queue is full.
    pub(crate) async fn wait_for_seat(mut self) -> Result<Self, LimitExceeded> {
        let LedgerEntry { limiter, key, cluster, .. } = &self.entry;
        let limits = limiter.0.limits.cluster;
        // The cluster has seats as long as this entry exists.
        let seats = limiter.lock().seats(cluster);
        if let Some(seats) = seats {
            let seat = seats.take(key, limits.queue_wait).await;
            self.seat = Some(seat.map_err(|none| {
                count_exceeded(match none {
                    NoSeat::QueueFull => LimitExceeded::ClusterQueue,
                    NoSeat::TimedOut => LimitExceeded::ClusterRequests(limits.requests),
                })
            })?);
        }
        Ok(self)
    }

    /// Records that the response has started. A long-running exchange gives its seat back.
    pub(crate) fn response_started(&mut self) {
        match self.entry.kind {
            ExchangeKind::Request | ExchangeKind::SetMember => {}
            ExchangeKind::Watch | ExchangeKind::Upgrade | ExchangeKind::EntryPoint => self.seat = None,
        }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        leave(&mut self.limiter.connections(), &self.key);
    }
}

impl Drop for SetReadGuard {
    fn drop(&mut self) {
        leave(&mut self.limiter.set_reads(), &self.key);
    }
}

/// Counts one more for a caller that has less than there is `room`. Returns false for any other.
fn enter(counts: &mut HashMap<CallerKey, usize>, key: &CallerKey, room: usize) -> bool {
    let count = counts.get(key).copied().unwrap_or_default();
    if count < room {
        counts.insert(key.clone(), count + 1);
    }
    count < room
}

/// Counts one less, and forgets a caller that has none left.
fn leave(counts: &mut HashMap<CallerKey, usize>, key: &CallerKey) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl Drop for LedgerEntry {
    fn drop(&mut self) {
        self.limiter.lock().leave(&self.key, &self.cluster, self.kind);
    }
}

impl ExchangeKind {
    /// The kind of an exchange with this action, which may ask for an upgrade.
    pub(crate) fn from_action(action: &Action, upgrade: Option<UpgradeProtocol>) -> Self {
        match (upgrade, action.is_long_running()) {
            (Some(_), _) => Self::Upgrade,
            (None, true) => Self::Watch,
            (None, false) => Self::Request,
        }
    }
}

/// Creates the seats of one cluster, as configured.
fn seats(limits: &LimitsConfig) -> Seats {
    let (seats, waiting) = (limits.cluster.requests, limits.cluster.queue);
    Seats::new(SeatLimits { seats, per_queue: QUEUED_PER_QUEUE_MAX, waiting })
}

fn key(caller: &Caller) -> CallerKey {
    (caller.method().clone(), caller.user().to_owned(), caller.source_address())
}

/// Counts in metrics that `limit` was exceeded, and returns it.
pub(crate) fn count_exceeded(limit: LimitExceeded) -> LimitExceeded {
    metrics::limited(limit.as_str());
    limit
}

#[cfg(test)]
mod tests;
