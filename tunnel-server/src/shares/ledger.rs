//! Who has how many exchanges, and of what cluster. Whoever has none, and asked nothing of late, is not in it.

use std::collections::HashMap;
use std::time::Instant;

use daemon::{Bucket, Rate, Seats};
use proto::ClusterId;

use super::{EXCHANGES_PER_CALLER_MAX, Holder, Kind, Limit, seats};
use crate::config::{LIMIT_MAX, LimitsConfig};

/// Callers of whom it is remembered how fast they ask; beyond, those who have nothing running are forgotten, and may ask as if
/// they had not.
pub(super) const CALLERS_MAX: usize = 2 * LIMIT_MAX;

/// Below so many nobody is looked for who may be forgotten.
const SWEPT_FROM: usize = 1_024;

#[derive(Default)]
pub(super) struct Ledger {
    callers: HashMap<Holder, OfCaller>,
    clusters: HashMap<ClusterId, OfCluster>,
    /// How many callers there were when it was last looked for who may be forgotten, twice.
    swept_from: usize,
}

struct OfCaller {
    bucket: Bucket,
    exchanges: usize,
    requests: usize,
    upgrades: usize,
    /// By cluster; none that is zero.
    watches: HashMap<ClusterId, usize>,
}

struct OfCluster {
    seats: Seats,
    exchanges: usize,
    watches: usize,
    upgrades: usize,
}

/// What those have who have most.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Most {
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
    /// Whether `holder` may ask once more, which is then counted.
    pub(super) fn ask(&mut self, holder: &Holder, rate: Rate, now: Instant) -> bool {
        self.caller(holder, now).bucket.take(rate, now)
    }

    /// One more exchange, if neither has as many as it may.
    pub(super) fn enter(
        &mut self,
        holder: &Holder,
        cluster: &ClusterId,
        kind: Kind,
        limits: &LimitsConfig,
        now: Instant,
    ) -> Result<(), Limit> {
        self.caller(holder, now).may_begin(cluster, kind, limits)?;
        let of_cluster =
            self.clusters.entry(cluster.clone()).or_insert_with(|| OfCluster::new(seats(limits)));
        let may_begin = of_cluster.may_begin(kind, limits);
        if may_begin.is_ok() {
            of_cluster.add(kind);
            if let Some(caller) = self.callers.get_mut(holder) {
                caller.add(cluster, kind);
            }
        }
        may_begin
    }

    /// One less.
    pub(super) fn leave(&mut self, holder: &Holder, cluster: &ClusterId, kind: Kind) {
        if let Some(caller) = self.callers.get_mut(holder) {
            caller.take_off(cluster, kind);
        }
        if let Some(of_cluster) = self.clusters.get_mut(cluster) {
            of_cluster.take_off(kind);
            if of_cluster.exchanges == 0 {
                self.clusters.remove(cluster);
            }
        }
    }

    /// The seats of a cluster that somebody has an exchange with.
    pub(super) fn seats(&self, cluster: &ClusterId) -> Option<Seats> {
        self.clusters.get(cluster).map(|of_cluster| of_cluster.seats.clone())
    }

    pub(super) fn most(&self) -> Most {
        let mut most = Most::default();
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

    /// How many callers and clusters are in it.
    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize) {
        (self.callers.len(), self.clusters.len())
    }

    fn caller(&mut self, holder: &Holder, now: Instant) -> &mut OfCaller {
        if self.callers.len() >= self.swept_from.clamp(SWEPT_FROM, CALLERS_MAX)
            && !self.callers.contains_key(holder)
        {
            self.callers.retain(|_, caller| caller.exchanges > 0 || !caller.bucket.is_full(now));
            if self.callers.len() >= CALLERS_MAX {
                self.callers.retain(|_, caller| caller.exchanges > 0);
            }
            self.swept_from = 2 * self.callers.len();
        }
        self.callers.entry(holder.clone()).or_insert_with(|| OfCaller::new(now))
    }
}

impl OfCaller {
    fn new(now: Instant) -> Self {
        let bucket = Bucket::full(now);
        Self { bucket, exchanges: 0, requests: 0, upgrades: 0, watches: HashMap::new() }
    }

    fn may_begin(&self, cluster: &ClusterId, kind: Kind, limits: &LimitsConfig) -> Result<(), Limit> {
        let limits = &limits.caller;
        within(self.exchanges, EXCHANGES_PER_CALLER_MAX, Limit::CallerExchanges)?;
        match kind {
            Kind::Request => within(self.requests, limits.requests, Limit::CallerRequests),
            Kind::Upgrade => within(self.upgrades, limits.upgrades, Limit::CallerUpgrades),
            // Those that its way in has let in.
            Kind::WayIn => Ok(()),
            Kind::Watch => {
                let watches = self.watches.get(cluster).copied().unwrap_or_default();
                within(watches, limits.watches_per_cluster, Limit::CallerWatches)
            }
        }
    }

    fn add(&mut self, cluster: &ClusterId, kind: Kind) {
        self.exchanges += 1;
        match kind {
            Kind::Request => self.requests += 1,
            Kind::Upgrade => self.upgrades += 1,
            Kind::WayIn => {}
            Kind::Watch => *self.watches.entry(cluster.clone()).or_default() += 1,
        }
    }

    fn take_off(&mut self, cluster: &ClusterId, kind: Kind) {
        self.exchanges -= 1;
        match kind {
            Kind::Request => self.requests -= 1,
            Kind::Upgrade => self.upgrades -= 1,
            Kind::WayIn => {}
            Kind::Watch => {
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

impl OfCluster {
    fn new(seats: Seats) -> Self {
        Self { seats, exchanges: 0, watches: 0, upgrades: 0 }
    }

    /// Requests wait for a seat: for those there is no limit here.
    fn may_begin(&self, kind: Kind, limits: &LimitsConfig) -> Result<(), Limit> {
        let limits = &limits.cluster;
        match kind {
            Kind::Request | Kind::WayIn => Ok(()),
            Kind::Watch => within(self.watches, limits.watches, Limit::ClusterWatches),
            Kind::Upgrade => within(self.upgrades, limits.upgrades, Limit::ClusterUpgrades),
        }
    }

    fn add(&mut self, kind: Kind) {
        self.exchanges += 1;
        match kind {
            Kind::Request | Kind::WayIn => {}
            Kind::Watch => self.watches += 1,
            Kind::Upgrade => self.upgrades += 1,
        }
    }

    fn take_off(&mut self, kind: Kind) {
        self.exchanges -= 1;
        match kind {
            Kind::Request | Kind::WayIn => {}
            Kind::Watch => self.watches -= 1,
            Kind::Upgrade => self.upgrades -= 1,
        }
    }
}

fn within(count: usize, max: usize, limit: fn(usize) -> Limit) -> Result<(), Limit> {
    if count < max { Ok(()) } else { Err(limit(max)) }
}
