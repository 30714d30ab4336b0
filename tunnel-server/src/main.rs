//! The program `tunnel-server`, which runs the cloud side.

use std::io::Write as _;
use std::process::ExitCode;

use daemon::{Failure, Metrics, Outcome, Plan};
use tunnel_server::app::{BoundServer, PRODUCT, changes};
use tunnel_server::config::{Config, Flags};

/// Small requests allocate much, and the allocator of musl, which the images are built with, is slow.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let flags: Flags = daemon::args::parse("TOMBOLO_SERVER");
    daemon::conclude(run(&flags))
}

fn run(flags: &Flags) -> Result<Outcome, Failure> {
    daemon::enter_sandbox()?;
    let config = Config::load(flags).map_err(Failure::misconfigured)?;
    if flags.dry_run {
        write!(std::io::stdout(), "{}", changes(config)?).map_err(Failure::could_not_go_on)?;
        return Ok(Outcome::Drained);
    }
    daemon::telemetry::install_logs(&config.logs)?;
    let metrics = Metrics::install(&PRODUCT)?;
    let plan = Plan { layout: config.layout, grace: config.drain_grace, low_priority: true };
    Ok(daemon::run(plan, |scope| async move {
        let bound = BoundServer::bind(config, metrics, &scope).await?;
        bound.run(scope).await
    }))
}
