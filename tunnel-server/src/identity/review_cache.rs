//! ReviewCache to the API server beside us: asked once for many who want to know, a few at a time, and remembered for a while.

mod table;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daemon::{Scope, chain};
use futures::FutureExt as _;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::host_api::HostApi;
use table::{Lookup, ReviewTable};

/// ReviewCache of one kind that are under way at once; others wait for their turn.
pub(crate) const CONCURRENT_REVIEWS_MAX: usize = 32;

/// How long a question waits for its turn.
const PERMIT_WAIT_MAX: Duration = Duration::from_secs(2);

/// How long it counts that nobody could be asked, so that a crowd does not ask on its return.
pub(crate) const UNREACHABLE_FOR: Duration = Duration::from_secs(1);

/// A question, by a digest of it.
pub(crate) type ReviewKey = [u8; 32];

/// What was found out.
pub(crate) trait CachedReview: Clone + Send + Sync + 'static {
    /// Nobody could be asked.
    fn unreachable() -> Self;

    /// When it was found out.
    fn at(&self) -> Instant;

    /// The first moment at which it counts no more.
    fn until(&self) -> Instant;

    /// Whether it lets somebody in. These are remembered apart, so that guesses push nobody out who came in.
    fn is_yes(&self) -> bool;
}

/// All questions of one kind. Clones are the same.
pub(crate) struct ReviewCache<A>(Arc<SharedReviews<A>>);

struct SharedReviews<A> {
    api: Arc<HostApi>,
    /// What is asked, in the plural, for the log.
    name: String,
    /// Where it is asked.
    path: &'static str,
    scope: Scope,
    table: Mutex<ReviewTable<A>>,
    permits: Semaphore,
    /// Whether the last question was in vain, which is logged once.
    is_unreachable: AtomicBool,
}

impl<A: CachedReview> ReviewCache<A> {
    /// ReviewCache that `api` is asked at `path`, by tasks of `scope`.
    pub(crate) fn new(api: Arc<HostApi>, path: &'static str, name: String, scope: Scope) -> Self {
        let (table, permits, is_unreachable) =
            (Mutex::default(), Semaphore::new(CONCURRENT_REVIEWS_MAX), AtomicBool::new(false));
        Self(Arc::new(SharedReviews { api, name, path, scope, table, permits, is_unreachable }))
    }

    /// The answer to the question with this `key`: name is remembered, else name `read` makes of the `status` that comes back
    /// for `object`. Many who ask the same at once are one question.
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
                // Whoever waits for it may hang up, and would leave it standing with its turn.
                inner.scope.clone().attend(async move {
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
        let was_away = self.is_unreachable.swap(answer.is_err(), Ordering::Relaxed);
        match &answer {
            Ok(_) if was_away => info!(name = self.name, "the API server beside us answers again"),
            Ok(_) => {}
            Err(error) if !was_away => {
                warn!(name = self.name, error = %chain(error), "the API server beside us cannot be asked");
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
