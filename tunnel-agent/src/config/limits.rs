//! How much is asked of the API server at once, as it was written and as it is valid.

use std::time::Duration;

use daemon::config::{KeyError, bounded, seconds};
use serde::Deserialize;

/// Bounds of what may be configured.
pub const REQUESTS_MAX: usize = 10_000;
/// Those that wait: each is a stream that is held.
pub const QUEUE_MAX: usize = 4_096;
/// And for how long: less than a gateway waits for an agent, so that it hears why.
pub const QUEUE_SECONDS_MAX: u64 = 60;

/// How much is asked of the API server at once. The defaults: docs/decisions/0031-limits-and-fair-queues.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests that end by themselves, and what runs long until it has begun; 1 to [`REQUESTS_MAX`].
    pub requests: usize,
    /// Those that wait for one of these to end; 0 to [`QUEUE_MAX`].
    pub queue: usize,
    /// For how long they do; 0 to [`QUEUE_SECONDS_MAX`].
    pub queue_wait: Duration,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Written {
    requests: Option<usize>,
    queue: Option<usize>,
    queue_seconds: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { requests: 600, queue: QUEUE_MAX, queue_wait: Duration::from_secs(10) }
    }
}

pub(super) fn valid(written: Written) -> Result<Limits, KeyError> {
    let Written { requests, queue, queue_seconds } = written;
    let default = Limits::default();
    let queue_seconds = queue_seconds.unwrap_or(default.queue_wait.as_secs());
    Ok(Limits {
        requests: bounded("limits.requests", requests.unwrap_or(default.requests), 1..=REQUESTS_MAX)?,
        queue: bounded("limits.queue", queue.unwrap_or(default.queue), 0..=QUEUE_MAX)?,
        queue_wait: seconds("limits.queueSeconds", queue_seconds, 0..=QUEUE_SECONDS_MAX)?,
    })
}
