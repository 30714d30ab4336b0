//! Counts the running exchanges of each caller and each cluster. Callers without any, and without recent
//! requests, are forgotten.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use daemon::{Rate, Seats, TokenBucket};
use proto::ClusterId;
use proto::peering::UsageKind;

use super::{CallerKey, ExchangeKind, LimitExceeded, seats};
use crate::config::{CallerLimits, LIMIT_MAX, LimitsConfig};

/// Callers whose request rate is remembered. Beyond this number callers without running exchanges are
/// forgotten, and may send requests as if they had sent none.
pub(super) const CALLERS_MAX: usize = 2 * LIMIT_MAX;

/// The number of callers below which no sweep for idle ones takes place.
const SWEEP_MIN: usize = 1_024;

#[derive(Default)]
pub(super) struct Ledger {
    callers: HashMap<CallerKey, CallerUsage>,
    clusters: HashMap<ClusterId, ClusterUsage>,
    /// The number of callers at which the next sweep takes place: twice the number after the last one.
    sweep_at: usize,
    /// The last time at which the large shares were taken.
    taken_at: Option<Instant>,
}

struct CallerUsage {
    bucket: TokenBucket,
    exchanges: usize,
    requests: usize,
    upgrades: usize,
    /// The number of watches by cluster. An entry is never zero.
    watches: HashMap<ClusterId, usize>,
    /// The requests since the large shares were taken, admitted or not.
    asked: usize,
    /// The short ones among them that were refused because too many ran.
    refused: usize,
}

/// One caller's use of one limit, if it is much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LargeShare {
    pub(super) key: CallerKey,
    /// The cluster, if the limit is for one.
    pub(super) cluster: Option<ClusterId>,
    pub(super) kind: UsageKind,
    pub(super) held: usize,
    pub(super) max: usize,
}

struct ClusterUsage {
    seats: Seats,
    exchanges: usize,
    watches: usize,
    upgrades: usize,
}

/// The highest use of each limit by any caller or cluster.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeakUsage {
    pub(super) caller_exchanges: usize,
    pub(super) caller_requests: usize,
    pub(super) caller_watches: usize,
    pub(super) caller_upgrades: usize,
    pub(super) cluster_requests: usize,
    pub(super) cluster_queue: usize,
    pub(super) cluster_watches: usize,
    pub(super) cluster_upgrades: usize,
}

impl Ledger {
    /// Counts one more request of `key`. Returns whether its rate allows that, of which a token is back after `interval`.
    pub(super) fn check_rate(
        &mut self,
        key: &CallerKey,
        rate: Rate,
        interval: Duration,
        now: Instant,
    ) -> bool {
        let caller = self.caller(key, now);
        caller.asked += 1;
        caller.bucket.take_for(interval, rate, now)
    }

    /// Counts one more exchange, unless the caller has as many of its kind as there is `room`, or another limit of the caller or
    /// the cluster is reached.
    pub(super) fn enter(
        &mut self,
        key: &CallerKey,
        cluster: &ClusterId,
        kind: ExchangeKind,
        limits: &LimitsConfig,
        room: usize,
        now: Instant,
    ) -> Result<(), LimitExceeded> {
        let caller = self.caller(key, now);
        if let Err(limit) = caller.may_begin(cluster, kind, limits, room) {
            caller.refused += usize::from(matches!(limit, LimitExceeded::CallerRequests(_)));
            return Err(limit);
        }
        let of_cluster =
            self.clusters.entry(cluster.clone()).or_insert_with(|| ClusterUsage::new(seats(limits)));
        let may_begin = of_cluster.may_begin(kind, limits);
        if may_begin.is_ok() {
            of_cluster.add(kind);
            if let Some(caller) = self.callers.get_mut(key) {
                caller.add(cluster, kind);
            }
        }
        may_begin
    }

    /// Removes one exchange from the counts.
    pub(super) fn leave(&mut self, key: &CallerKey, cluster: &ClusterId, kind: ExchangeKind) {
        if let Some(caller) = self.callers.get_mut(key) {
            caller.subtract(cluster, kind);
        }
        if let Some(of_cluster) = self.clusters.get_mut(cluster) {
            of_cluster.subtract(kind);
            if of_cluster.exchanges == 0 {
                self.clusters.remove(cluster);
            }
        }
    }

