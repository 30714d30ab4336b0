//! The owner of every task of the process, which ends all of them in order.
//!
//! A scope has two kinds of tasks. *Work* is what callers wait for: a drain waits for it, up to the grace period.
//! *Background tasks* serve the work (probes, upkeep, protocol drivers). They run until the last work has ended, and
//! a drain never waits for them.
//!
//! The end has two steps. First the process is *stopping*: it tells others so, and still begins what is asked of it, for as long
//! as somebody holds the drain. Then it *drains*: it begins nothing new, and finishes what runs.

use std::{any::Any, cell::Cell, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt as _;
use tokio::{
    runtime::{Handle, RuntimeMetrics},
    time::{sleep, timeout},
};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};
use tracing::error;

use crate::cancel::run_until;

/// Longest wait for dropped tasks to end. Only a task that blocks its thread takes longer.
const ABORT_MAX: Duration = Duration::from_secs(2);

/// Longest time for which the drain can be held after the end was requested.
const HOLD_MAX: Duration = Duration::from_secs(10);

/// Owner of every task of the process. Clones are the same scope.
#[derive(Clone)]
pub struct Scope(Arc<SharedScope>);

/// A hyper executor for background tasks: a drain waits for exchanges, and not for a connection's own tasks.
#[derive(Debug, Clone)]
pub struct BackgroundExecutor(Scope);

/// A runtime on which tasks may be placed; home 0 is the main thread's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Home(usize);

/// The grace period passed while work was still running.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the grace period of {} s passed and {cut} running tasks were cut off", grace.as_secs())]
pub struct GraceExceeded {
    /// Work tasks that were still running and were dropped.
    pub cut: usize,
    /// The grace period that passed.
    pub grace: Duration,
}

