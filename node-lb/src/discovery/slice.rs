//! Watches the EndpointSlice of the cluster's own API servers, as a caller of this load balancer.
//!
//! So the watch has what every caller has: an API server that is healthy, and an end as soon as that dies. No
//! event is parsed: any event has the list requested again.

use std::net::SocketAddr;
use std::time::Duration;

use api_servers::list::{KUBERNETES_SLICES, list_version, watch_path};
use api_servers::slices;
use daemon::{Scope, error_chain};
use http::StatusCode;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::balancer::Balancer;
use crate::http_client::{HttpClient, HttpError};
use crate::members::{API_SERVERS_MAX, Source};
use crate::random::jittered;
use crate::tls::{Identity, Tls};

/// Longest wait for the list.
const LIST_MAX: Duration = Duration::from_secs(10);

/// Largest list, with room for a thousand endpoints. 1 MiB.
const LIST_BYTES_MAX: usize = 1024 * 1024;

/// Duration of a watch. Then the list is requested again in any case.
const WATCH_FOR: Duration = Duration::from_secs(60);

/// Time by which a watch may last longer.
const WATCH_LATE_MAX: Duration = Duration::from_secs(10);

/// A watch that ended earlier than this was broken at once.
const WATCH_MIN: Duration = Duration::from_secs(1);

/// Shortest pause between two lists that change all the time.
const SETTLE: Duration = Duration::from_millis(250);

/// Pause before a request that failed is repeated.
const RETRY_EVERY: Duration = Duration::from_secs(2);

/// The same where the API server does not permit it.
const DENIED_RETRY_EVERY: Duration = Duration::from_secs(30);

/// The list could not be read.
#[derive(Debug, thiserror::Error)]
enum SliceError {
    #[error("an API server gives no list of API servers")]
    Http(#[from] HttpError),
    #[error("an API server gives no list of API servers within {} s", LIST_MAX.as_secs())]
    Timeout,
    #[error(
        "the client certificate may not list and watch the EndpointSlice kubernetes in the namespace default ({0}); \
         apply deploy/node-lb/rbac.yaml"
    )]
    Denied(StatusCode),
    #[error("an API server answers {0} to a request for the list of API servers")]
    Status(StatusCode),
    #[error("the list of API servers cannot be parsed")]
    Unreadable(#[from] serde_json::Error),
}

/// Follows the slice for ever. Without a client certificate it waits for one.
pub(super) async fn follow(own_address: SocketAddr, tls: Tls, balancer: Balancer, scope: Scope) {
    let mut identities = tls.subscribe();
    let mut logged: Option<String> = None;
    loop {
        let identity = identities.borrow_and_update().clone();
        if !identity.has_certificate {
            if identities.changed().await.is_err() {
                return;
            }
            continue;
        }
        let pause = match read_and_watch(own_address, &identity, &balancer, &scope, &mut identities).await {
            Ok(pause) => {
                if logged.take().is_some() {
                    info!("the list of API servers is read again");
                }
                pause
            }
            Err(error) => {
                let message = error_chain(&error).to_string();
                if logged.as_ref() != Some(&message) {
                    warn!(error = message, "the list of API servers is not read, those that are known stay");
                    logged = Some(message);
                }
                jittered(if matches!(error, SliceError::Denied(_)) {
                    DENIED_RETRY_EVERY
                } else {
                    RETRY_EVERY
                })
            }
        };
        // Both arms are cancel-safe: neither holds anything.
        tokio::select! {
            () = sleep(pause) => {}
            _ = identities.changed() => identities.mark_changed(),
        }
    }
}

/// Reads the list, and watches it until it may have changed. Returns the pause before the next list.
async fn read_and_watch(
    own_address: SocketAddr,
    identity: &std::sync::Arc<Identity>,
    balancer: &Balancer,
    scope: &Scope,
    identities: &mut watch::Receiver<std::sync::Arc<Identity>>,
) -> Result<Duration, SliceError> {
    let listing = async {
        let mut client = HttpClient::connect(own_address, identity, scope).await?;
        let (status, list) = client.get(KUBERNETES_SLICES, LIST_BYTES_MAX).await?;
        Ok::<_, HttpError>((client, status, list))
    };
    let (mut client, status, list) = timeout(LIST_MAX, listing).await.map_err(|_| SliceError::Timeout)??;
    match status {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(SliceError::Denied(status)),
        status => return Err(SliceError::Status(status)),
    }
    publish(&slices::endpoints(&list)?, balancer);
    let path = watch_path(KUBERNETES_SLICES, &list_version(&list), WATCH_FOR.as_secs());
    let began = Instant::now();
    // Both arms are cancel-safe: a watch that is dropped is cancelled.
    let watched = tokio::select! {
        watched = timeout(WATCH_FOR + WATCH_LATE_MAX, client.first_bytes(&path)) => watched,
        _ = identities.changed() => {
            identities.mark_changed();
            return Ok(Duration::ZERO);
        }
    };
    Ok(match watched {
        Ok(Ok((StatusCode::OK | StatusCode::GONE, true))) => SETTLE,
        Ok(Ok((StatusCode::OK, false))) if began.elapsed() >= WATCH_MIN => Duration::ZERO,
        Ok(Ok((StatusCode::FORBIDDEN, _))) => DENIED_RETRY_EVERY,
        Ok(Ok(_) | Err(_)) => RETRY_EVERY,
        Err(_) => Duration::ZERO,
    })
}

fn publish(endpoints: &[String], balancer: &Balancer) {
    let mut addresses: Vec<SocketAddr> =
        endpoints.iter().filter_map(|endpoint| endpoint.parse().ok()).collect();
    if addresses.len() > API_SERVERS_MAX {
        warn!(
            found = addresses.len(),
            "the cluster lists more than {API_SERVERS_MAX} API servers, the first ones are used"
        );
        addresses.truncate(API_SERVERS_MAX);
    }
    balancer.name(Source::Slice, &addresses);
}