    /// The shares of callers beyond one of `parts` equal parts of a limit. Requests are counted anew from now on.
    pub(super) fn take_large(
        &mut self,
        limits: &CallerLimits,
        parts: usize,
        now: Instant,
    ) -> Vec<LargeShare> {
        let second = Duration::from_secs(1).as_millis();
        let elapsed = self.taken_at.map_or(second, |at| now.saturating_duration_since(at).as_millis().max(1));
        let per_second =
            |count: usize| usize::try_from(count as u128 * second / elapsed).unwrap_or(usize::MAX);
        self.taken_at = Some(now);
        let mut large = Vec::new();
        for (key, caller) in &mut self.callers {
            let rate = limits.rate.per_second as usize;
            let mut tell = |cluster: Option<&ClusterId>, kind, held: usize, max: usize| {
                // A refused request is told in any case: others have to make room for it.
                if held.saturating_mul(parts) > max || (kind == UsageKind::RequestsWanted && held > 0) {
                    let (key, cluster) = (key.clone(), cluster.cloned());
                    large.push(LargeShare { key, cluster, kind, held, max });
                }
            };
            tell(None, UsageKind::Requests, caller.requests, limits.requests);
            let wanted = if caller.refused > 0 { caller.requests + caller.refused } else { 0 };
            tell(None, UsageKind::RequestsWanted, wanted, limits.requests);
            tell(None, UsageKind::Rate, per_second(caller.asked), rate);
            tell(None, UsageKind::Upgrades, caller.upgrades, limits.upgrades);
            for (cluster, watches) in &caller.watches {
                tell(Some(cluster), UsageKind::Watches, *watches, limits.watches_per_cluster);
            }
            (caller.asked, caller.refused) = (0, 0);
        }
        large
    }

    /// The seats of a cluster. `None` if no exchange with it is running.
    pub(super) fn seats(&self, cluster: &ClusterId) -> Option<Seats> {
        self.clusters.get(cluster).map(|of_cluster| of_cluster.seats.clone())
    }

    pub(super) fn most(&self) -> PeakUsage {
        let mut most = PeakUsage::default();
        for caller in self.callers.values() {
            most.caller_exchanges = most.caller_exchanges.max(caller.exchanges);
            most.caller_requests = most.caller_requests.max(caller.requests);
            most.caller_upgrades = most.caller_upgrades.max(caller.upgrades);
            let watches = caller.watches.values().copied().max().unwrap_or_default();
            most.caller_watches = most.caller_watches.max(watches);
        }
        for cluster in self.clusters.values() {
            let figures = cluster.seats.figures();
            most.cluster_requests = most.cluster_requests.max(figures.taken);
            most.cluster_queue = most.cluster_queue.max(figures.waiting);
            most.cluster_watches = most.cluster_watches.max(cluster.watches);
            most.cluster_upgrades = most.cluster_upgrades.max(cluster.upgrades);
        }
        most
    }

    /// The number of callers and of clusters in the ledger.
    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize) {
        (self.callers.len(), self.clusters.len())
    }

    fn caller(&mut self, key: &CallerKey, now: Instant) -> &mut CallerUsage {
        if self.callers.len() >= self.sweep_at.clamp(SWEEP_MIN, CALLERS_MAX)
            && !self.callers.contains_key(key)
        {
            self.callers.retain(|_, caller| caller.exchanges > 0 || !caller.bucket.is_full(now));
            if self.callers.len() >= CALLERS_MAX {
                self.callers.retain(|_, caller| caller.exchanges > 0);
            }
            self.sweep_at = 2 * self.callers.len();
        }
        self.callers.entry(key.clone()).or_insert_with(|| CallerUsage::new(now))
    }
}

impl CallerUsage {
    fn new(now: Instant) -> Self {
        let bucket = TokenBucket::full(now);
        let watches = HashMap::new();
        Self { bucket, exchanges: 0, requests: 0, upgrades: 0, watches, asked: 0, refused: 0 }
    }

