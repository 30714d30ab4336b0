//! The runtimes of the process, and its life from the first signal to the exit code.

use std::{
    future::Future,
    io,
    panic::AssertUnwindSafe,
    pin::pin,
    thread::{self, JoinHandle},
    time::Duration,
};

use futures::{FutureExt as _, Stream, StreamExt as _};
#[cfg(target_os = "linux")]
use rustix::{
    process::{getpriority_process, setpriority_process},
    thread::gettid,
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    Failure, Outcome, Scope,
    scope::{Home, panic_message, set_current_home},
};

/// Longest wait for blocking calls (file reads, name look-ups) at exit, after everything else has ended.
const BLOCKING_MAX: Duration = Duration::from_secs(1);

/// The time for which an idle thread for blocking calls is kept: for good. If the kernel grants no further
/// thread, a runtime with one queues calls for it, and one without panics.
const BLOCKING_KEPT: Duration = Duration::from_secs(365 * 86_400);

/// Most threads for blocking calls of one runtime. Further calls wait. Because threads are kept, this also
/// limits the threads that a burst of calls leaves behind.
const BLOCKING_THREADS_MAX: usize = 64;

/// The niceness that the low-priority thread adds: beside a thread that needs a complete core it gets a tenth
/// of that.
const NICENESS_ADDED: i32 = 10;

/// The highest niceness, the lowest priority, by setpriority(2).
const NICENESS_MAX: i32 = 19;

/// The most threads of a layout.
pub const THREADS_MAX: usize = 256;

/// The layout of runtimes over threads. A *home* is one runtime, a shard of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One multi-thread runtime, which is the only home.
    Shared {
        /// Worker threads, at least 1.
        workers: usize,
    },
    /// One current-thread runtime for each home, on a thread of its own; home 0 is the main thread.
    PerCore {
        /// The number of homes, at least 1.
        homes: usize,
    },
}

/// The settings of a daemon's [`run`].
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The layout of runtimes over threads.
    pub layout: Layout,
    /// The longest time that work may continue after the drain began.
    pub grace: Duration,
    /// True if there is a low-priority runtime beside the homes, for [`Scope::spawn_low_priority`].
    pub low_priority: bool,
}

/// Builds the homes, runs `main` on home 0, and returns the outcome when no task is left.
///
/// The first SIGTERM or SIGINT begins the drain, once nobody holds it ([`Scope::hold_drain`]). A second one aborts. `main`
/// counts as work: it should return soon after [`Scope::draining`] resolves, and is dropped at abort. If it returns by
/// itself the drain begins.
pub fn run<M>(plan: Plan, main: impl FnOnce(Scope) -> M) -> Outcome
where
    M: Future<Output = Result<(), Failure>>,
{
    let homes = match Homes::build(plan.layout, plan.low_priority) {
        Ok(homes) => homes,
        Err(error) => return Outcome::Failed(Failure::could_not_go_on(error)),
    };
    let scope = homes.scope();
    let outcome = homes.first.block_on(async {
        match signals() {
            Ok(signals) => supervise(&scope, plan.grace, signals, main(scope.clone())).await,
            Err(error) => Outcome::Failed(Failure::could_not_go_on(error)),
        }
    });
    homes.stop();
    outcome
}

/// A signal that requests the end of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Terminate,
    Interrupt,
}

/// Drives `main` and the scope to their end, as `signals` request.
pub(crate) async fn supervise(
    scope: &Scope,
    grace: Duration,
    signals: impl Stream<Item = Signal>,
    main: impl Future<Output = Result<(), Failure>>,
) -> Outcome {
    let worked = async {
        let ended = AssertUnwindSafe(scope.track(main)).catch_unwind().await;
        scope.begin_drain();
        ended
    };
    let closed = async {
        scope.draining().await;
        scope.close(grace).await
    };
    let drains = scope.drain_when_stopped();
    let life = async { futures::join!(worked, closed, drains) };
    let mut life = pin!(life);
    let mut signals = pin!(signals.fuse());
    let mut aborted = false;
    let (worked, closed, ()) = loop {
        // Both arms are cancel-safe: `life` is polled by reference, and a signal is taken only when it is there.
        tokio::select! {
            ended = &mut life => break ended,
            Some(signal) = signals.next() => {
                if scope.is_stopping() {
                    warn!(?signal, "a second signal: aborting");
                    aborted = true;
                    scope.abort();
                } else {
                    info!(?signal, grace_seconds = grace.as_secs(), "stopping");
                    scope.stop();
                }
            }
        }
    };
    match (worked, closed) {
        (Err(panic), _) => {
            Outcome::Failed(Failure::could_not_go_on(format!("panicked: {}", panic_message(panic.as_ref()))))
        }
        (Ok(Some(Err(failure))), _) => Outcome::Failed(failure),
        (Ok(_), _) if aborted => Outcome::Aborted,
        (Ok(_), Err(exceeded)) => Outcome::GraceExceeded(exceeded),
        (Ok(_), Ok(())) => Outcome::Drained,
    }
}

