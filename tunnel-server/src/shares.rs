//! How much of the server and of its clusters each caller has, whatever door it came by, and who waits for whom.
//!
//! What may not begin is told so before a byte of it has left: a caller's own limits and a cluster's count what runs; and
//! requests of one cluster share its seats, fairly among callers, where what runs long needs one only until it has begun.

mod ledger;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use daemon::{NoSeat, Seat, SeatLimits, Seats};
use policy::action::Action;
use proto::ClusterId;
use proto::upgrade::Protocol;

use crate::config::LimitsConfig;
use crate::identity::{Caller, Method};
use crate::metrics;
use ledger::Ledger;

/// Requests that the callers' door serves at once, to the last byte of their answers; beyond, callers are asked to come again.
pub const EXCHANGES_MAX: usize = 10_000;

/// Exchanges of any kind that one caller may have at once, over all its connections and clusters: a quarter of all, so that it
/// takes four to fill the gateway.
pub const EXCHANGES_PER_CALLER_MAX: usize = EXCHANGES_MAX / 4;

/// Of the requests that wait for a cluster's seats, most in one of its queues: half of all that wait unless said otherwise.
const QUEUED_PER_QUEUE_MAX: usize = 50;

/// Who has how much. Clones are the same.
#[derive(Clone)]
pub(crate) struct Shares(Arc<Inner>);

struct Inner {
    limits: LimitsConfig,
    ledger: Mutex<Ledger>,
}

/// What one exchange takes, until it is dropped.
#[must_use = "the exchange is no longer counted when this is dropped"]
pub(crate) struct Share {
    // Before its count: while it has a seat its cluster is known.
    seat: Option<Seat>,
    counted: Counted,
}

/// One exchange in the ledger, until it is dropped.
struct Counted {
    shares: Shares,
    holder: Holder,
    cluster: ClusterId,
    kind: Kind,
}

/// A name is a caller's only together with the way in which it was proved; where nothing was, with where it came from.
type Holder = (Method, String, Option<IpAddr>);

/// How an exchange lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It ends by itself.
    Request,
    /// As long as its caller likes: a watch, a log, what is behind `proxy`.
    Watch,
    /// The same, as another protocol.
    Upgrade,
    /// A connection by a way in that has a number of them of its own.
    WayIn,
}

/// The limit that keeps something from beginning. Not one byte of it has reached a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// Logins that fail, of one source.
    #[error(
        "more than {0} logins have failed from your address within a minute, so that only client certificates and tokens that \
         were good before are looked at: try again in a minute"
    )]
    SourceFailures(u32),
    /// All that one caller has.
    #[error(
        "you have {0} requests running here, which is the most for one caller: end some, or try again in a second"
    )]
    CallerExchanges(usize),
    /// What ends by itself.
    #[error(
        "you have {0} requests under way here, which is the most for one caller: ask fewer at once, or try again in a second"
    )]
    CallerRequests(usize),
    /// How fast.
    #[error("you ask more than {0} times a second, which is the most for one caller: try again in a second")]
    CallerRate(u32),
    /// What runs long.
    #[error(
        "you have {0} watches and logs of this cluster open, which is the most for one caller: end some, or ask whoever \
         runs this server for more"
    )]
    CallerWatches(usize),
    /// Upgraded connections.
    #[error(
        "you have {0} shells and forwarded ports open here, which is the most for one caller: end some, or ask whoever runs \
         this server for more"
    )]
    CallerUpgrades(usize),
    /// What runs long, of all callers.
    #[error("this cluster has {0} watches and logs open, which is the most: try again in a second")]
    ClusterWatches(usize),
    /// Connections of one way in.
    #[error(
        "this way in has {0} connections, which is the most: whoever runs this server gives it more by `connections` of its \
         entry under egress"
    )]
    EgressConnections(usize),
    /// Connections by which TLS passes through.
    #[error(
        "TLS passes through {0} connections, which is the most: `connections` under passthrough gives it more"
    )]
    PassthroughConnections(usize),
    /// The same of one source.
    #[error(
        "its address has {0} connections, which is the most: `connectionsPerSource` under passthrough gives it more"
    )]
    PassthroughSource(usize),
    /// Connections of one way in by clusters' addresses.
    #[error(
        "this way in has {0} connections, which is the most: `connections` of its entry under vip.ways gives it more"
    )]
    VipConnections(usize),
    /// The same of one source.
    #[error(
        "its address has {0} connections, which is the most: `connectionsPerSource` of its way under vip.ways gives it more"
    )]
    VipSource(usize),
    /// Upgraded connections, of all callers.
    #[error("this cluster has {0} shells and forwarded ports open, which is the most: try again in a second")]
    ClusterUpgrades(usize),
    /// A place to wait in.
    #[error(
        "this cluster is busy, and too many requests wait for it, yours among them: try again in a second"
    )]
    ClusterQueue,
    /// What it serves at once.
    #[error(
        "this cluster serves {0} requests at once, of one caller two thirds at most, and no place became free for you in time: \
         try again in a second"
    )]
    ClusterRequests(usize),
}

