//! The program `node-lb`: reads the configuration and runs the load balancer.

use std::process::ExitCode;

use daemon::{Failure, Metrics, Outcome, Plan};
use node_lb::app::{Bound, PRODUCT};
use node_lb::config::{Config, Flags};

fn main() -> ExitCode {
    let flags: Flags = daemon::args::parse("TOMBOLO_NODE_LB");
    daemon::conclude(run(&flags))
}

fn run(flags: &Flags) -> Result<Outcome, Failure> {
    daemon::enter_sandbox()?;
    let config = Config::load(flags)?;
    daemon::telemetry::install_logs(&config.logs)?;
    let metrics = Metrics::install(&PRODUCT)?;
    let plan = Plan { layout: config.layout, grace: config.drain_grace, low_priority: false };
    Ok(daemon::run(plan, |scope| async move {
        Bound::bind(config, &metrics).await?.run(scope).await;
        Ok(())
    }))
}
