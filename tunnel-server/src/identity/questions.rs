//! Questions to the API server beside us: asked once for many who want to know, a few at a time, and remembered for a while.

mod book;

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
use book::{Book, Found};

/// Questions of one kind that are under way at once; others wait for their turn.
pub(crate) const ASKED_MAX: usize = 32;

/// How long a question waits for its turn.
const TURN_MAX: Duration = Duration::from_secs(2);

/// How long it counts that nobody could be asked, so that a crowd does not ask on its return.
pub(crate) const AWAY_FOR: Duration = Duration::from_secs(1);

/// A question, by a digest of it.
pub(crate) type Key = [u8; 32];

/// What was found out.
pub(crate) trait Answer: Clone + Send + Sync + 'static {
    /// Nobody could be asked.
    fn away() -> Self;

    /// When it was found out.
    fn at(&self) -> Instant;

    /// The first moment at which it counts no more.
    fn until(&self) -> Instant;

    /// Whether it lets somebody in. These are remembered apart, so that guesses push nobody out who came in.
    fn is_yes(&self) -> bool;
}

/// All questions of one kind. Clones are the same.
pub(crate) struct Questions<A>(Arc<Inner<A>>);

struct Inner<A> {
    api: Arc<HostApi>,
    /// What is asked, in the plural, for the log.
    what: String,
    /// Where it is asked.
    path: &'static str,
    scope: Scope,
    book: Mutex<Book<A>>,
    turns: Semaphore,
    /// Whether the last question was in vain, which is logged once.
    is_away: AtomicBool,
}

impl<A: Answer> Questions<A> {
    /// Questions that `api` is asked at `path`, by tasks of `scope`.
    pub(crate) fn new(api: Arc<HostApi>, path: &'static str, what: String, scope: Scope) -> Self {
        let (book, turns, is_away) = (Mutex::default(), Semaphore::new(ASKED_MAX), AtomicBool::new(false));
        Self(Arc::new(Inner { api, what, path, scope, book, turns, is_away }))
    }

    /// The answer to the question with this `key`: what is remembered, else what `read` makes of the `status` that comes back
    /// for `object`. Many who ask the same at once are one question.
    pub(crate) async fn answer(
        &self,
        key: &Key,
        object: impl FnOnce() -> Value,
        read: impl FnOnce(&Value) -> A + Send + 'static,
    ) -> A {
        let inner = &self.0;
        let found = inner.book().find(key, Instant::now(), || {
            let (inner, object) = (Arc::clone(inner), object());
            async move { inner.ask(&object).await.map_or_else(A::away, |status| read(&status)) }
                .boxed()
                .shared()
        });
        match found {
            Found::Known(answer) => answer,
            Found::Pending(asked) => asked.await,
            Found::Begun(asked) => {
                let (inner, key, driven) = (Arc::clone(inner), *key, asked.clone());
                // Whoever waits for it may hang up, and would leave it standing with its turn.
                inner.scope.clone().attend(async move {
                    let answer = driven.await;
                    inner.book().settle(&key, &answer);
                });
                asked.await
            }
            Found::Crowded => A::away(),
        }
    }
}

impl<A: Answer> Inner<A> {
    fn book(&self) -> MutexGuard<'_, Book<A>> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, object: &Value) -> Option<Value> {
        let Ok(Ok(_turn)) = timeout(TURN_MAX, self.turns.acquire()).await else { return None };
        let answer = self.api.post(self.path, object).await;
        let was_away = self.is_away.swap(answer.is_err(), Ordering::Relaxed);
        match &answer {
            Ok(_) if was_away => info!(what = self.what, "the API server beside us answers again"),
            Ok(_) => {}
            Err(error) if !was_away => {
                warn!(what = self.what, error = %chain(error), "the API server beside us cannot be asked");
            }
            Err(_) => {}
        }
        answer.ok()
    }
}

impl<A> Clone for Questions<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
