//! Who owns every task, and how all of them end.
//!
//! A scope knows two kinds of task. *Work* is what callers wait for: a drain waits for it, up to the grace period.
//! *Attendants* serve the work (probes, upkeep, protocol drivers): they live until the last work is gone and are
//! then dismissed, so they never hold a drain up.

use std::{any::Any, cell::Cell, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt as _;
use tokio::{
    runtime::{Handle, RuntimeMetrics},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::error;

use crate::until::until;

/// How long tasks that were dropped may take to be gone. Only a task that blocks its thread takes longer.
const ABORT_MAX: Duration = Duration::from_secs(2);

/// Owner of every task of the process. Clones are the same scope.
#[derive(Clone)]
pub struct Scope(Arc<Inner>);

/// Runs what hyper spawns as attendants: no drain waits for a connection's own tasks, only for exchanges.
#[derive(Debug, Clone)]
pub struct Attendants(Scope);

/// A runtime on which tasks may be placed; home 0 is the main thread's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Home(usize);

/// The grace period passed while work was still running.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the grace period of {} s passed and {cut} running tasks were cut off", grace.as_secs())]
pub struct GraceExceeded {
    /// Tasks of work that were still running and were dropped.
    pub cut: usize,
    /// The grace period that was not enough.
    pub grace: Duration,
}

struct Inner {
    /// Never empty.
    homes: Vec<Handle>,
    /// A runtime that gets what the homes leave, if there is one.
    aside: Option<Handle>,
    work: TaskTracker,
    attendants: TaskTracker,
    drain: CancellationToken,
    abort: CancellationToken,
    dismiss: CancellationToken,
}

thread_local! {
    static HOME: Cell<Option<Home>> = const { Cell::new(None) };
}

impl Scope {
    /// A scope whose only home is the runtime of the calling task: for tests and for embedding.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn here() -> Self {
        Self::over(Handle::current(), [], None)
    }

    /// A scope over `first`, which becomes home 0, the `further` homes in order, and what is `aside` of them.
    pub(crate) fn over(
        first: Handle,
        further: impl IntoIterator<Item = Handle>,
        aside: Option<Handle>,
    ) -> Self {
        Self(Arc::new(Inner {
            homes: std::iter::once(first).chain(further).collect(),
            aside,
            work: TaskTracker::new(),
            attendants: TaskTracker::new(),
            drain: CancellationToken::new(),
            abort: CancellationToken::new(),
            dismiss: CancellationToken::new(),
        }))
    }

    /// Runs `work` on the runtime of the calling task, or on home 0 if called from outside of any.
    /// It is dropped at abort; a panic in it is logged and ends nothing else.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let home = Handle::try_current().unwrap_or_else(|_| self.0.homes[0].clone());
        own(&self.0.work, &home, self.0.abort.clone(), work);
    }

    /// Runs `work` on `home`, otherwise like [`Scope::spawn`].
    pub fn spawn_on(&self, home: Home, work: impl Future<Output = ()> + Send + 'static) {
        own(&self.0.work, self.handle(home), self.0.abort.clone(), work);
    }

    /// Runs `work` beside the homes, on a thread that gets what they leave of the processor, and otherwise like [`Scope::spawn`]: for
    /// what others must not wait behind. Where no such thread was planned it runs on home 0.
    pub fn spawn_aside(&self, work: impl Future<Output = ()> + Send + 'static) {
        let aside = self.0.aside.as_ref().unwrap_or(&self.0.homes[0]);
        own(&self.0.work, aside, self.0.abort.clone(), work);
    }

    /// Runs an attendant where [`Scope::spawn`] would: no drain waits for it, and it is dropped, uncounted, when
    /// the last work has ended.
    pub fn attend(&self, attendant: impl Future<Output = ()> + Send + 'static) {
        let home = Handle::try_current().unwrap_or_else(|_| self.0.homes[0].clone());
        own(&self.0.attendants, &home, self.0.dismiss.clone(), attendant);
    }

    /// An executor for what hyper spawns, for connections that no drain waits for.
    pub fn attendants(&self) -> Attendants {
        Attendants(self.clone())
    }

    /// Every home, home 0 first.
    pub fn homes(&self) -> impl Iterator<Item = Home> + use<> {
        (0..self.home_count()).map(Home)
    }

    /// How many homes there are; at least one.
    pub fn home_count(&self) -> usize {
        self.0.homes.len()
    }

    /// The home for the `n`-th of something: round robin by the one who counts.
    pub fn home_for(&self, n: usize) -> Home {
        Home(n % self.home_count())
    }

    /// One home after the other, again and again.
    pub fn homes_in_turn(&self) -> impl FnMut() -> Home + Send + use<> {
        let (count, mut next) = (self.home_count(), 0);
        move || {
            let home = Home(next);
            next = (next + 1) % count;
            home
        }
    }

    /// Resolves when the drain begins: begin nothing new, finish what runs.
    pub fn draining(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.0.drain.clone().cancelled_owned()
    }

    /// Whether the drain has begun.
    pub fn is_draining(&self) -> bool {
        self.0.drain.is_cancelled()
    }

    /// Begins the drain. Idempotent.
    pub fn begin_drain(&self) {
        self.0.drain.cancel();
    }

    /// Resolves at abort, for what is not a task of this scope.
    pub fn aborted(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.0.abort.clone().cancelled_owned()
    }

    /// Drops all work now. Begins the drain too, so that nobody begins anything. Idempotent.
    pub fn abort(&self) {
        self.begin_drain();
        self.0.abort.cancel();
    }

    /// Begins the drain, waits until no work is left, an abort, or the end of `grace`; drops what is left, then
    /// dismisses the attendants. After it no task of this scope runs, and what is spawned later is dropped at once.
    ///
    /// # Errors
    ///
    /// [`GraceExceeded`] if work was still running at the end of `grace`. An abort is not an error here: whoever
    /// called it knows.
    pub async fn close(&self, grace: Duration) -> Result<(), GraceExceeded> {
        self.begin_drain();
        self.0.work.close();
        self.0.attendants.close();
        // All three arms are cancel-safe: none of them holds anything. Biased, so that work which ended in the
        // moment in which grace passes counts as ended.
        let in_time = tokio::select! {
            biased;
            () = self.0.work.wait() => Ok(()),
            () = self.0.abort.cancelled() => Ok(()),
            () = sleep(grace) => Err(GraceExceeded { cut: self.0.work.len(), grace }),
        };
        self.abort();
        gone(&self.0.work, "work").await;
        self.0.dismiss.cancel();
        gone(&self.0.attendants, "attendants").await;
        in_time
    }

    /// How many tasks of work and how many attendants there are now.
    pub(crate) fn task_counts(&self) -> (usize, usize) {
        (self.0.work.len(), self.0.attendants.len())
    }

    /// The figures of each home's runtime under its number, and of what is aside under `aside`.
    pub(crate) fn runtimes(&self) -> Vec<(String, RuntimeMetrics)> {
        let homes = self.homes().map(|home| (home.number().to_string(), self.handle(home).metrics()));
        homes.chain(self.0.aside.iter().map(|aside| ("aside".to_owned(), aside.metrics()))).collect()
    }

    /// Counts `work`, which its caller polls, as work of this scope: `None` if an abort dropped it.
    pub(crate) async fn adopt<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.0.work.track_future(self.0.abort.run_until_cancelled(work)).await
    }

    fn handle(&self, home: Home) -> &Handle {
        // A home of another scope wraps around instead of panicking.
        &self.0.homes[home.0 % self.home_count()]
    }
}

