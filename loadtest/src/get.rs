//! `loadtest get`: the cost of a small GET through gateway and tunnel to a real kube-apiserver.

use std::error::Error;

use ::tests::kube::assets::pinned_kubernetes;
use clap::Args;
use serde::Serialize;

use crate::cluster::TestCluster;
use crate::comparison::{plots, rows, tables};
use crate::report::{Heading, Report};
use crate::rounds::{HALF_LOAD, Load, Rounds, compare};

/// The path of the request, on both routes.
const SMALL: &str = "/api/v1/namespaces/default";

/// The flags of `loadtest get`.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GetFlags {
    #[command(flatten)]
    pub rounds: Rounds,

    /// Callers at once, each with an HTTP/2 connection of its own; each sends its next request as soon as it
    /// has its response
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [1, 8, 64, 256, 1000], value_parser = callers())]
    pub callers: Vec<u32>,

    /// Measure an open loop, too, over this many connections, at half of the rate that the tunnel reached
    /// with as many callers; 0 for none
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(0..=4000))]
    pub half_load: u32,
}

/// Parses a number of callers.
pub fn callers() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=4000)
}

/// Runs the scenario, and reports its figures.
///
/// # Errors
/// Every error that prevents a report.
pub async fn run(flags: &GetFlags, seed: u64) -> Result<Report, Box<dyn Error>> {
    let heading = Heading::new("get", seed, flags)?.with_kubernetes(pinned_kubernetes());
    let mut cluster = TestCluster::start().await?;
    let routes = cluster.routes(SMALL).await;

    let mut callers = flags.callers.clone();
    if flags.half_load > 0 && !callers.contains(&flags.half_load) {
        callers.push(flags.half_load);
    }
    let loads: Vec<Load> = callers.into_iter().map(|callers| Load::Small { callers }).collect();
    let saturated = compare(&routes, &loads, &flags.rounds, seed).await?;
    let mut rows = rows(&saturated);
    if let Some(load) = saturated.share_of_load(flags.half_load, HALF_LOAD) {
        rows.extend(crate::comparison::rows(&compare(&routes, &[load], &flags.rounds, seed).await?));
    }
    cluster.stop().await?;
    let report = Report::new(heading, &rows)?.plots(plots("get", &rows));
    Ok(tables(&rows).into_iter().fold(report, |report, (title, table)| report.table(title, table)))
}
