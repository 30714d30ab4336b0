//! Keeps the keys of an issuer fresh. One task fetches them, however many tokens name an unknown key.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::error_chain;
use http::{Method, Request, StatusCode, Uri};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, warn};

use super::jwt::ClaimsObject;
use super::keys::{KeySet, KeySetError};
use crate::identity::https::{HTTPS_TIMEOUT, HttpsClient, HttpsError};

/// Largest age of the keys: an issuer that withdraws a key wants it refused soon.
pub const REFRESH_EVERY: Duration = Duration::from_secs(300);

/// Shortest pause between two fetches from an issuer, whatever keys tokens name.
pub const REFRESH_PAUSE: Duration = Duration::from_secs(10);

/// Largest answer of an issuer, in bytes.
pub const ANSWER_BYTES_MAX: usize = 512 * 1024;

/// Longest wait of a request for a running fetch, which has two answers.
const FIND_MAX: Duration = Duration::from_secs(2 * HTTPS_TIMEOUT.as_secs());

/// The keys of an issuer, and their fetching.
pub(super) struct Keys {
    /// The issuer's name in the configuration, for the log.
    name: String,
    issuer: String,
    fetch: HttpsClient,
    state: watch::Sender<KeyState>,
    refresh_wanted: Notify,
}

#[derive(Clone, Default)]
struct KeyState {
    /// The keys of the last successful fetch.
    keys: Option<Arc<KeySet>>,
    /// The end of the last fetch, and whether it failed.
    fetched: Option<(Instant, bool)>,
}

/// The result of a search among the keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyLookup<T> {
    /// The search has this result.
    Found(T),
    /// There is no such key, and the keys are current.
    Nothing,
    /// There is no such key, but the issuer could not be reached.
    Unreachable,
}

/// The reason why there are no new keys.
#[derive(Debug, thiserror::Error)]
enum RefreshError {
    #[error(transparent)]
    HttpsClient(#[from] HttpsError),
    #[error("{0} answered {1}")]
    Status(Uri, StatusCode),
    #[error("the issuer {0:?} is no URL")]
    Issuer(String),
    #[error("the issuer's discovery document is not one, or another issuer's")]
    Discovery,
    #[error(transparent)]
    Keys(#[from] KeySetError),
}

impl Keys {
    pub(super) fn new(name: &str, issuer: &str, tls: watch::Receiver<Arc<rustls::ClientConfig>>) -> Self {
        Self {
            name: name.to_owned(),
            issuer: issuer.to_owned(),
            fetch: HttpsClient::new(tls, None),
            state: watch::Sender::new(KeyState::default()),
            refresh_wanted: Notify::new(),
        }
    }

    /// The result of `pick` among the keys. If there is none, the keys are fetched first, unless that was
    /// done a moment ago.
    pub(super) async fn find<T>(&self, pick: impl Fn(&KeySet) -> Option<T>) -> KeyLookup<T> {
        let mut changes = self.state.subscribe();
        let state = changes.borrow_and_update().clone();
        if let Some(found) = state.keys.as_deref().and_then(&pick) {
            return KeyLookup::Found(found);
        }
        if state.fetched.is_none_or(|(when, _)| when.elapsed() >= REFRESH_PAUSE) {
            self.refresh_wanted.notify_one();
            // It fails only if the task is gone or slow. The known keys count then.
            let _ = timeout(FIND_MAX, changes.changed()).await;
        }
        let state = changes.borrow().clone();
        match (state.keys.as_deref().and_then(pick), state.fetched) {
            (Some(found), _) => KeyLookup::Found(found),
            (None, Some((_, false))) => KeyLookup::Nothing,
            (None, Some((_, true)) | None) => KeyLookup::Unreachable,
        }
    }

    /// Fetches the keys now, and again when they are old or an unknown key is named; never more often than
    /// [`REFRESH_PAUSE`].
    pub(super) async fn follow(&self) {
        loop {
            let fetched = self.fetch_keys().await;
            let has_failed = fetched.is_err();
            match fetched {
                Ok(keys) => {
                    debug!(issuer = self.name, "the issuer's keys were read");
                    self.store(Some(keys), has_failed);
                }
                Err(error) => {
                    warn!(issuer = self.name, error = %error_chain(&error), "the issuer's keys cannot be read; the known ones stay in force");
                    self.store(None, has_failed);
                }
            }
            let now = Instant::now();
            let again = now + if has_failed { REFRESH_PAUSE } else { REFRESH_EVERY };
            // Both arms are cancel-safe: the next request repeats a lost notification.
            tokio::select! {
                () = sleep_until(again) => {}
                () = self.refresh_wanted.notified() => sleep_until(now + REFRESH_PAUSE).await,
            }
        }
    }

    fn store(&self, keys: Option<KeySet>, has_failed: bool) {
        self.state.send_modify(|state| {
            if let Some(keys) = keys {
                state.keys = Some(Arc::new(keys));
            }
            state.fetched = Some((Instant::now(), has_failed));
        });
    }

    async fn fetch_keys(&self) -> Result<KeySet, RefreshError> {
        let url = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let url = url.parse().map_err(|_| RefreshError::Issuer(self.issuer.clone()))?;
        let document = ClaimsObject::parse(&self.get(url).await?).ok_or(RefreshError::Discovery)?;
        // OpenID Connect Discovery, section 4.3: otherwise one issuer could answer for another.
        let text = |name: &str| document.get(name).and_then(Value::as_str);
        let url = text("jwks_uri").filter(|_| text("issuer") == Some(self.issuer.as_str()));
        let url = url.and_then(|url| url.parse().ok()).ok_or(RefreshError::Discovery)?;
        Ok(KeySet::parse(&self.get(url).await?)?)
    }

    async fn get(&self, url: Uri) -> Result<Bytes, RefreshError> {
        let mut request = Request::new(Bytes::new());
        (*request.method_mut(), *request.uri_mut()) = (Method::GET, url.clone());
        let answer = self.fetch.send(request, ANSWER_BYTES_MAX).await?;
        match answer.status() {
            StatusCode::OK => Ok(answer.into_body()),
            status => Err(RefreshError::Status(url, status)),
        }
    }
}