impl<F> hyper::rt::Executor<F> for Scope
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, future: F) {
        self.spawn(future.map(drop));
    }
}

impl<F> hyper::rt::Executor<F> for Attendants
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, future: F) {
        self.0.attend(future.map(drop));
    }
}

impl std::fmt::Debug for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope")
            .field("homes", &self.home_count())
            .field("work", &self.0.work.len())
            .field("attendants", &self.0.attendants.len())
            .field("draining", &self.is_draining())
            .finish()
    }
}

impl Home {
    pub(crate) const FIRST: Self = Self(0);

    pub(crate) fn nth(n: usize) -> Self {
        Self(n)
    }

    /// Its number, from 0: for labels and logs.
    pub fn number(self) -> usize {
        self.0
    }
}

/// The home whose thread is calling, if it is one.
pub fn current_home() -> Option<Home> {
    HOME.get()
}

/// Marks the calling thread as one of `home`'s.
pub(crate) fn settle(home: Home) {
    HOME.set(Some(home));
}

/// The text of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&'static str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}

#[expect(clippy::disallowed_methods, reason = "this is the one place where tasks are made")]
fn own(
    tracker: &TaskTracker,
    home: &Handle,
    stop: CancellationToken,
    task: impl Future<Output = ()> + Send + 'static,
) {
    // An exchange is kilobytes, and each layer around it would move them once more: they move once, to the heap.
    let task = Box::pin(task);
    let contained = async move {
        let ended = AssertUnwindSafe(until(task, stop.cancelled_owned())).catch_unwind().await;
        if let Err(panic) = ended {
            error!(panic = panic_message(panic.as_ref()), "a task panicked");
        }
    };
    tracker.spawn_on(contained, home);
}

async fn gone(tasks: &TaskTracker, kind: &'static str) {
    if timeout(ABORT_MAX, tasks.wait()).await.is_err() {
        error!(left = tasks.len(), kind, "tasks block their threads and cannot be dropped");
    }
}

#[cfg(test)]
mod tests;
