//! The section `limits`: how much one source, one caller and one cluster can use at once, and how much all together.

mod listeners;
mod server;

use std::time::Duration;

use daemon::Rate;
use daemon::config::{KeyError, bounded, seconds};
use serde::Deserialize;

use super::value::REQUESTS_PER_SECOND_MAX;

pub use listeners::{AgentLimits, GatewayLimits, ListenerTotals};
use listeners::{RawAgentLimits, RawGatewayLimits};
use server::RawServerLimits;
pub use server::{SERVER_TUNNELS_MAX, ServerLimits};

/// The largest limit of one source, caller or cluster that can be configured.
pub const LIMIT_MAX: usize = 10_000;

/// The longest configurable wait for a seat at a cluster, in seconds: people give up before that.
pub const QUEUE_SECONDS_MAX: u64 = 60;

/// All limits. The defaults: docs/decisions/0031-limits-and-fair-queues.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitsConfig {
    /// Of one address, or one /64, for clients that are not authenticated yet.
    pub source: SourceLimitsConfig,
    /// Of one caller, over all its connections, and over all servers that tell each other of their callers.
    pub caller: CallerLimits,
    /// Of all callers at one cluster.
    pub cluster: ClusterLimits,
    /// Of all clients together, at the listeners.
    pub listeners: ListenerTotals,
    /// Of this server, for everything together.
    pub server: ServerLimits,
}

/// The limits of one source at a listener. Connections with a client certificate do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceLimitsConfig {
    /// Connections at once; 1 to [`LIMIT_MAX`].
    pub connections: usize,
    /// New connections per second, and twice as many at once; at most [`REQUESTS_PER_SECOND_MAX`].
    pub new: Rate,
    /// Failed logins per minute; at least 1.
    pub failed_logins: u32,
}

/// The limits of one caller; each 1 to [`LIMIT_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallerLimits {
    /// Short requests at once, of all clusters: those that end by themselves.
    pub requests: usize,
    /// Requests of any kind, per second and as a burst; at most [`REQUESTS_PER_SECOND_MAX`].
    pub rate: Rate,
    /// Long-running requests to one cluster: watches, followed logs, and everything behind `proxy`.
    pub watches_per_cluster: usize,
    /// Upgraded connections, of all clusters: exec, attach and port-forward.
    pub upgrades: usize,
    /// Connections to the gateway with a certificate of this caller. The default is at most half of all.
    pub connections: usize,
}

