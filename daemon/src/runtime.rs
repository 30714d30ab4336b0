//! The runtimes of the process, and the way from the first signal to the exit code.

use std::{
    future::Future,
    io,
    panic::AssertUnwindSafe,
    pin::pin,
    thread::{self, JoinHandle},
    time::Duration,
};

use futures::{FutureExt as _, Stream, StreamExt as _};
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
    scope::{Home, panic_message, settle},
};

/// How long blocking calls (file reads, name look-ups) may hold the exit up after everything else has ended.
const BLOCKING_MAX: Duration = Duration::from_secs(1);

/// How long a thread for blocking calls is kept that has nothing to do: for good. Where the kernel grants no further thread, a
/// runtime that has one lets calls wait for it, and panics if it has none.
const BLOCKING_KEPT: Duration = Duration::from_secs(365 * 86_400);

/// By how many steps of niceness what is set aside steps back: beside a thread that wants a whole core it has a tenth of that.
const STEPS_ASIDE: i32 = 10;

/// The last of all, by setpriority(2).
const NICENESS_MAX: i32 = 19;

/// The most threads a layout may ask for.
pub const THREADS_MAX: usize = 256;

/// How runtimes are laid over threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One multi-thread runtime, which is the only home.
    Shared {
        /// Worker threads, at least 1.
        workers: usize,
    },
    /// Current-thread runtimes, each a home on a thread of its own; home 0 is the main thread's.
    PerCore {
        /// How many, at least 1.
        homes: usize,
    },
}

/// What [`run`] needs to know.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Runtimes and threads.
    pub layout: Layout,
    /// How long work may go on after the drain began.
    pub grace: Duration,
    /// Whether there is a thread beside the homes for [`Scope::spawn_aside`].
    pub aside: bool,
}

/// Builds the homes, runs `main` on home 0 and gives back how it ended, when no task is left.
///
/// The first SIGTERM or SIGINT begins the drain, a second aborts. `main` counts as work: it is expected to return
/// soon after [`Scope::draining`] resolves, and is dropped at abort. If it returns by itself the drain begins.
pub fn run<M>(plan: Plan, main: impl FnOnce(Scope) -> M) -> Outcome
where
    M: Future<Output = Result<(), Failure>>,
{
    let homes = match Homes::build(plan.layout, plan.aside) {
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

/// A request of the outside to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Terminate,
    Interrupt,
}

/// Drives `main` and the scope to their end under `signals`.
pub(crate) async fn supervise(
    scope: &Scope,
    grace: Duration,
    signals: impl Stream<Item = Signal>,
    main: impl Future<Output = Result<(), Failure>>,
) -> Outcome {
    let worked = async {
        let ended = AssertUnwindSafe(scope.adopt(main)).catch_unwind().await;
        scope.begin_drain();
        ended
    };
    let closed = async {
        scope.draining().await;
        scope.close(grace).await
    };
    let mut life = pin!(futures::future::join(worked, closed));
    let mut signals = pin!(signals.fuse());
    let mut aborted = false;
    let (worked, closed) = loop {
        // Both arms are cancel-safe: `life` is polled by reference, and a signal is taken only when it is there.
        tokio::select! {
            ended = &mut life => break ended,
            Some(signal) = signals.next() => {
                if scope.is_draining() {
                    warn!(?signal, "a second signal: aborting");
                    aborted = true;
                    scope.abort();
                } else {
                    info!(?signal, grace_seconds = grace.as_secs(), "draining");
                    scope.begin_drain();
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
    further: Vec<Further>,
    /// No home: it gets what the homes leave.
    aside: Option<Further>,
    /// Ends all but the first.
    stop: CancellationToken,
}

struct Further {
    handle: Handle,
    thread: JoinHandle<()>,
}

impl Homes {
    fn build(layout: Layout, aside: bool) -> io::Result<Self> {
        settle(Home::FIRST);
        let stop = CancellationToken::new();
        let aside = aside.then(|| Further::start_aside(stop.clone())).transpose()?;
        match layout {
            Layout::Shared { workers } => {
                let mut builder = Builder::new_multi_thread();
                builder.worker_threads(workers.max(1)).thread_name("home-0");
                builder.on_thread_start(|| settle(Home::FIRST));
                Ok(Self { first: build(&mut builder)?, further: Vec::new(), aside, stop })
            }
            Layout::PerCore { homes } => {
                let first = build(&mut Builder::new_current_thread())?;
                let further =
                    (1..homes).map(|n| Further::start(n, stop.clone())).collect::<io::Result<_>>()?;
                Ok(Self { first, further, aside, stop })
            }
        }
    }

    fn scope(&self) -> Scope {
        let further = self.further.iter().map(|home| home.handle.clone());
        Scope::over(
            self.first.handle().clone(),
            further,
            self.aside.as_ref().map(|aside| aside.handle.clone()),
        )
    }

    fn stop(self) {
        self.stop.cancel();
        for home in self.further.into_iter().chain(self.aside) {
            if home.thread.join().is_err() {
                warn!("the thread of a home panicked");
            }
        }
        self.first.shutdown_timeout(BLOCKING_MAX);
    }
}

impl Further {
    fn start(number: usize, stop: CancellationToken) -> io::Result<Self> {
        Self::start_as(format!("home-{number}"), move || settle(Home::nth(number)), stop)
    }

    fn start_aside(stop: CancellationToken) -> io::Result<Self> {
        Self::start_as("aside".to_owned(), step_back, stop)
    }

    fn start_as(
        name: String,
        settle: impl FnOnce() + Send + 'static,
        stop: CancellationToken,
    ) -> io::Result<Self> {
        let runtime = build(&mut Builder::new_current_thread())?;
        let handle = runtime.handle().clone();
        let thread = thread::Builder::new().name(name).spawn(move || {
            settle();
            runtime.block_on(stop.cancelled());
            runtime.shutdown_timeout(BLOCKING_MAX);
        })?;
        Ok(Self { handle, thread })
    }
}

/// Leaves the processor to others where they want it. A kernel that does not let a thread step back lets it be as good as they.
fn step_back() {
    let thread = Some(gettid());
    let niceness = getpriority_process(thread).map(|niceness| (niceness + STEPS_ASIDE).min(NICENESS_MAX));
    if let Err(error) = niceness.and_then(|niceness| setpriority_process(thread, niceness)) {
        warn!(%error, "what is set aside has the priority of everything else");
    }
}

/// A runtime with a thread for blocking calls, which it keeps.
fn build(builder: &mut Builder) -> io::Result<Runtime> {
    let runtime = builder.enable_all().thread_keep_alive(BLOCKING_KEPT).build()?;
    // Nobody waits for this call: it makes the thread.
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
