//! How much one source, one caller and one cluster may take at once, as it was written and as it is valid.

mod doors;

use std::time::Duration;

use daemon::Rate;
use daemon::config::{KeyError, bounded, seconds};
use serde::Deserialize;

pub use doors::{AgentLimits, DoorLimits, GatewayLimits};

/// The most of anything that may be configured: as many exchanges as are served at all.
pub const LIMIT_MAX: usize = 10_000;

/// The fastest that one caller may be allowed to ask.
pub const REQUESTS_PER_SECOND_MAX: u32 = 100_000;

/// The longest that a request may be made to wait for a seat at its cluster: beyond it people have given up.
pub const QUEUE_SECONDS_MAX: u64 = 60;

/// How much may be taken at once. The defaults: docs/decisions/0031-limits-and-fair-queues.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// By one address, or one /64, before it is known who asks.
    pub source: SourceLimits,
    /// By one caller, over all its connections.
    pub caller: CallerLimits,
    /// Of one cluster.
    pub cluster: ClusterLimits,
    /// By everybody together, at the doors.
    pub doors: DoorLimits,
}

/// What one source may take of a door. Who shows a certificate takes nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceLimits {
    /// Connections; 1 to [`LIMIT_MAX`].
    pub connections: usize,
    /// New ones, in a second and twice as many at once; at most [`REQUESTS_PER_SECOND_MAX`].
    pub new: Rate,
    /// Failed logins in a minute; at least 1.
    pub failed_logins: u32,
}

/// What one caller may take; each 1 to [`LIMIT_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallerLimits {
    /// Requests at once that end by themselves, of all clusters.
    pub requests: usize,
    /// Requests of any kind, in a second and at once; at most [`REQUESTS_PER_SECOND_MAX`].
    pub rate: Rate,
    /// What runs as long as it likes, of one cluster: watches, logs that are followed, what is behind `proxy`.
    pub watches_per_cluster: usize,
    /// Upgraded connections, of all clusters: exec, attach and port-forward.
    pub upgrades: usize,
}

/// What of one cluster may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterLimits {
    /// Requests at once that end by themselves, and what runs long until it has begun; 1 to [`LIMIT_MAX`].
    pub requests: usize,
    /// What runs as long as it likes; 1 to [`LIMIT_MAX`].
    pub watches: usize,
    /// Upgraded connections; 1 to [`LIMIT_MAX`].
    pub upgrades: usize,
    /// Requests that wait for another to end; 0 to [`LIMIT_MAX`].
    pub queue: usize,
    /// For how long they do; 0 to [`QUEUE_SECONDS_MAX`].
    pub queue_wait: Duration,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Written {
    source: Option<WrittenSource>,
    caller: Option<WrittenCaller>,
    cluster: Option<WrittenCluster>,
    gateway: Option<doors::WrittenGateway>,
    agents: Option<doors::WrittenAgents>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenSource {
    connections: Option<usize>,
    new_per_second: Option<u32>,
    failed_logins_per_minute: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenCaller {
    requests: Option<usize>,
    requests_per_second: Option<u32>,
    burst: Option<u32>,
    watches_per_cluster: Option<usize>,
    upgrades: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenCluster {
    requests: Option<usize>,
    watches: Option<usize>,
    upgrades: Option<usize>,
    queue: Option<usize>,
    queue_seconds: Option<u64>,
}

impl Default for SourceLimits {
    fn default() -> Self {
        Self { connections: 200, new: Rate { per_second: 50, burst: 100 }, failed_logins: 20 }
    }
}

impl Default for CallerLimits {
    fn default() -> Self {
        let rate = Rate { per_second: 200, burst: 400 };
        Self { requests: 100, rate, watches_per_cluster: 250, upgrades: 20 }
    }
}

impl Default for ClusterLimits {
    fn default() -> Self {
        let queue_wait = Duration::from_secs(1);
        Self { requests: 400, watches: 1_000, upgrades: 200, queue: 100, queue_wait }
    }
}

pub(super) fn valid(written: Written) -> Result<Limits, KeyError> {
    let Written { source, caller, cluster, gateway, agents } = written;
    Ok(Limits {
        doors: doors::valid(gateway.unwrap_or_default(), agents.unwrap_or_default())?,
        source: self::source(source.unwrap_or_default())?,
        caller: self::caller(caller.unwrap_or_default())?,
        cluster: self::cluster(cluster.unwrap_or_default())?,
    })
}

fn source(written: WrittenSource) -> Result<SourceLimits, KeyError> {
    let WrittenSource { connections, new_per_second, failed_logins_per_minute } = written;
    let default = SourceLimits::default();
    let rates = 1..=REQUESTS_PER_SECOND_MAX;
    let per_second = new_per_second.unwrap_or(default.new.per_second);
    let per_second = bounded("limits.source.newPerSecond", per_second, rates.clone())?;
    let failed_logins = failed_logins_per_minute.unwrap_or(default.failed_logins);
    Ok(SourceLimits {
        connections: count("limits.source.connections", connections, default.connections)?,
        new: Rate { per_second, burst: 2 * per_second },
        failed_logins: bounded("limits.source.failedLoginsPerMinute", failed_logins, rates)?,
    })
}

fn caller(written: WrittenCaller) -> Result<CallerLimits, KeyError> {
    let WrittenCaller { requests, requests_per_second, burst, watches_per_cluster, upgrades } = written;
    let default = CallerLimits::default();
    let per_second = requests_per_second.unwrap_or(default.rate.per_second);
    // A burst that was not named is never less than a second's.
    let burst = burst.unwrap_or_else(|| default.rate.burst.max(per_second));
    let rates = 1..=REQUESTS_PER_SECOND_MAX;
    Ok(CallerLimits {
        requests: count("limits.caller.requests", requests, default.requests)?,
        rate: Rate {
            per_second: bounded("limits.caller.requestsPerSecond", per_second, rates.clone())?,
            burst: bounded("limits.caller.burst", burst, rates)?,
        },
        watches_per_cluster: count(
            "limits.caller.watchesPerCluster",
            watches_per_cluster,
            default.watches_per_cluster,
        )?,
        upgrades: count("limits.caller.upgrades", upgrades, default.upgrades)?,
    })
}

fn cluster(written: WrittenCluster) -> Result<ClusterLimits, KeyError> {
    let WrittenCluster { requests, watches, upgrades, queue, queue_seconds } = written;
    let default = ClusterLimits::default();
    let queue_seconds = queue_seconds.unwrap_or(default.queue_wait.as_secs());
    Ok(ClusterLimits {
        requests: count("limits.cluster.requests", requests, default.requests)?,
        watches: count("limits.cluster.watches", watches, default.watches)?,
        upgrades: count("limits.cluster.upgrades", upgrades, default.upgrades)?,
        queue: bounded("limits.cluster.queue", queue.unwrap_or(default.queue), 0..=LIMIT_MAX)?,
        queue_wait: seconds("limits.cluster.queueSeconds", queue_seconds, 0..=QUEUE_SECONDS_MAX)?,
    })
}

fn count(key: &str, written: Option<usize>, default: usize) -> Result<usize, KeyError> {
    bounded(key, written.unwrap_or(default), 1..=LIMIT_MAX)
}
