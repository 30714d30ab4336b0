//! Measures how soon the first byte flows after an outage: `cargo run --release -p transport --example outage
//! -- --help`.
//!
//! Many tunnels at once, each over a link of its own that goes dark and comes back, beside plain quinn with a
//! keep-alive of a second over links of the same kind.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a measurement is a program of its own: it owns its tasks, and prints what it found"
)]

use std::process::ExitCode;
use std::time::Duration;

use tokio::time::sleep;

use crate::arguments::Arguments;
use crate::load::Load;
use crate::table::Table;

mod arguments;
#[path = "../../tests/outage/authority.rs"]
mod authority;
#[expect(dead_code, reason = "the tests also narrow their links")]
#[path = "../../tests/outage/link.rs"]
mod link;
mod load;
mod pair;
mod table;
mod watch;

/// From the last tunnel's first byte to the first link's end.
const WARM_UP: Duration = Duration::from_secs(5);

/// A first byte that comes later than this after a link's return counts as never.
const GIVE_UP: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let Some(arguments) = Arguments::parse() else {
        eprintln!("{}", arguments::HELP);
        return ExitCode::from(2);
    };
    let mut table = Table::default();
    for seconds in &arguments.outages {
        for round in 0..arguments.rounds {
            // A runtime of its own, whose end is the end of everything in it.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(trial(Duration::from_secs(*seconds), &arguments, round, &mut table));
        }
    }
    println!("{}", table.render());
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load of the machine at the end: {}", load.trim());
    ExitCode::SUCCESS
}

async fn trial(outage: Duration, arguments: &Arguments, round: usize, table: &mut Table) {
    let loads = Load::all(arguments, round).await;
    sleep(WARM_UP).await;
    for (number, load) in loads.iter().enumerate() {
        load.begin_outage(outage, arguments, number);
    }
    sleep(load::SECONDS + outage + GIVE_UP).await;
    for load in &loads {
        table.enter(outage, load);
    }
}