/// The limits of all callers together at one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterLimits {
    /// Short requests at once, and long-running ones until their answer has begun; 1 to [`LIMIT_MAX`].
    pub requests: usize,
    /// Long-running requests; 1 to [`LIMIT_MAX`].
    pub watches: usize,
    /// Upgraded connections; 1 to [`LIMIT_MAX`].
    pub upgrades: usize,
    /// Requests that wait for another to end; 0 to [`LIMIT_MAX`].
    pub queue: usize,
    /// The longest wait of a queued request; 0 to [`QUEUE_SECONDS_MAX`].
    pub queue_wait: Duration,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawLimits {
    /// One address, or one IPv6 /64, before its callers are authenticated. Clients with a certificate do not count.
    source: Option<RawSourceLimits>,
    /// One caller, over all its connections, and over all servers that share their records.
    caller: Option<RawCallerLimits>,
    /// All callers together at one cluster.
    cluster: Option<RawClusterLimits>,
    /// All connections at one TCP listener.
    gateway: Option<RawGatewayLimits>,
    /// Handshakes of all agents together.
    agents: Option<RawAgentLimits>,
    /// Everything together at one server. Higher limits need more memory.
    server: Option<RawServerLimits>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawSourceLimits {
    /// Connections at once of one address.
    #[cfg_attr(test, schemars(range(min = 1, max = LIMIT_MAX), extend("default" = SourceLimitsConfig::default().connections)))]
    connections: Option<usize>,
    /// New connections of one address, and twice as many at once.
    #[cfg_attr(test, schemars(range(min = 1, max = REQUESTS_PER_SECOND_MAX), extend("default" = SourceLimitsConfig::default().new.per_second)))]
    new_per_second: Option<u32>,
    /// Failed logins of one address, after which its logins are refused for a while.
    #[cfg_attr(test, schemars(range(min = 1, max = REQUESTS_PER_SECOND_MAX), extend("default" = SourceLimitsConfig::default().failed_logins)))]
    failed_logins_per_minute: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawCallerLimits {
    /// Short requests at once, at all clusters.
    #[cfg_attr(test, schemars(range(min = 1, max = LIMIT_MAX), extend("default" = CallerLimits::default().requests)))]
    requests: Option<usize>,
    /// Requests of any kind, as a rate.
    #[cfg_attr(test, schemars(range(min = 1, max = REQUESTS_PER_SECOND_MAX), extend("default" = CallerLimits::default().rate.per_second)))]
    requests_per_second: Option<u32>,
    /// Requests beyond the rate, in one go. The default is at least a second's requests.
    #[cfg_attr(test, schemars(range(min = 1, max = REQUESTS_PER_SECOND_MAX), extend("default" = CallerLimits::default().rate.burst)))]
    burst: Option<u32>,
    /// Watches and followed logs of one cluster.
    #[cfg_attr(test, schemars(range(min = 1, max = LIMIT_MAX), extend("default" = CallerLimits::default().watches_per_cluster)))]
    watches_per_cluster: Option<usize>,
    /// Shells, forwarded ports and connections to targets.
    #[cfg_attr(test, schemars(range(min = 1, max = LIMIT_MAX), extend("default" = CallerLimits::default().upgrades)))]
    upgrades: Option<usize>,
    /// Connections with a certificate. The default is at most half of `limits.gateway.connections`.
    #[cfg_attr(test, schemars(range(min = 1, max = LIMIT_MAX), extend("default" = CallerLimits::default().connections)))]
    connections: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawClusterLimits {
    /// Short requests at once at one cluster.
    #[cfg_attr(test, schemars(range(min = 1, max = LIMIT_MAX), extend("default" = ClusterLimits::default().requests)))]
    requests: Option<usize>,
    /// Watches and followed logs of one cluster.
    #[cfg_attr(test, schemars(range(min = 1, max = LIMIT_MAX), extend("default" = ClusterLimits::default().watches)))]
    watches: Option<usize>,
    /// Shells, forwarded ports and connections to targets of one cluster.
    #[cfg_attr(test, schemars(range(min = 1, max = LIMIT_MAX), extend("default" = ClusterLimits::default().upgrades)))]
    upgrades: Option<usize>,
    /// Requests that wait for one of these to end.
    #[cfg_attr(test, schemars(range(min = 0, max = LIMIT_MAX), extend("default" = ClusterLimits::default().queue)))]
    queue: Option<usize>,
    /// Time for which such a request waits.
    #[cfg_attr(test, schemars(range(min = 0, max = QUEUE_SECONDS_MAX), extend("default" = ClusterLimits::default().queue_wait.as_secs())))]
    queue_seconds: Option<u64>,
}

impl Default for SourceLimitsConfig {
    fn default() -> Self {
        Self { connections: 200, new: Rate { per_second: 50, burst: 100 }, failed_logins: 20 }
    }
}

impl Default for CallerLimits {
    fn default() -> Self {
        let rate = Rate { per_second: 200, burst: 400 };
        Self { requests: 100, rate, watches_per_cluster: 250, upgrades: 20, connections: 1_000 }
    }
}

impl Default for ClusterLimits {
    fn default() -> Self {
        let queue_wait = Duration::from_secs(1);
        Self { requests: 400, watches: 1_000, upgrades: 200, queue: 100, queue_wait }
    }
}

pub(super) fn limits(raw: RawLimits) -> Result<LimitsConfig, KeyError> {
    let RawLimits { source, caller, cluster, gateway, agents, server } = raw;
    let listeners = listeners::listeners(gateway.unwrap_or_default(), agents.unwrap_or_default())?;
    Ok(LimitsConfig {
        listeners,
        source: self::source(source.unwrap_or_default())?,
        caller: self::caller(caller.unwrap_or_default(), listeners.gateway)?,
        cluster: self::cluster(cluster.unwrap_or_default())?,
        server: server::server(server.unwrap_or_default())?,
    })
}

fn source(raw: RawSourceLimits) -> Result<SourceLimitsConfig, KeyError> {
    let RawSourceLimits { connections, new_per_second, failed_logins_per_minute } = raw;
    let default = SourceLimitsConfig::default();
    let rates = 1..=REQUESTS_PER_SECOND_MAX;
    let per_second = new_per_second.unwrap_or(default.new.per_second);
    let per_second = bounded("limits.source.newPerSecond", per_second, rates.clone())?;
    let failed_logins = failed_logins_per_minute.unwrap_or(default.failed_logins);
    Ok(SourceLimitsConfig {
        connections: count("limits.source.connections", connections, default.connections)?,
        new: Rate { per_second, burst: 2 * per_second },
        failed_logins: bounded("limits.source.failedLoginsPerMinute", failed_logins, rates)?,
    })
}

fn caller(raw: RawCallerLimits, gateway: GatewayLimits) -> Result<CallerLimits, KeyError> {
    let RawCallerLimits { requests, requests_per_second, burst, watches_per_cluster, upgrades, connections } =
        raw;
    let default = CallerLimits::default();
    let per_second = requests_per_second.unwrap_or(default.rate.per_second);
    // The default burst is at least one second's requests.
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
        connections: count(
            "limits.caller.connections",
            connections,
            default.connections.min(gateway.connections.div_ceil(2)),
        )?,
    })
}

fn cluster(raw: RawClusterLimits) -> Result<ClusterLimits, KeyError> {
    let RawClusterLimits { requests, watches, upgrades, queue, queue_seconds } = raw;
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

fn count(key: &str, raw: Option<usize>, default: usize) -> Result<usize, KeyError> {
    bounded(key, raw.unwrap_or(default), 1..=LIMIT_MAX)
}
