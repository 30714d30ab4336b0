//! `loadtest` compares callers through the tunnel with callers who connect directly, in interleaved rounds on
//! one machine.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::args::{Arguments, Scenario};
use crate::report::{Output, Report};

mod agents;
mod all;
mod args;
mod bulk;
mod caller;
mod caller_pool;
mod canceling_callers;
mod cluster;
mod comparison;
mod fairness;
mod flapping_servers;
mod get;
mod hop;
mod idle;
mod keystrokes;
mod layout;
mod leak;
mod link;
mod machine;
mod node_lb;
mod order;
mod outage;
mod process;
mod progress;
mod repeated_body;
mod report;
mod restart;
mod rig;
mod rounds;
mod route;
mod scrape;
mod servers;
mod slow_readers;
mod spread;
mod svg;
mod table;
mod target;
mod watches;

/// The exit code of a process that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let Arguments { scenario, output } = Arguments::parse();
    // One thread for all callers, so that their cost is the same on every route.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    let give_up = Duration::from_secs(output.give_up_minutes * 60);
    let code = runtime.block_on(async {
        let interrupted = interrupted();
        // Both arms are cancel-safe: a drop of the run ends every process that it has started.
        tokio::select! {
            ran = run(&scenario, &output) => ended(ran),
            () = interrupted => {
                eprintln!("loadtest: interrupted");
                ExitCode::from(INTERRUPTED)
            }
            () = sleep(give_up) => {
                eprintln!("loadtest: not done after {} minutes (--give-up-minutes)", output.give_up_minutes);
                ExitCode::FAILURE
            }
        }
    });
    // A lab blocks a thread of its own, which cannot be interrupted. Its processes end with this process.
    runtime.shutdown_background();
    code
}

async fn run(scenario: &Scenario, output: &Output) -> Result<Vec<Report>, Box<dyn Error>> {
    if cfg!(debug_assertions) && !matches!(scenario, Scenario::Target(_)) {
        eprintln!("loadtest: a debug build; its figures say nothing about speed or memory");
    }
    let seed = output.seed;
    let reports = match scenario {
        Scenario::All(flags) => all::run(flags, seed).await?,
        Scenario::Get(flags) => vec![get::run(flags, seed).await?],
        Scenario::Bulk(flags) => vec![bulk::run(flags, seed).await?],
        Scenario::Watches(flags) => vec![watches::run(flags, seed).await?],
        Scenario::SlowReaders(flags) => vec![slow_readers::run(flags, seed).await?],
        Scenario::Fairness(flags) => vec![fairness::run(flags, seed).await?],
        Scenario::Hop(flags) => vec![hop::run(flags, seed).await?],
        Scenario::NodeLb(flags) => vec![node_lb::run(flags, seed).await?],
        Scenario::Servers(flags) => vec![servers::run(flags, seed).await?],
        Scenario::Idle(flags) => vec![idle::run(flags, seed).await?],
        Scenario::Leak(flags) => vec![leak::run(flags, seed).await?],
        Scenario::Layout(flags) => vec![layout::run(flags, seed).await?],
        Scenario::Outage(flags) => vec![outage::run(flags, seed).await?],
        Scenario::Link(flags) => vec![link::run(flags, seed).await?],
        Scenario::Keystrokes(flags) => vec![keystrokes::run(flags, seed).await?],
        Scenario::Restart(flags) => vec![restart::run(flags, seed).await?],
        Scenario::Target(flags) => {
            target::serve(flags).await?;
            Vec::new()
        }
    };
    output.publish(&reports)?;
    Ok(reports)
}

fn ended(ran: Result<Vec<Report>, Box<dyn Error>>) -> ExitCode {
    match ran {
        Ok(reports) if reports.iter().all(|report| report.misses().is_empty()) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("loadtest: {}", chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Waits for SIGINT or SIGTERM. Both are caught from the call on, not only from the first poll.
fn interrupted() -> impl Future<Output = ()> {
    let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (mut interrupt, mut terminate) =
        (interrupt.expect("signals can be awaited"), terminate.expect("signals can be awaited"));
    async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

/// Formats an error with its causes.
fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
