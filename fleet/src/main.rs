//! The program `fleet-controller`: reads the flags and runs the controller.

use std::process::ExitCode;

use daemon::{Failure, Layout, Metrics, Outcome, Plan};
use fleet::app::{Bound, PRODUCT};
use fleet::config::{Config, Flags};

fn main() -> ExitCode {
    let flags: Flags = daemon::args::parse("TOMBOLO_FLEET");
    daemon::conclude(run(flags))
}

fn run(flags: Flags) -> Result<Outcome, Failure> {
    let config = Config::of(flags).map_err(Failure::misconfigured)?;
    if config.kubeconfig.is_none() {
        // A kubeconfig may name a program that gets credentials. In a cluster nothing is started.
        daemon::enter_sandbox()?;
    }
    daemon::telemetry::install_logs(&config.logs)?;
    let metrics = Metrics::install(&PRODUCT)?;
    let plan = Plan { layout: Layout::PerCore { homes: 1 }, grace: config.drain_grace, low_priority: false };
    Ok(daemon::run(plan, |scope| async move {
        Bound::bind(config, &metrics).await?.run(scope).await;
        Ok(())
    }))
}