    fn may_begin(
        &self,
        cluster: &ClusterId,
        kind: ExchangeKind,
        limits: &LimitsConfig,
        room: usize,
    ) -> Result<(), LimitExceeded> {
        if kind == ExchangeKind::SetMember {
            return Ok(());
        }
        let most = limits.server.requests_per_caller();
        within(self.exchanges, most, LimitExceeded::CallerExchanges)?;
        let limits = &limits.caller;
        let (count, limit) = match kind {
            ExchangeKind::Request => (self.requests, LimitExceeded::CallerRequests(limits.requests)),
            ExchangeKind::Upgrade => (self.upgrades, LimitExceeded::CallerUpgrades(limits.upgrades)),
            // The entry point has limited them already.
            ExchangeKind::EntryPoint | ExchangeKind::SetMember => return Ok(()),
            ExchangeKind::Watch => {
                let watches = self.watches.get(cluster).copied().unwrap_or_default();
                (watches, LimitExceeded::CallerWatches(limits.watches_per_cluster))
            }
        };
        if count < room { Ok(()) } else { Err(limit) }
    }

    fn add(&mut self, cluster: &ClusterId, kind: ExchangeKind) {
        if kind == ExchangeKind::SetMember {
            // The read as a whole is an exchange of its caller.
            return;
        }
        self.exchanges += 1;
        match kind {
            ExchangeKind::Request => self.requests += 1,
            ExchangeKind::Upgrade => self.upgrades += 1,
            ExchangeKind::EntryPoint | ExchangeKind::SetMember => {}
            ExchangeKind::Watch => *self.watches.entry(cluster.clone()).or_default() += 1,
        }
    }

    fn subtract(&mut self, cluster: &ClusterId, kind: ExchangeKind) {
        if kind == ExchangeKind::SetMember {
            return;
        }
        self.exchanges -= 1;
        match kind {
            ExchangeKind::Request => self.requests -= 1,
            ExchangeKind::Upgrade => self.upgrades -= 1,
            ExchangeKind::EntryPoint | ExchangeKind::SetMember => {}
            ExchangeKind::Watch => {
                if let Some(watches) = self.watches.get_mut(cluster) {
                    *watches -= 1;
                    if *watches == 0 {
                        self.watches.remove(cluster);
                    }
                }
            }
        }
    }
}

impl ClusterUsage {
    fn new(seats: Seats) -> Self {
        Self { seats, exchanges: 0, watches: 0, upgrades: 0 }
    }

    /// Short requests have no limit here, because they wait for a seat.
    fn may_begin(&self, kind: ExchangeKind, limits: &LimitsConfig) -> Result<(), LimitExceeded> {
        let limits = &limits.cluster;
        match kind {
            ExchangeKind::Request | ExchangeKind::EntryPoint | ExchangeKind::SetMember => Ok(()),
            ExchangeKind::Watch => within(self.watches, limits.watches, LimitExceeded::ClusterWatches),
            ExchangeKind::Upgrade => within(self.upgrades, limits.upgrades, LimitExceeded::ClusterUpgrades),
        }
    }

    fn add(&mut self, kind: ExchangeKind) {
        self.exchanges += 1;
        match kind {
            ExchangeKind::Request | ExchangeKind::EntryPoint | ExchangeKind::SetMember => {}
            ExchangeKind::Watch => self.watches += 1,
            ExchangeKind::Upgrade => self.upgrades += 1,
        }
    }

    fn subtract(&mut self, kind: ExchangeKind) {
        self.exchanges -= 1;
        match kind {
            ExchangeKind::Request | ExchangeKind::EntryPoint | ExchangeKind::SetMember => {}
            ExchangeKind::Watch => self.watches -= 1,
            ExchangeKind::Upgrade => self.upgrades -= 1,
        }
    }
}

fn within(count: usize, max: usize, limit: fn(usize) -> LimitExceeded) -> Result<(), LimitExceeded> {
    if count < max { Ok(()) } else { Err(limit(max)) }
}
