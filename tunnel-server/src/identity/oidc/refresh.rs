//! The keys of an issuer as they are now: asked for by one task, however many tokens name a key that is not known.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::chain;
use http::{Method, Request, StatusCode, Uri};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, warn};

use super::jwt::JsonObject;
use super::keys::{KeySet, KeySetError};
use crate::identity::https::{HTTPS_TIMEOUT, HttpsClient, HttpsError};

/// How old keys may be before they are asked for again: an issuer that takes one back wants it gone.
pub const REFRESH_EVERY: Duration = Duration::from_secs(300);

/// Least pause between two questions to an issuer, whoever names whichever key.
pub const REFRESH_PAUSE: Duration = Duration::from_secs(10);

/// Largest answer of an issuer, in bytes.
pub const ANSWER_BYTES_MAX: usize = 512 * 1024;

/// How long a request waits for a question that is under way: both answers of it.
const LOOK_MAX: Duration = Duration::from_secs(2 * HTTPS_TIMEOUT.as_secs());

/// The keys of an issuer.
pub(super) struct Keys {
    /// In the configuration, for the log.
    name: String,
    issuer: String,
    fetch: HttpsClient,
    known: watch::Sender<KeyState>,
    wanted: Notify,
}

#[derive(Clone, Default)]
struct KeyState {
    /// The last that were good.
    keys: Option<Arc<KeySet>>,
    /// When the last question ended, and whether in vain.
    asked: Option<(Instant, bool)>,
}

/// What was found among the keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyLookup<T> {
    /// This.
    Found(T),
    /// Nothing, and the keys are those that the issuer has.
    Nothing,
    /// Nothing, and the issuer could not be asked.
    Unreachable,
}

/// Why there are no new keys.
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
    pub(super) fn new(name: &str, issuer: &str, tls: rustls::ClientConfig) -> Self {
        Self {
            name: name.to_owned(),
            issuer: issuer.to_owned(),
            fetch: HttpsClient::new(tls, None),
            known: watch::Sender::new(KeyState::default()),
            wanted: Notify::new(),
        }
    }

    /// What `pick` finds among the keys; where it finds nothing, among those that the issuer has now, unless it was asked a
    /// moment ago.
    pub(super) async fn look<T>(&self, pick: impl Fn(&KeySet) -> Option<T>) -> KeyLookup<T> {
        let mut changes = self.known.subscribe();
        let known = changes.borrow_and_update().clone();
        if let Some(found) = known.keys.as_deref().and_then(&pick) {
            return KeyLookup::Found(found);
        }
        if known.asked.is_none_or(|(when, _)| when.elapsed() >= REFRESH_PAUSE) {
            self.wanted.notify_one();
            // In vain only where the task is gone or slow: then what was known counts.
            let _ = timeout(LOOK_MAX, changes.changed()).await;
        }
        let known = changes.borrow().clone();
        match (known.keys.as_deref().and_then(pick), known.asked) {
            (Some(found), _) => KeyLookup::Found(found),
            (None, Some((_, false))) => KeyLookup::Nothing,
            (None, Some((_, true)) | None) => KeyLookup::Unreachable,
        }
    }

    /// Asks now, then whenever a key is wanted that is not known or the keys are old; never more often than the pause allows.
    pub(super) async fn follow(&self) {
        loop {
            let asked = self.ask().await;
            let in_vain = asked.is_err();
            match asked {
                Ok(keys) => {
                    debug!(issuer = self.name, "the issuer's keys were read");
                    self.learn(Some(keys), in_vain);
                }
                Err(error) => {
                    warn!(issuer = self.name, error = %chain(&error), "the issuer's keys cannot be read; those that are known hold");
                    self.learn(None, in_vain);
                }
            }
            let now = Instant::now();
            let again = now + if in_vain { REFRESH_PAUSE } else { REFRESH_EVERY };
            // Both arms are cancel-safe: a wish that is lost is made again by the next request.
            tokio::select! {
                () = sleep_until(again) => {}
                () = self.wanted.notified() => sleep_until(now + REFRESH_PAUSE).await,
            }
        }
    }

    fn learn(&self, keys: Option<KeySet>, in_vain: bool) {
        self.known.send_modify(|known| {
            if let Some(keys) = keys {
                known.keys = Some(Arc::new(keys));
            }
            known.asked = Some((Instant::now(), in_vain));
        });
    }

    async fn ask(&self) -> Result<KeySet, RefreshError> {
        let place = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let place = place.parse().map_err(|_| RefreshError::Issuer(self.issuer.clone()))?;
        let document = JsonObject::parse(&self.get(place).await?).ok_or(RefreshError::Discovery)?;
        // OpenID Connect Discovery, section 4.3: or somebody could answer for somebody else.
        let text = |name: &str| document.get(name).and_then(Value::as_str);
        let place = text("jwks_uri").filter(|_| text("issuer") == Some(self.issuer.as_str()));
        let place = place.and_then(|place| place.parse().ok()).ok_or(RefreshError::Discovery)?;
        Ok(KeySet::parse(&self.get(place).await?)?)
    }

    async fn get(&self, place: Uri) -> Result<Bytes, RefreshError> {
        let mut request = Request::new(Bytes::new());
        (*request.method_mut(), *request.uri_mut()) = (Method::GET, place.clone());
        let answer = self.fetch.ask(request, ANSWER_BYTES_MAX).await?;
        match answer.status() {
            StatusCode::OK => Ok(answer.into_body()),
            status => Err(RefreshError::Status(place, status)),
        }
    }
}