/// Holds the drain back until this is dropped, for 10 s at most after the end was requested.
#[derive(Debug)]
#[must_use = "the drain is held until this is dropped"]
pub struct DrainHold(#[expect(dead_code, reason = "its drop counts")] TaskTrackerToken);

struct SharedScope {
    /// The handles of all homes; never empty.
    homes: Vec<Handle>,
    /// The low-priority runtime, if there is one.
    low_priority: Option<Handle>,
    work: TaskTracker,
    background: TaskTracker,
    /// The holds of the drain.
    holds: TaskTracker,
    stop: CancellationToken,
    drain: CancellationToken,
    abort: CancellationToken,
    stop_background: CancellationToken,
}

thread_local! {
    static HOME: Cell<Option<Home>> = const { Cell::new(None) };
}

impl Scope {
    /// A scope whose only home is the runtime of the calling task: for tests and for embedding.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn here() -> Self {
        Self::over(Handle::current(), [], None)
    }

    /// A scope over `first`, which becomes home 0, the `further` homes in order, and the `low_priority`
    /// runtime.
    pub(crate) fn over(
        first: Handle,
        further: impl IntoIterator<Item = Handle>,
        low_priority: Option<Handle>,
    ) -> Self {
        Self(Arc::new(SharedScope {
            homes: std::iter::once(first).chain(further).collect(),
            low_priority,
            work: TaskTracker::new(),
            background: TaskTracker::new(),
            holds: TaskTracker::new(),
            stop: CancellationToken::new(),
            drain: CancellationToken::new(),
            abort: CancellationToken::new(),
            stop_background: CancellationToken::new(),
        }))
    }

    /// Runs `work` on the runtime of the calling task, or on home 0 outside of any runtime. It is dropped at
    /// abort. A panic in it is logged and ends nothing else.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let home = Handle::try_current().unwrap_or_else(|_| self.0.homes[0].clone());
        spawn_tracked(&self.0.work, &home, self.0.abort.clone(), work);
    }

    /// Runs `work` on `home`, otherwise like [`Scope::spawn`].
    pub fn spawn_on(&self, home: Home, work: impl Future<Output = ()> + Send + 'static) {
        spawn_tracked(&self.0.work, self.handle(home), self.0.abort.clone(), work);
    }

    /// Runs `work` on the low-priority runtime, otherwise like [`Scope::spawn`]: for long computations that
    /// would delay other tasks. Without such a runtime it runs on home 0.
    pub fn spawn_low_priority(&self, work: impl Future<Output = ()> + Send + 'static) {
        let low_priority = self.0.low_priority.as_ref().unwrap_or(&self.0.homes[0]);
        spawn_tracked(&self.0.work, low_priority, self.0.abort.clone(), work);
    }

    /// Runs a background task where [`Scope::spawn`] would: no drain waits for it, and it is dropped,
    /// uncounted, when the last work has ended.
    pub fn spawn_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        let home = Handle::try_current().unwrap_or_else(|_| self.0.homes[0].clone());
        spawn_tracked(&self.0.background, &home, self.0.stop_background.clone(), task);
    }

    /// Runs a background task on `home`, otherwise like [`Scope::spawn_background`].
    pub fn spawn_background_on(&self, home: Home, task: impl Future<Output = ()> + Send + 'static) {
        spawn_tracked(&self.0.background, self.handle(home), self.0.stop_background.clone(), task);
    }

    /// A hyper executor that runs a connection's own tasks as background tasks.
    pub fn background(&self) -> BackgroundExecutor {
        BackgroundExecutor(self.clone())
    }

    /// All homes, home 0 first.
    pub fn homes(&self) -> impl Iterator<Item = Home> + use<> {
        (0..self.home_count()).map(Home)
    }

    /// The number of homes; at least one.
    pub fn home_count(&self) -> usize {
        self.0.homes.len()
    }

    /// The home of the `n`-th item, round robin.
    pub fn home_for(&self, n: usize) -> Home {
        Home(n % self.home_count())
    }

    /// A function that returns the homes round robin.
    pub fn homes_in_turn(&self) -> impl FnMut() -> Home + Send + use<> {
        let (count, mut next) = (self.home_count(), 0);
        move || {
            let home = Home(next);
            next = (next + 1) % count;
            home
        }
    }

    /// Resolves when the end of the process was requested. The drain begins once nobody holds it.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.0.stop.clone().cancelled_owned()
    }

    /// Returns true if the end of the process was requested.
    pub fn is_stopping(&self) -> bool {
        self.0.stop.is_cancelled()
    }

    /// Requests the end of the process: the drain begins once nobody holds it. Further calls have no effect.
    pub fn stop(&self) {
        self.0.stop.cancel();
    }

    /// Holds the drain back, so that others can be told of it first.
    pub fn hold_drain(&self) -> DrainHold {
        DrainHold(self.0.holds.token())
    }

    /// Begins the drain when the end was requested and nobody holds it any longer.
    pub(crate) async fn drain_when_stopped(&self) {
        self.stopping().await;
        self.0.holds.close();
        // A holder that does not let go is a fault of its own, and no reason to go on.
        let _ = timeout(HOLD_MAX, self.0.holds.wait()).await;
        self.begin_drain();
    }

    /// Resolves when the drain begins: a task then starts nothing new, and finishes what runs.
    pub fn draining(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.0.drain.clone().cancelled_owned()
    }

    /// Returns true if the drain has begun.
    pub fn is_draining(&self) -> bool {
        self.0.drain.is_cancelled()
    }

    /// Begins the drain at once. Further calls have no effect.
    pub fn begin_drain(&self) {
        self.0.stop.cancel();
        self.0.drain.cancel();
    }

    /// Resolves at abort, for futures that are no task of this scope.
    pub fn aborted(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.0.abort.clone().cancelled_owned()
    }

    /// Drops all work now. Also begins the drain, so that nothing new starts. Further calls have no effect.
    pub fn abort(&self) {
        self.begin_drain();
        self.0.abort.cancel();
    }

    /// Begins the drain, and waits until no work is left, an abort, or the end of `grace`. Then drops the
    /// remaining work, and stops the background tasks. Afterwards no task of this scope runs, and tasks that
    /// are spawned later are dropped at once.
    ///
    /// # Errors
    ///
    /// [`GraceExceeded`] if work was still running at the end of `grace`. An abort is not an error, because
    /// its caller knows of it.
    pub async fn close(&self, grace: Duration) -> Result<(), GraceExceeded> {
        self.begin_drain();
        self.0.work.close();
        self.0.background.close();
        // All three arms are cancel-safe: none of them holds anything. Biased, so that work which ended in the
        // moment in which grace passes counts as ended.
        let in_time = tokio::select! {
            biased;
            () = self.0.work.wait() => Ok(()),
            () = self.0.abort.cancelled() => Ok(()),
            () = sleep(grace) => Err(GraceExceeded { cut: self.0.work.len(), grace }),
        };
        self.abort();
        wait_until_ended(&self.0.work, "work").await;
        self.0.stop_background.cancel();
        wait_until_ended(&self.0.background, "background").await;
        in_time
    }

    /// The current number of work tasks, and of background tasks.
    pub(crate) fn task_counts(&self) -> (usize, usize) {
        (self.0.work.len(), self.0.background.len())
    }

    /// The metrics of each home's runtime under its number, and of the low-priority runtime under
    /// `low_priority`.
    pub(crate) fn runtimes(&self) -> Vec<(String, RuntimeMetrics)> {
        let homes = self.homes().map(|home| (home.number().to_string(), self.handle(home).metrics()));
        homes
            .chain(
                self.0
                    .low_priority
                    .iter()
                    .map(|low_priority| ("low_priority".to_owned(), low_priority.metrics())),
            )
            .collect()
    }

    /// Counts `work`, which the caller polls, as work of this scope; `None` if an abort dropped it.
    pub(crate) async fn track<T>(&self, work: impl Future<Output = T>) -> Option<T> {
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

impl<F> hyper::rt::Executor<F> for BackgroundExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, future: F) {
        self.0.spawn_background(future.map(drop));
    }
}

