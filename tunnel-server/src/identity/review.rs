//! Callers by tokens of the cluster beside us, whose API server says whose they are (TokenReview).
//! <https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-review-v1/>

mod book;
mod verdict;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use aws_lc_rs::rand::SystemRandom;
use daemon::chain;
use futures::FutureExt as _;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

pub use book::{ACCEPTED_FOR, REFUSED_FOR, REMEMBERED_MAX, WAITING_MAX};
pub use verdict::ReviewFault;

use super::host_api::HostApi;
use super::{Caller, Method, NotAuthenticated, Prefixes};
use book::{Book, Found};
use verdict::Verdict;

/// Reviews that are under way at once; others wait for their turn.
pub const REVIEWS_MAX: usize = 32;

/// How long a review waits for its turn.
const TURN_MAX: Duration = Duration::from_secs(2);

/// Whoever says whose a token is.
pub struct Reviewer(Arc<Inner>);

struct Inner {
    method: Method,
    api: HostApi,
    audiences: Vec<String>,
    prefixes: Prefixes,
    /// Tokens are remembered by a MAC of a key that dies with this process.
    key: Key,
    book: Mutex<Book>,
    turns: Semaphore,
    /// Whether the last review was in vain, which is logged once.
    is_away: AtomicBool,
}

impl Reviewer {
    /// The reviewer that the configuration calls `name`; a token must be for one of these `audiences`.
    ///
    /// # Errors
    ///
    /// The system has no randomness.
    pub fn new(
        name: &str,
        api: HostApi,
        audiences: Vec<String>,
        prefixes: Prefixes,
    ) -> Result<Self, aws_lc_rs::error::Unspecified> {
        Ok(Self(Arc::new(Inner {
            method: Method::TokenReview(format!("token-review:{name}").into()),
            api,
            audiences,
            prefixes,
            key: Key::generate(HMAC_SHA256, &SystemRandom::new())?,
            book: Mutex::default(),
            turns: Semaphore::new(REVIEWS_MAX),
            is_away: AtomicBool::new(false),
        })))
    }

    pub(super) fn prefixes(&self) -> &Prefixes {
        &self.0.prefixes
    }

    /// Whose `token` is. Many who ask for the same at once are one review.
    pub(super) async fn caller(&self, token: &str, now: SystemTime) -> Result<Caller, NotAuthenticated> {
        let inner = &self.0;
        let mut mac = [0; 32];
        mac.copy_from_slice(sign(&inner.key, token.as_bytes()).as_ref());
        let found = inner.book().find(&mac, Instant::now(), || {
            let (inner, token) = (Arc::clone(inner), token.to_owned());
            async move { inner.review(&token).await }.boxed().shared()
        });
        let verdict = match found {
            Found::Known(verdict) => verdict,
            Found::Pending(review) => {
                let verdict = review.await;
                inner.book().settle(&mac, &verdict);
                verdict
            }
            Found::Crowded => Verdict::away(),
        };
        verdict.caller(&inner.method, now)
    }
}

impl Inner {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn review(&self, token: &str) -> Verdict {
        let Ok(Ok(_turn)) = timeout(TURN_MAX, self.turns.acquire()).await else { return Verdict::away() };
        let question = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": token, "audiences": self.audiences },
        });
        let answer = self.api.post("/apis/authentication.k8s.io/v1/tokenreviews", &question).await;
        let was_away = self.is_away.swap(answer.is_err(), Ordering::Relaxed);
        match answer {
            Ok(status) => {
                if was_away {
                    info!(method = self.method.as_str(), "tokens are reviewed again");
                }
                Verdict::of(&status, token, &self.audiences, &self.prefixes)
            }
            Err(error) => {
                if !was_away {
                    warn!(method = self.method.as_str(), error = %chain(&error), "tokens cannot be reviewed");
                }
                Verdict::away()
            }
        }
    }
}

impl fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reviewer").field("method", &self.0.method).finish_non_exhaustive()
    }
}