/// How much of a limit is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// Which.
    pub limit: &'static str,
    /// The limit.
    pub max: usize,
    /// What the one who has most has of it.
    pub most: usize,
}

impl Shares {
    /// Within `limits`, which hold for each caller and each cluster.
    pub(crate) fn new(limits: LimitsConfig) -> Self {
        Self(Arc::new(Inner { limits, ledger: Mutex::default() }))
    }

    /// Counts one more question of `caller`, whatever it asks.
    ///
    /// # Errors
    /// It asks too fast.
    pub(crate) fn ask(&self, caller: &Caller) -> Result<(), Limit> {
        let rate = self.0.limits.caller.rate;
        let may = self.lock().ask(&holder(caller), rate, Instant::now());
        if may { Ok(()) } else { Err(counted(Limit::CallerRate(rate.per_second))) }
    }

    /// One more exchange of `caller` with `cluster`, which has no seat yet.
    ///
    /// # Errors
    /// One of them has as many as it may.
    pub(crate) fn take(&self, caller: &Caller, cluster: &ClusterId, kind: Kind) -> Result<Share, Limit> {
        let holder = holder(caller);
        let entered = self.lock().enter(&holder, cluster, kind, &self.0.limits, Instant::now());
        entered.map_err(counted)?;
        let counted = Counted { shares: self.clone(), holder, cluster: cluster.clone(), kind };
        Ok(Share { seat: None, counted })
    }

    /// The limits.
    pub(crate) fn limits(&self) -> &LimitsConfig {
        &self.0.limits
    }

    /// The same limit, which is counted as passed.
    pub(crate) fn refused(&self, limit: Limit) -> Limit {
        counted(limit)
    }

