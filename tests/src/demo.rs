//! The demo: it is set up, shown, kept running until Ctrl-C, and removed.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{interval, timeout};

mod by_address;
mod denial;
mod forward;
mod installer;
pub mod isolation;
mod link;
mod live;
mod network;
mod outage;
mod probes;
mod progress;
mod setup;
mod several;
mod several_addresses;
mod shell_pod;
mod tenant;
mod tour;
mod worker;

use crate::binaries::BinaryError;
use crate::host_cluster::HostUnavailable;
use crate::kube::ClusterError;
use crate::kube::account::AgentAccountError;
use crate::kube::assets::MissingAssets;
use crate::lab::{self, Lab, SiteError};
use crate::lb_cluster::booted_worker::WorkerUnavailable;
use crate::network::NetworkError;
use crate::process::ProcessError;
use crate::scratch::Scratch;
use isolation::Isolation;
use progress::Progress;
use setup::DemoSetup;

/// The limit for everything up to the last command that is shown.
const SHOWN_MAX: Duration = Duration::from_secs(600);
/// The pause between two checks that everything still runs, while the demo stays up.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The interval at which each agent gets a fresh token, which is valid for an hour.
const ROTATE_EVERY: Duration = Duration::from_secs(1200);
/// The exit code of a program that Ctrl-C ended, as shells report it.
const INTERRUPTED: u8 = 130;

/// The command line's choices for the demo.
#[derive(Debug)]
pub struct DemoOptions {
    /// Stop as soon as everything has been shown.
    pub once: bool,
    /// The port of 127.0.0.1 for the gateway; the usual one or any other, if `None`.
    pub gateway_port: Option<u16>,
    /// The number of servers; several share their records in etcd.
    pub servers: u8,
    /// The folder with the programs of a release; those that cargo has built, if `None`.
    pub bin_dir: Option<PathBuf>,
}

