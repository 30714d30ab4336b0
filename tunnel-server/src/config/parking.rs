//! The section `parking`: how long requests wait for a cluster that is away.

use std::time::Duration;

use daemon::config::{KeyError, bounded, seconds};
use serde::Deserialize;

/// Longest configurable wait for a cluster that is away, in seconds: people give up before that.
pub const PARK_LIMIT_SECONDS_MAX: u64 = 300;

/// Most requests that wait for absent clusters, over all clusters. Further ones are refused at once.
pub const PARKED_MAX: usize = 2_000;

/// Default wait in seconds: most outages of a link are shorter, and a person still waits.
const PARK_LIMIT_DEFAULT_SECONDS: u64 = 15;

/// Default number of waiting requests of one cluster: what the programs of a busy site ask within the limit.
const PARKED_PER_CLUSTER_DEFAULT: usize = 256;

/// The waiting of requests for a cluster that is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parking {
    /// The usual wait; 0 to [`PARK_LIMIT_SECONDS_MAX`]. With zero, requests are refused at once.
    pub limit: Duration,
    /// The longest wait that a caller can ask for; `limit` to [`PARK_LIMIT_SECONDS_MAX`].
    pub caller_limit: Duration,
    /// Most requests that wait for one cluster; 1 to [`PARKED_MAX`].
    pub per_cluster: usize,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawParking {
    /// Time that a request waits for its cluster. 0 refuses at once.
    #[cfg_attr(test, schemars(range(min = 0, max = PARK_LIMIT_SECONDS_MAX), extend("default" = PARK_LIMIT_DEFAULT_SECONDS)))]
    limit_seconds: Option<u64>,
    /// Longest wait for which a caller may ask by the header Tombolo-Park-Limit. The default is `limitSeconds`, and it is
    /// never shorter.
    #[cfg_attr(test, schemars(range(min = 0, max = PARK_LIMIT_SECONDS_MAX), extend("default" = PARK_LIMIT_DEFAULT_SECONDS)))]
    caller_limit_seconds: Option<u64>,
    /// Requests that wait for one cluster.
    #[cfg_attr(test, schemars(range(min = 1, max = PARKED_MAX), extend("default" = PARKED_PER_CLUSTER_DEFAULT)))]
    per_cluster: Option<usize>,
}

pub(super) fn parking(raw: RawParking) -> Result<Parking, KeyError> {
    let RawParking { limit_seconds, caller_limit_seconds, per_cluster } = raw;
    let limit_seconds = limit_seconds.unwrap_or(PARK_LIMIT_DEFAULT_SECONDS);
    // Without a configured limit of its own no caller waits longer than all others.
    let caller_limit_seconds = caller_limit_seconds.unwrap_or(limit_seconds);
    let caller_limits = limit_seconds..=PARK_LIMIT_SECONDS_MAX;
    let per_cluster = per_cluster.unwrap_or(PARKED_PER_CLUSTER_DEFAULT);
    Ok(Parking {
        limit: seconds("parking.limitSeconds", limit_seconds, 0..=PARK_LIMIT_SECONDS_MAX)?,
        caller_limit: seconds("parking.callerLimitSeconds", caller_limit_seconds, caller_limits)?,
        per_cluster: bounded("parking.perCluster", per_cluster, 1..=PARKED_MAX)?,
    })
}
