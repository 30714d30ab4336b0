//! The configured limits of requests at the API server: raw form, validation and defaults.

use std::time::Duration;

use daemon::config::{KeyError, bounded, seconds};
use serde::Deserialize;

/// Largest number of requests that may be configured.
pub const REQUESTS_MAX: usize = 10_000;
/// Largest number of waiting requests that may be configured. Each one is an open stream.
pub const QUEUE_MAX: usize = 4_096;
/// Longest wait that may be configured. It is shorter than a gateway's wait for an agent, so that the gateway
/// gets the reason.
pub const QUEUE_SECONDS_MAX: u64 = 60;

/// Limits of requests at the API server. The defaults are from docs/decisions/0031-limits-and-fair-queues.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most requests at a time, 1 to [`REQUESTS_MAX`]. A long-running one counts until it has begun.
    pub requests: usize,
    /// Most requests that wait for one of these to end, 0 to [`QUEUE_MAX`].
    pub queue: usize,
    /// Longest wait of these, 0 to [`QUEUE_SECONDS_MAX`] seconds.
    pub queue_wait: Duration,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawLimits {
    /// Requests at the API server at once. A long-running one counts until it has begun.
    #[cfg_attr(test, schemars(range(min = 1, max = REQUESTS_MAX), extend("default" = Limits::default().requests)))]
    requests: Option<usize>,
    /// Requests that wait for one of these to end.
    #[cfg_attr(test, schemars(range(min = 0, max = QUEUE_MAX), extend("default" = Limits::default().queue)))]
    queue: Option<usize>,
    /// Time for which such a request waits.
    #[cfg_attr(test, schemars(range(min = 0, max = QUEUE_SECONDS_MAX), extend("default" = Limits::default().queue_wait.as_secs())))]
    queue_seconds: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { requests: 600, queue: QUEUE_MAX, queue_wait: Duration::from_secs(10) }
    }
}

pub(super) fn valid(raw: RawLimits) -> Result<Limits, KeyError> {
    let RawLimits { requests, queue, queue_seconds } = raw;
    let default = Limits::default();
    let queue_seconds = queue_seconds.unwrap_or(default.queue_wait.as_secs());
    Ok(Limits {
        requests: bounded("limits.requests", requests.unwrap_or(default.requests), 1..=REQUESTS_MAX)?,
        queue: bounded("limits.queue", queue.unwrap_or(default.queue), 0..=QUEUE_MAX)?,
        queue_wait: seconds("limits.queueSeconds", queue_seconds, 0..=QUEUE_SECONDS_MAX)?,
    })
}
