//! Decides when a list is requested again: by a watch of which no event is parsed, or after a pause.
//!
//! So no event can be misread or missed, and none costs memory.

use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use tokio::time::{Instant, timeout};
use tracing::debug;

use crate::apiserver::ApiServer;

/// Interval between two requests for a list that the agent may not watch.
pub(super) const REFRESH_EVERY: Duration = Duration::from_secs(60);

/// Pause before a request that failed is repeated.
pub(super) const RETRY_EVERY: Duration = Duration::from_secs(10);

/// Pause after a watch that broke at once.
const LOST_WATCH_PAUSE: Duration = Duration::from_secs(2);

/// Shortest pause between two requests for a list that changes all the time.
const SETTLE: Duration = Duration::from_millis(250);

/// Largest answer, with room for a thousand endpoints. 1 MiB.
pub(super) const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Duration of a watch. Then the list is requested again in any case.
pub(super) const WATCH_FOR: Duration = Duration::from_secs(60);

/// Time by which a watch may last longer, before the API server counts as dead.
const WATCH_LATE_MAX: Duration = Duration::from_secs(10);

/// A watch that lasted at least so long did not fail at once.
const WATCH_MIN: Duration = Duration::from_secs(2);

/// The outcome of a watch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WatchOutcome {
    /// The list may have changed.
    Changed,
    /// The watch lasted its time, and nothing has changed.
    Unchanged,
    /// The watch broke at once.
    Lost,
    /// There is no watch, or the agent may not watch.
    Unavailable,
}

/// Watches at this path for at most [`WATCH_FOR`], until something may have changed.
pub(super) async fn wait(api_server: &ApiServer, path: Option<&str>) -> WatchOutcome {
    let Some(path) = path else {
        return WatchOutcome::Unavailable;
    };
    let began = Instant::now();
    let mut api_servers = api_server.changes();
    // Both arms are cancel-safe: a watch that is dropped is cancelled.
    let watched = tokio::select! {
        watched = timeout(WATCH_FOR + WATCH_LATE_MAX, watch(api_server, path)) => watched,
        // The API server that was watched may be dead, and therefore silent.
        _ = api_servers.changed() => return WatchOutcome::Changed,
    };
    match watched {
        Ok(Some(outcome)) => outcome,
        Ok(None) if began.elapsed() < WATCH_MIN => WatchOutcome::Lost,
        Ok(None) | Err(_) => WatchOutcome::Unchanged,
    }
}

/// Reads from a watch. `None` if it ended by itself.
async fn watch(api_server: &ApiServer, path: &str) -> Option<WatchOutcome> {
    let mut request = Request::get(path).body(Empty::<Bytes>::new()).ok()?;
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
    let response = api_server.send_long_running(request).await.ok()?;
    match response.status() {
        StatusCode::OK => {}
        // The version is too old: only a new list helps.
        StatusCode::GONE => return Some(WatchOutcome::Changed),
        status => {
            debug!(%status, "the agent may not watch; apply what `tombolo rbac` makes of its configuration");
            return Some(WatchOutcome::Unavailable);
        }
    }
    let mut body = response.into_body();
    loop {
        let frame = body.frame().await?.ok()?;
        if frame.data_ref().is_some_and(|data| !data.is_empty()) {
            return Some(WatchOutcome::Changed);
        }
    }
}

/// The pause before the next request after a watch has ended.
pub(super) fn pause_after(outcome: &WatchOutcome) -> Duration {
    match outcome {
        WatchOutcome::Changed => SETTLE,
        WatchOutcome::Unchanged => Duration::ZERO,
        WatchOutcome::Lost => LOST_WATCH_PAUSE,
        WatchOutcome::Unavailable => REFRESH_EVERY,
    }
}
