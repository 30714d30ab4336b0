//! A watch as a bell: it rings when something may have changed, and what there is now is listed anew.
//!
//! No event is read, so that none can be misread or missed, and none costs memory.

use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use tokio::time::{Instant, timeout};
use tracing::debug;

use crate::apiserver::ApiServer;

/// How long a watch lasts; then the list is asked for anyway.
pub(super) const WATCH_FOR: Duration = Duration::from_secs(60);

/// How much longer it may last before the API server is taken for gone.
const WATCH_LATE_MAX: Duration = Duration::from_secs(10);

/// A watch that has lasted so long was one.
const WATCH_LEAST: Duration = Duration::from_secs(2);

/// What became of a watch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Bell {
    /// Something may have changed.
    Rung,
    /// Nothing has changed all the time.
    Over,
    /// It broke at once.
    Lost,
    /// There is none, or the agent may not watch.
    None,
}

/// Waits for what a watch at this path tells of, which lasts for [`WATCH_FOR`].
pub(super) async fn wait(api_server: &ApiServer, path: Option<&str>) -> Bell {
    let Some(path) = path else {
        return Bell::None;
    };
    let begun = Instant::now();
    let mut moves = api_server.moves();
    // Both arms are cancel-safe: a watch that is dropped is cancelled.
    let watched = tokio::select! {
        watched = timeout(WATCH_FOR + WATCH_LATE_MAX, watch(api_server, path)) => watched,
        // Whoever was watched may be dead, and say nothing for that reason.
        _ = moves.changed() => return Bell::Rung,
    };
    match watched {
        Ok(Some(bell)) => bell,
        Ok(None) if begun.elapsed() < WATCH_LEAST => Bell::Lost,
        Ok(None) | Err(_) => Bell::Over,
    }
}

/// `None` if it ended by itself.
async fn watch(api_server: &ApiServer, path: &str) -> Option<Bell> {
    let mut request = Request::get(path).body(Empty::<Bytes>::new()).ok()?;
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
    let response = api_server.send_long_running(request).await.ok()?;
    match response.status() {
        StatusCode::OK => {}
        // The version is too old, which only a new list mends.
        StatusCode::GONE => return Some(Bell::Rung),
        status => {
            debug!(%status, "the agent may not watch; apply what `tombolo rbac` makes of its configuration");
            return Some(Bell::None);
        }
    }
    let mut body = response.into_body();
    loop {
        let frame = body.frame().await?.ok()?;
        if frame.data_ref().is_some_and(|data| !data.is_empty()) {
            return Some(Bell::Rung);
        }
    }
}
