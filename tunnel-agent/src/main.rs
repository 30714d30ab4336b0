//! The program `tunnel-agent`: reads the configuration and runs the agent.

use std::process::ExitCode;

use daemon::{Failure, Metrics, Outcome, Plan};
use tunnel_agent::app::{Bound, PRODUCT};
use tunnel_agent::config::{Config, Flags};

/// Small requests allocate a lot, and the allocator of musl, with which the images are built, is slow.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let flags: Flags = daemon::args::parse("TOMBOLO_AGENT");
    daemon::conclude(run(&flags))
}

fn run(flags: &Flags) -> Result<Outcome, Failure> {
    daemon::enter_sandbox()?;
    let config = Config::load(flags).map_err(Failure::misconfigured)?;
    daemon::telemetry::install_logs(&config.logs)?;
    let metrics = Metrics::install(&PRODUCT)?;
    let plan = Plan { layout: config.layout, grace: config.drain_grace, low_priority: false };
    Ok(daemon::run(plan, |scope| async move {
        let bound = Bound::bind(config, metrics, &scope)?;
        bound.run(scope).await
    }))
}