impl std::fmt::Debug for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope")
            .field("homes", &self.home_count())
            .field("work", &self.0.work.len())
            .field("background", &self.0.background.len())
            .field("draining", &self.is_draining())
            .finish()
    }
}

impl Home {
    pub(crate) const FIRST: Self = Self(0);

    pub(crate) fn nth(n: usize) -> Self {
        Self(n)
    }

    /// The number of the home, from 0: for labels and logs.
    pub fn number(self) -> usize {
        self.0
    }
}

/// The home of the calling thread, if it belongs to one.
pub fn current_home() -> Option<Home> {
    HOME.get()
}

/// Marks the calling thread as one of `home`.
pub(crate) fn set_current_home(home: Home) {
    HOME.set(Some(home));
}

/// The message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&'static str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}

#[expect(clippy::disallowed_methods, reason = "this is the one place where tasks are made")]
fn spawn_tracked(
    tracker: &TaskTracker,
    home: &Handle,
    stop: CancellationToken,
    task: impl Future<Output = ()> + Send + 'static,
) {
    // The future of an exchange is kilobytes, and each layer around it would copy them again: one copy, to the heap.
    let task = Box::pin(task);
    let guarded = async move {
        let ended = AssertUnwindSafe(run_until(task, stop.cancelled_owned())).catch_unwind().await;
        if let Err(panic) = ended {
            error!(panic = panic_message(panic.as_ref()), "a task panicked");
        }
    };
    tracker.spawn_on(guarded, home);
}

async fn wait_until_ended(tasks: &TaskTracker, kind: &'static str) {
    if timeout(ABORT_MAX, tasks.wait()).await.is_err() {
        error!(left = tasks.len(), kind, "tasks block their threads and cannot be dropped");
    }
}

#[cfg(test)]
mod tests;