/// An error that ends the demo.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The binaries of this workspace are missing.
    #[error(transparent)]
    Binaries(#[from] BinaryError),
    /// A folder was named that lacks a program.
    #[error("there is no program {}; give --bin-dir a folder with tunnel-server, tunnel-agent and tombolo", .0.display())]
    NoProgram(PathBuf),
    /// The binaries of Kubernetes are missing.
    #[error(transparent)]
    Assets(#[from] MissingAssets),
    /// A cluster did not start or stop.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// An agent's ServiceAccount could not be created.
    #[error(transparent)]
    Account(#[from] AgentAccountError),
    /// There can be no host cluster here.
    #[error(transparent)]
    Host(#[from] HostUnavailable),
    /// A site cannot be joined to the cloud.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// There can be no worker here.
    #[error(transparent)]
    Worker(#[from] WorkerUnavailable),
    /// A network namespace could not be set up.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A program could not be run, or does not end.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A file or socket of the demo itself.
    #[error("could not make the demo's own files and sockets")]
    Files(#[source] io::Error),
    /// The gateway's port cannot be bound.
    #[error("port {port} of 127.0.0.1 cannot be used; name another with --gateway-port")]
    Port {
        /// The port that was tried.
        port: u16,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The server did not become ready.
    #[error("the server did not become ready")]
    NotReady,
    /// The server's probes did not answer.
    #[error("the server's probes did not answer")]
    Probes(#[source] io::Error),
    /// A command failed, or did not do what it should.
    #[error("`{command}` failed: {stderr}")]
    Refused {
        /// The command line that was run.
        command: String,
        /// The output of the command to stderr.
        stderr: String,
    },
    /// Something did not happen as the demo claims.
    #[error("{claim}, but there was: {found}")]
    NotShown {
        /// The claim, a sentence with "should".
        claim: String,
        /// The outputs that were found instead.
        found: String,
    },
    /// A daemon ended while it should run, or badly when it should end.
    #[error("{name} ended with {status}")]
    Ended {
        /// The name of the daemon.
        name: String,
        /// The status with which it ended.
        status: ExitStatus,
    },
    /// The demo took longer than its limit.
    #[error("not everything was shown within {SHOWN_MAX:?}")]
    Deadline,
}

/// Runs the demo and returns its exit code: 0 if all succeeded, 130 if interrupted before everything was
/// shown, otherwise 1.
pub async fn run(order: &DemoOptions, isolation: &Isolation) -> ExitCode {
    let Some((scratch, progress, mut signals)) = begin() else { return ExitCode::FAILURE };
    progress
        .plain(&format!("DEMO={}  # all files of this demo; removed at its end", scratch.path().display()));
    progress.say(&isolation.explain());
    let mut setup = DemoSetup::new(scratch);
    let played = play(order, isolation, &mut setup, &progress, &mut signals).await;
    if let DemoResult::Failed(error) = &played {
        progress.plain(&format!("\nFAILED: {}\n{}", chain(error), setup.tails()));
    }
    conclude(setup, &progress, &mut signals, &played, !order.once).await
}

/// The folder of a demo, its output and its signals. `None` if there is no folder or no signal, which it then has said.
fn begin() -> Option<(Scratch, Progress, Signals)> {
    let scratch = Scratch::new("tombolo-demo-")
        .map_err(|error| println!("demo: no folder for its files can be made: {error}"))
        .ok()?;
    let progress = Progress::new(scratch.path());
    let signals =
        Signals::listen().map_err(|error| println!("demo: signals cannot be received: {error}")).ok()?;
    Some((scratch, progress, signals))
}

/// Runs the demo of a worker, and returns its exit code as [`run`] does.
///
/// # Panics
/// If a part of the cluster does not start.
pub async fn run_worker(once: bool) -> ExitCode {
    show(once, worker::perform, |worker, progress| {
        if let Err(error) = worker::print_next_steps(worker, progress) {
            progress.plain(&format!("the kubeconfig cannot be written to the worker: {error}"));
        }
    })
    .await
}

/// Runs the demo of tenants, and returns its exit code as [`run`] does. It has a runtime of its own.
///
/// # Panics
/// If a part of a cluster does not start.
pub fn run_tenant(once: bool) -> ExitCode {
    let shown = lab::run(async |lab: &Lab| {
        let next_steps = |stage: &_, progress: &_| tenant::print_next_steps(stage, lab, progress);
        show(once, async |progress: &_| tenant::perform(progress, lab).await, next_steps).await
    });
    shown.unwrap_or_else(|error| {
        println!("demo: {error}");
        ExitCode::FAILURE
    })
}

/// Shows a demo that keeps its parts until Ctrl-C, or ends at once.
async fn show<T>(
    once: bool,
    perform: impl AsyncFnOnce(&Progress) -> Result<T, DemoError>,
    next_steps: impl FnOnce(&T, &Progress),
) -> ExitCode {
    let Some((_scratch, progress, mut signals)) = begin() else { return ExitCode::FAILURE };
    let shown = tokio::select! {
        shown = timeout(SHOWN_MAX, perform(&progress)) => shown.unwrap_or(Err(DemoError::Deadline)),
        () = signals.next() => return ExitCode::from(INTERRUPTED),
    };
    match shown {
        Ok(parts) => {
            if !once {
                next_steps(&parts, &progress);
                signals.next().await;
            }
            progress.say("stopping");
            drop(parts);
            progress.say("stopped everything; nothing is left");
            ExitCode::SUCCESS
        }
        Err(error) => {
            progress.plain(&format!("\nFAILED: {}", chain(&error)));
            ExitCode::FAILURE
        }
    }
}

enum DemoResult {
    Through,
    Interrupted,
    Failed(DemoError),
}

async fn play(
    order: &DemoOptions,
    isolation: &Isolation,
    setup: &mut DemoSetup,
    progress: &Progress,
    signals: &mut Signals,
) -> DemoResult {
    // Both are cancel-safe in that what is cut short kills what it had started; the stage keeps what is
    // complete.
    let perform = async {
        match order.servers {
            1 => setup.perform(isolation, order, progress).await,
            _ => several::perform(setup, order, progress).await,
        }
    };
    let shown = tokio::select! {
        shown = timeout(SHOWN_MAX, perform) => shown,
        () = signals.next() => return DemoResult::Interrupted,
    };
    match shown {
        Ok(Ok(())) if order.once => DemoResult::Through,
        Ok(Ok(())) => {
            match order.servers {
                1 => setup.print_next_steps(isolation, progress),
                _ => several::print_next_steps(setup, progress),
            }
            // As above.
            tokio::select! {
                Err(error) = stay_up(setup) => DemoResult::Failed(error),
                () = signals.next() => DemoResult::Through,
            }
        }
        Ok(Err(error)) => DemoResult::Failed(error),
        Err(_) => DemoResult::Failed(DemoError::Deadline),
    }
}

async fn stay_up(setup: &mut DemoSetup) -> Result<(), DemoError> {
    let mut look = interval(LOOK_EVERY);
    let mut rotated = Instant::now();
    loop {
        look.tick().await;
        setup.runs()?;
        if rotated.elapsed() >= ROTATE_EVERY {
            setup.rotate_tokens().await?;
            rotated = Instant::now();
        }
    }
}

async fn conclude(
    setup: DemoSetup,
    progress: &Progress,
    signals: &mut Signals,
    played: &DemoResult,
    others_watch: bool,
) -> ExitCode {
    progress.say("stopping; Ctrl-C again to kill everything at once");
    // What is dropped here is killed.
    let stopped = tokio::select! {
        stopped = setup.stop(progress, others_watch) => stopped,
        () = signals.next() => {
            progress.say("killed everything; nothing is left");
            return ExitCode::from(INTERRUPTED);
        }
    };
    // After a failure the rest often ends badly too, and says nothing new.
    if let (Err(error), DemoResult::Through | DemoResult::Interrupted) = (&stopped, played) {
        progress.plain(&format!("FAILED: {}", chain(error)));
    }
    progress.say("stopped everything; nothing is left");
    match (played, stopped) {
        (DemoResult::Through, Ok(())) => ExitCode::SUCCESS,
        (DemoResult::Interrupted, Ok(())) => ExitCode::from(INTERRUPTED),
        (DemoResult::Failed(_), _) | (_, Err(_)) => ExitCode::FAILURE,
    }
}

/// The signals of a person or of a closing terminal. Each is one call of [`Self::next`].
struct Signals([Signal; 3]);

impl Signals {
    fn listen() -> io::Result<Self> {
        let [interrupt, terminate, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        Ok(Self([interrupt?, terminate?, hangup?]))
    }

    async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        // All are cancel-safe: a signal that was not taken is there the next time.
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

fn chain(error: &DemoError) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn is_on_path(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| Path::new(&folder).join(program).is_file())
    })
}