/// The runtimes and their threads.
struct Homes {
    first: Runtime,
    further: Vec<HomeThread>,
    /// Not a home: a runtime that gets the processor time which the homes leave.
    low_priority: Option<HomeThread>,
    /// Stops all runtimes but the first.
    stop: CancellationToken,
}

struct HomeThread {
    handle: Handle,
    thread: JoinHandle<()>,
}

impl Homes {
    fn build(layout: Layout, low_priority: bool) -> io::Result<Self> {
        set_current_home(Home::FIRST);
        let stop = CancellationToken::new();
        let low_priority = low_priority.then(|| HomeThread::start_low_priority(stop.clone())).transpose()?;
        match layout {
            Layout::Shared { workers } => {
                let mut builder = Builder::new_multi_thread();
                builder.worker_threads(workers.max(1)).thread_name("home-0");
                builder.on_thread_start(|| set_current_home(Home::FIRST));
                Ok(Self { first: build(&mut builder)?, further: Vec::new(), low_priority, stop })
            }
            Layout::PerCore { homes } => {
                let first = build(&mut Builder::new_current_thread())?;
                let further =
                    (1..homes).map(|n| HomeThread::start(n, stop.clone())).collect::<io::Result<_>>()?;
                Ok(Self { first, further, low_priority, stop })
            }
        }
    }

    fn scope(&self) -> Scope {
        let further = self.further.iter().map(|home| home.handle.clone());
        Scope::over(
            self.first.handle().clone(),
            further,
            self.low_priority.as_ref().map(|low_priority| low_priority.handle.clone()),
        )
    }

    fn stop(self) {
        self.stop.cancel();
        for home in self.further.into_iter().chain(self.low_priority) {
            if home.thread.join().is_err() {
                warn!("the thread of a home panicked");
            }
        }
        self.first.shutdown_timeout(BLOCKING_MAX);
    }
}

impl HomeThread {
    fn start(number: usize, stop: CancellationToken) -> io::Result<Self> {
        Self::start_as(format!("home-{number}"), move || set_current_home(Home::nth(number)), stop)
    }

    fn start_low_priority(stop: CancellationToken) -> io::Result<Self> {
        Self::start_as("low-priority".to_owned(), lower_priority, stop)
    }

    fn start_as(
        name: String,
        prepare: impl FnOnce() + Send + 'static,
        stop: CancellationToken,
    ) -> io::Result<Self> {
        let runtime = build(&mut Builder::new_current_thread())?;
        let handle = runtime.handle().clone();
        let thread = thread::Builder::new().name(name).spawn(move || {
            prepare();
            runtime.block_on(stop.cancelled());
            runtime.shutdown_timeout(BLOCKING_MAX);
        })?;
        Ok(Self { handle, thread })
    }
}

/// Lowers the priority of this thread. If the kernel refuses, it keeps its normal priority.
#[cfg(target_os = "linux")]
fn lower_priority() {
    let thread = Some(gettid());
    let niceness = getpriority_process(thread).map(|niceness| (niceness + NICENESS_ADDED).min(NICENESS_MAX));
    if let Err(error) = niceness.and_then(|niceness| setpriority_process(thread, niceness)) {
        warn!(%error, "the low-priority runtime runs with normal priority");
    }
}

/// Elsewhere a priority belongs to the process, which nothing but tests and `tombolo` runs there.
#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

/// Builds a runtime with one thread for blocking calls, which it keeps.
fn build(builder: &mut Builder) -> io::Result<Runtime> {
    builder.enable_all().thread_keep_alive(BLOCKING_KEPT).max_blocking_threads(BLOCKING_THREADS_MAX);
    let runtime = builder.build()?;
    // This call only creates the thread; nothing waits for it.
    drop(runtime.spawn_blocking(|| ()));
    Ok(runtime)
}

fn signals() -> io::Result<impl Stream<Item = Signal>> {
    let stream = |kind, meaning| -> io::Result<_> {
        let source = signal(kind)?;
        Ok(futures::stream::unfold(source, move |mut source| async move {
            source.recv().await.map(|()| (meaning, source))
        }))
    };
    let terminate = stream(SignalKind::terminate(), Signal::Terminate)?;
    let interrupt = stream(SignalKind::interrupt(), Signal::Interrupt)?;
    Ok(futures::stream::select(Box::pin(terminate), Box::pin(interrupt)))
}

#[cfg(test)]
mod tests;
