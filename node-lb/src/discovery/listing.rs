//! One list of EndpointSlices, and a watch that ends as soon as the list may have changed. No event is parsed: any event has the list
//! requested again.

use std::net::SocketAddr;
use std::time::Duration;

use api_servers::list::{list_version, watch_path};
use api_servers::slices;
use http::StatusCode;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::balancer::Balancer;
use crate::http_client::{HttpClient, HttpError};
use crate::members::{API_SERVERS_MAX, Source};
use crate::random::jittered;

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
pub(super) enum ListError {
    #[error("an API server gives no list of API servers")]
    Http(#[from] HttpError),
    #[error("the credential cannot be used: {0}")]
    Credential(String),
    #[error("an API server gives no list of API servers within {} s", LIST_MAX.as_secs())]
    Timeout,
    #[error("the API server does not permit the list of API servers ({status}); {remedy}")]
    Denied {
        /// The status of the answer.
        status: StatusCode,
        /// The remedy of this source.
        remedy: &'static str,
    },
    #[error("an API server answers {0} to a request for the list of API servers")]
    Status(StatusCode),
    #[error("the list of API servers cannot be parsed")]
    Unreadable(#[from] serde_json::Error),
}

impl ListError {
    /// The pause before the next try.
    pub(super) fn pause(&self) -> Duration {
        jittered(if matches!(self, Self::Denied { .. }) { DENIED_RETRY_EVERY } else { RETRY_EVERY })
    }
}

/// A list of EndpointSlices, and the source of addresses that it is.
pub(super) struct Listing {
    /// The path of the list, with its query.
    pub(super) path: String,
    /// The name of the source.
    pub(super) source: Source,
    /// The remedy if the API server does not permit the list.
    pub(super) remedy: &'static str,
}

impl Listing {
    /// Reads the list on a new connection, and watches it until it may have changed. Returns the pause before the next list. Can be dropped at
    /// any time.
    ///
    /// # Errors
    /// [`ListError`] if the list was not read.
    pub(super) async fn read_and_watch(
        &self,
        connecting: impl Future<Output = Result<HttpClient, ListError>>,
        balancer: &Balancer,
    ) -> Result<Duration, ListError> {
        let listing = async {
            let mut client = connecting.await?;
            let (status, list) = client.get(&self.path, LIST_BYTES_MAX).await?;
            Ok::<_, ListError>((client, status, list))
        };
        let (mut client, status, list) =
            timeout(LIST_MAX, listing).await.map_err(|_| ListError::Timeout)??;
        match status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Err(ListError::Denied { status, remedy: self.remedy });
            }
            status => return Err(ListError::Status(status)),
        }
        self.publish(&slices::endpoints(&list)?, balancer);
        let path = watch_path(&self.path, &list_version(&list), WATCH_FOR.as_secs());
        let began = Instant::now();
        Ok(match timeout(WATCH_FOR + WATCH_LATE_MAX, client.first_bytes(&path)).await {
            Ok(Ok((StatusCode::OK | StatusCode::GONE, true))) => SETTLE,
            Ok(Ok((StatusCode::OK, false))) if began.elapsed() >= WATCH_MIN => Duration::ZERO,
            Ok(Ok((StatusCode::FORBIDDEN, _))) => DENIED_RETRY_EVERY,
            Ok(Ok(_) | Err(_)) => RETRY_EVERY,
            Err(_) => Duration::ZERO,
        })
    }

    fn publish(&self, endpoints: &[String], balancer: &Balancer) {
        let mut addresses: Vec<SocketAddr> =
            endpoints.iter().filter_map(|endpoint| endpoint.parse().ok()).collect();
        if addresses.len() > API_SERVERS_MAX {
            warn!(
                found = addresses.len(),
                "the cluster lists more than {API_SERVERS_MAX} API servers, the first ones are used"
            );
            addresses.truncate(API_SERVERS_MAX);
        }
        balancer.name(self.source, &addresses);
    }
}

/// The end of one reading of a list, said in the log when it changes, and the pause before the next one.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    logged: Option<String>,
}

impl Outcomes {
    /// Notes how one reading ended. Returns the pause before the next one.
    pub(super) fn note(&mut self, listing: &Listing, outcome: Result<Duration, ListError>) -> Duration {
        let source = listing.source.label();
        match outcome {
            Ok(pause) => {
                if self.logged.take().is_some() {
                    tracing::info!(source, "the list of API servers is read again");
                }
                pause
            }
            Err(error) => {
                let message = daemon::error_chain(&error).to_string();
                if self.logged.as_ref() != Some(&message) {
                    warn!(
                        source,
                        error = message,
                        "the list of API servers is not read, those that are known stay"
                    );
                    self.logged = Some(message);
                }
                error.pause()
            }
        }
    }
}
