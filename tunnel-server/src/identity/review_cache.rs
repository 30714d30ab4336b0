//! Reviews by the host cluster's API server (TokenReview, SubjectAccessReview): equal reviews are sent once,
//! a few at a time, and their results are cached.

mod table;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daemon::{Scope, error_chain};
use futures::FutureExt as _;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::host_api::HostApi;
use table::{Lookup, ReviewTable};

/// Most reviews of one kind that run at once. Further ones wait for a slot.
pub(crate) const CONCURRENT_REVIEWS_MAX: usize = 32;

/// Longest wait of a review for a slot.
const PERMIT_WAIT_MAX: Duration = Duration::from_secs(2);

/// The time for which an unreachable API server counts as such, so that waiting clients do not overload it on
/// its return.
pub(crate) const UNREACHABLE_FOR: Duration = Duration::from_secs(1);

/// The digest of a review's question.
pub(crate) type ReviewKey = [u8; 32];

/// The result of a review.
pub(crate) trait CachedReview: Clone + Send + Sync + 'static {
    /// The result if the API server cannot be reached.
    fn unreachable() -> Self;

    /// The time of the result.
    fn at(&self) -> Instant;

    /// The first moment at which the result no longer counts.
    fn until(&self) -> Instant;

    /// Returns true if the result allows something. Such results are cached apart, so that guesses displace
    /// no client that was allowed.
    fn is_yes(&self) -> bool;
}

/// All reviews of one kind. Clones share one state.
pub(crate) struct ReviewCache<A>(Arc<SharedReviews<A>>);

struct SharedReviews<A> {
    api: Arc<HostApi>,
    /// The kind of reviews, in the plural, for the log.
    name: String,
    /// The path of the API.
    path: &'static str,
    scope: Scope,
    table: Mutex<ReviewTable<A>>,
    permits: Semaphore,
    /// True if the last review failed, which is logged once.
    is_unreachable: AtomicBool,
}

impl<A: CachedReview> ReviewCache<A> {
    /// A cache of reviews that `api` does at `path`, by tasks of `scope`.
    pub(crate) fn new(api: Arc<HostApi>, path: &'static str, name: String, scope: Scope) -> Self {
        let (table, permits, is_unreachable) =
            (Mutex::default(), Semaphore::new(CONCURRENT_REVIEWS_MAX), AtomicBool::new(false));
        Self(Arc::new(SharedReviews { api, name, path, scope, table, permits, is_unreachable }))
    }

    /// The result of the review with this `key`: the cached one, or the one that `read` makes of the `status`
    /// that comes back for `object`. Equal reviews at the same time are sent once.
    pub(crate) async fn answer(
        &self,
        key: &ReviewKey,
        object: impl FnOnce() -> Value,
        read: impl FnOnce(&Value) -> A + Send + 'static,
    ) -> A {
        let inner = &self.0;
        let found = inner.table().find(key, Instant::now(), || {
            let (inner, object) = (Arc::clone(inner), object());
            async move { inner.ask(&object).await.map_or_else(A::unreachable, |status| read(&status)) }
                .boxed()
                .shared()
        });
        match found {
            Lookup::Known(answer) => answer,
            Lookup::Pending(asked) => asked.await,
            Lookup::Begun(asked) => {
                let (inner, key, driven) = (Arc::clone(inner), *key, asked.clone());
                // A waiting client can hang up, and would leave the review unfinished with its slot.
                inner.scope.clone().spawn_background(async move {
                    let answer = driven.await;
                    inner.table().settle(&key, &answer);
                });
                asked.await
            }
            Lookup::Crowded => A::unreachable(),
        }
    }
}

impl<A: CachedReview> SharedReviews<A> {
    fn table(&self) -> MutexGuard<'_, ReviewTable<A>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, object: &Value) -> Option<Value> {
        let Ok(Ok(_permit)) = timeout(PERMIT_WAIT_MAX, self.permits.acquire()).await else { return None };
        let answer = self.api.post(self.path, object).await;
        let was_unreachable = self.is_unreachable.swap(answer.is_err(), Ordering::Relaxed);
        match &answer {
            Ok(_) if was_unreachable => {
                info!(name = self.name, "the host cluster's API server answers again")
            }
            Ok(_) => {}
            Err(error) if !was_unreachable => {
                warn!(name = self.name, error = %error_chain(error), "the host cluster's API server cannot be reached");
            }
            Err(_) => {}
        }
        answer.ok()
    }
}

impl<A> Clone for ReviewCache<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
