//! `loadtest bulk`: the throughput of large transfers through gateway and tunnel, down and up.

use std::error::Error;

use ::tests::scratch::Scratch;
use clap::Args;
use serde::Serialize;

use crate::comparison::{plots, rows, tables};
use crate::report::{Heading, Report};
use crate::rig::TunnelRig;
use crate::rounds::{Direction, Load, Rounds, compare};
use crate::route::Http;
use crate::target::{BULK, SMALL, Target};

/// The flags of `loadtest bulk`.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BulkFlags {
    #[command(flatten)]
    pub rounds: Rounds,

    /// Streams at once: of one connection on HTTP/2, each on a connection of its own on HTTP/1.1
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [1, 8], value_parser = clap::value_parser!(u32).range(1..=200))]
    pub streams: Vec<u32>,

    /// Size of the transfer on each stream
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub mib: u32,

    /// The version of HTTP that callers use
    #[arg(long, value_name = "VERSION", value_enum, default_value_t = Http::Two)]
    pub http: Http,
}

/// Runs the scenario, and reports its figures.
///
/// # Errors
/// Every error that prevents a report.
pub async fn run(flags: &BulkFlags, seed: u64) -> Result<Report, Box<dyn Error>> {
    let heading = Heading::new("bulk", seed, flags)?;
    let scratch = Scratch::new("tombolo-loadtest-")?;
    let target = Target::start(scratch.path(), flags.mib).await;
    let mut tunneled = TunnelRig::start(&target.api_server(scratch.path())?, 1, "").await;
    let tunnel = tunneled.route("tunnel", flags.http, SMALL, Some(BULK), target.id()).await;
    let routes = [target.direct(flags.http), tunnel];

    let bytes_each = u64::from(flags.mib) << 20;
    let directions = [Direction::Down, Direction::Up].into_iter();
    let loads: Vec<Load> = directions
        .flat_map(|direction| flags.streams.iter().map(move |&streams| (direction, streams)))
        .map(|(direction, streams)| Load::Bulk { direction, streams, bytes_each })
        .collect();
    let rows = rows(&compare(&routes, &loads, &flags.rounds, seed).await?);
    let report = Report::new(heading, &rows)?.plots(plots("bulk", &rows));
    Ok(tables(&rows).into_iter().fold(report, |report, (title, table)| report.table(title, table)))
}
