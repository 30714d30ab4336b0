//! The section `watches`: whether and how watches outlive the loss of their tunnel.

use std::time::Duration;

use daemon::config::{KeyError, bounded, seconds};
use serde::Deserialize;

/// Longest configurable wait of a watch for its cluster, in seconds: most API servers forget the resource version earlier.
pub const WATCH_LIMIT_SECONDS_MAX: u64 = 3_600;

/// Most watches that wait for absent clusters, over all clusters. It is half of all exchanges that are served at once, so
/// that a long outage of many sites leaves room for requests to all others.
pub const WATCHES_PARKED_MAX: usize = 5_000;

/// Lower bound of the largest event in bytes. Objects have at most 1.5 MiB in etcd, and more in JSON.
pub const WATCH_EVENT_BYTES_MIN: usize = 4 * 1024;
/// Upper bound of the largest event, in bytes.
pub const WATCH_EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Default wait in seconds: longer than an agent, a node or a modem needs to restart.
const WATCH_LIMIT_DEFAULT_SECONDS: u64 = 600;

/// Default number of waiting watches of one cluster: those of a few programs that watch every kind of object.
const WATCHES_PER_CLUSTER_DEFAULT: usize = 1_000;

/// Default size of the largest event that is buffered: etcd's largest object, with room for what JSON adds.
const WATCH_EVENT_DEFAULT_BYTES: usize = 2 * 1024 * 1024;

/// The resumption of watches after the loss of their tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchesConfig {
    /// True if watches are resumed at all.
    pub resume: bool,
    /// The longest wait of a watch for its cluster; 0 to [`WATCH_LIMIT_SECONDS_MAX`].
    pub limit: Duration,
    /// Most watches that wait for one cluster; 1 to [`WATCHES_PARKED_MAX`].
    pub per_cluster: usize,
    /// Largest event that is buffered until it is complete; [`WATCH_EVENT_BYTES_MIN`] to [`WATCH_EVENT_BYTES_MAX`]. A watch
    /// with a larger event ends with its tunnel.
    pub event_bytes_max: usize,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawWatches {
    /// With false, a watch ends together with its tunnel.
    #[cfg_attr(test, schemars(extend("default" = true)))]
    resume: Option<bool>,
    /// Time that a watch waits for its cluster.
    #[cfg_attr(test, schemars(range(min = 0, max = WATCH_LIMIT_SECONDS_MAX), extend("default" = WATCH_LIMIT_DEFAULT_SECONDS)))]
    limit_seconds: Option<u64>,
    /// Watches that wait for one cluster.
    #[cfg_attr(test, schemars(range(min = 1, max = WATCHES_PARKED_MAX), extend("default" = WATCHES_PER_CLUSTER_DEFAULT)))]
    per_cluster: Option<usize>,
    /// Largest event that is kept until it is complete. A watch with a larger one ends with its tunnel.
    #[cfg_attr(test, schemars(range(min = WATCH_EVENT_BYTES_MIN, max = WATCH_EVENT_BYTES_MAX), extend("default" = WATCH_EVENT_DEFAULT_BYTES)))]
    event_bytes_max: Option<usize>,
}

pub(super) fn watches(raw: RawWatches) -> Result<WatchesConfig, KeyError> {
    let RawWatches { resume, limit_seconds, per_cluster, event_bytes_max } = raw;
    let limit_seconds = limit_seconds.unwrap_or(WATCH_LIMIT_DEFAULT_SECONDS);
    let per_cluster = per_cluster.unwrap_or(WATCHES_PER_CLUSTER_DEFAULT);
    let event_bytes_max = event_bytes_max.unwrap_or(WATCH_EVENT_DEFAULT_BYTES);
    let event_bytes = WATCH_EVENT_BYTES_MIN..=WATCH_EVENT_BYTES_MAX;
    Ok(WatchesConfig {
        resume: resume.unwrap_or(true),
        limit: seconds("watches.limitSeconds", limit_seconds, 0..=WATCH_LIMIT_SECONDS_MAX)?,
        per_cluster: bounded("watches.perCluster", per_cluster, 1..=WATCHES_PARKED_MAX)?,
        event_bytes_max: bounded("watches.eventBytesMax", event_bytes_max, event_bytes)?,
    })
}