    /// How much of each limit is used.
    pub(crate) fn uses(&self) -> Vec<Use> {
        let LimitsConfig { caller, cluster, .. } = self.0.limits;
        let most = self.lock().most();
        let used = |limit: Limit, max, most| Use { limit: limit.as_str(), max, most };
        vec![
            used(Limit::CallerExchanges(0), EXCHANGES_PER_CALLER_MAX, most.caller_exchanges),
            used(Limit::CallerRequests(0), caller.requests, most.caller_requests),
            used(Limit::CallerWatches(0), caller.watches_per_cluster, most.caller_watches),
            used(Limit::CallerUpgrades(0), caller.upgrades, most.caller_upgrades),
            used(Limit::ClusterWatches(0), cluster.watches, most.cluster_watches),
            used(Limit::ClusterUpgrades(0), cluster.upgrades, most.cluster_upgrades),
            used(Limit::ClusterQueue, cluster.queue, most.cluster_queue),
            used(Limit::ClusterRequests(0), cluster.requests, most.cluster_requests),
        ]
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// The same with a seat among those of its cluster, now or after a wait. Cancel-safe: dropped, it waits no more.
    ///
    /// # Errors
    /// There is none in time, or no room to wait.
    pub(crate) async fn seated(mut self) -> Result<Self, Limit> {
        let Counted { shares, holder, cluster, .. } = &self.counted;
        let limits = shares.0.limits.cluster;
        // It is there as long as this is counted.
        let seats = shares.lock().seats(cluster);
        if let Some(seats) = seats {
            let seat = seats.take(holder, limits.queue_wait).await;
            self.seat = Some(seat.map_err(|none| {
                counted(match none {
                    NoSeat::Crowded => Limit::ClusterQueue,
                    NoSeat::TooLong => Limit::ClusterRequests(limits.requests),
                })
            })?);
        }
        Ok(self)
    }

    /// Its answer has begun: what runs long needs its seat no more.
    pub(crate) fn begun(&mut self) {
        match self.counted.kind {
            Kind::Request => {}
            Kind::Watch | Kind::Upgrade | Kind::WayIn => self.seat = None,
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.shares.lock().leave(&self.holder, &self.cluster, self.kind);
    }
}

impl Kind {
    /// Of what is asked, maybe as another protocol.
    pub(crate) fn of(action: &Action, upgrade: Option<Protocol>) -> Self {
        match (upgrade, action.is_long_running()) {
            (Some(_), _) => Self::Upgrade,
            (None, true) => Self::Watch,
            (None, false) => Self::Request,
        }
    }
}

impl Limit {
    /// A word for programs.
    #[must_use]
    pub fn cause(self) -> &'static str {
        match self {
            Self::SourceFailures(_) => "TooManyFailedLogins",
            Self::CallerExchanges(_)
            | Self::CallerRequests(_)
            | Self::CallerWatches(_)
            | Self::CallerUpgrades(_)
            | Self::EgressConnections(_)
            | Self::PassthroughConnections(_)
            | Self::PassthroughSource(_)
            | Self::VipConnections(_)
            | Self::VipSource(_) => "CallerBusy",
            Self::CallerRate(_) => "CallerTooFast",
            Self::ClusterWatches(_)
            | Self::ClusterUpgrades(_)
            | Self::ClusterQueue
            | Self::ClusterRequests(_) => "ClusterFull",
        }
    }

    /// A word for metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SourceFailures(_) => "source_failures",
            Self::CallerExchanges(_) => "caller_exchanges",
            Self::CallerRequests(_) => "caller_requests",
            Self::CallerRate(_) => "caller_rate",
            Self::CallerWatches(_) => "caller_watches",
            Self::CallerUpgrades(_) => "caller_upgrades",
            Self::EgressConnections(_) => "egress_connections",
            Self::PassthroughConnections(_) => "passthrough_connections",
            Self::PassthroughSource(_) => "passthrough_source",
            Self::VipConnections(_) => "vip_connections",
            Self::VipSource(_) => "vip_source",
            Self::ClusterWatches(_) => "cluster_watches",
            Self::ClusterUpgrades(_) => "cluster_upgrades",
            Self::ClusterQueue => "cluster_queue",
            Self::ClusterRequests(_) => "cluster_requests",
        }
    }
}

/// The seats of a cluster.
fn seats(limits: &LimitsConfig) -> Seats {
    let (seats, waiting) = (limits.cluster.requests, limits.cluster.queue);
    Seats::new(SeatLimits { seats, per_queue: QUEUED_PER_QUEUE_MAX, waiting })
}

fn holder(caller: &Caller) -> Holder {
    (caller.method().clone(), caller.user().to_owned(), caller.source_address())
}

/// The same limit, which is counted as passed.
pub(crate) fn counted(limit: Limit) -> Limit {
    metrics::limited(limit.as_str());
    limit
}

#[cfg(test)]
mod tests;
