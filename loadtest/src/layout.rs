//! `loadtest layout`: compares runtime layouts of the daemons, on the shortest path.

use std::error::Error;
use std::io;
use std::time::Duration;

use ::tests::scratch::Scratch;
use clap::Args;
use serde::Serialize;
use tokio::time::sleep;

use crate::comparison::{plots, rows, tables};
use crate::get::callers;
use crate::report::{Heading, Report};
use crate::rig::TunnelRig;
use crate::rounds::{Direction, Load, Rounds, compare};
use crate::route::{Http, Route};
use crate::table::{Table, megabytes};
use crate::target::{BULK, SMALL, Target};

/// Time for which new daemons are left idle before their memory is measured.
const SETTLE: Duration = Duration::from_secs(2);

/// The flags of `loadtest layout`.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LayoutFlags {
    #[command(flatten)]
    pub rounds: Rounds,

    /// Callers at once, each over an HTTP/2 connection of its own
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [1, 64], value_parser = callers())]
    pub callers: Vec<u32>,

    /// Layouts to compare, each for server and agent: `runtime.layout` and `runtime.threads`
    #[arg(
        long, value_name = "LAYOUT:THREADS,…", value_delimiter = ',', value_parser = parse_layout,
        default_value = "shared:2,shared:1,perCore:2,perCore:1"
    )]
    pub layouts: Vec<Layout>,

    /// Clusters behind each gateway, each with an agent of its own; callers are distributed over them in turn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub clusters: u32,

    /// Size of the bulk download, 0 for none
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub bulk_mib: u32,
}

/// The `runtime` section of both daemons' configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// `shared` or `perCore`, as in the configuration.
    pub name: String,
    /// Worker threads, or homes (runtime shards).
    pub threads: u32,
}

/// Runs the scenario, and reports its figures.
///
/// # Errors
/// Every error that prevents a report.
pub async fn run(flags: &LayoutFlags, seed: u64) -> Result<Report, Box<dyn Error>> {
    let heading = Heading::new("layout", seed, flags)?;
    let scratch = Scratch::new("tombolo-loadtest-")?;
    let target = Target::start(scratch.path(), flags.bulk_mib).await;
    let api_server = target.api_server(scratch.path())?;

    let mut routes = vec![target.direct(Http::Two)];
    // Kept until the end, because a dropped rig is stopped.
    let mut rigs = Vec::new();
    for layout in &flags.layouts {
        let mut rig = TunnelRig::start(&api_server, flags.clusters, &layout.yaml()).await;
        routes.push(rig.route(&layout.to_string(), Http::Two, SMALL, Some(BULK), target.id()).await);
        rigs.push(rig);
    }
    let memory = idle_memory(&routes).await?;
    let rows = rows(&compare(&routes, &loads(flags), &flags.rounds, seed).await?);
    let report = Report::new(heading, &rows)?.plots(plots("layout", &rows));
    let report = tables(&rows).into_iter().fold(report, |report, (title, table)| report.table(title, table));
    Ok(report.table("resident before the first request, MB", memory))
}

/// The resident memory of each route's daemons with their tunnels up, before the first request.
async fn idle_memory(routes: &[Route]) -> io::Result<Table> {
    sleep(SETTLE).await;
    let mut table = Table::new(&["", "server", "agent"]);
    for route in routes {
        if let Some(daemons) = &route.daemons {
            let (server, agent) = daemons.resident_bytes()?;
            table.row(vec![route.name.clone(), megabytes(server), megabytes(agent)]);
        }
    }
    Ok(table)
}

fn loads(flags: &LayoutFlags) -> Vec<Load> {
    let small = flags.callers.iter().map(|&callers| Load::Small { callers });
    let bytes_each = u64::from(flags.bulk_mib) << 20;
    let bulk = Load::Bulk { direction: Direction::Down, streams: 1, bytes_each };
    small.chain((bytes_each > 0).then_some(bulk)).collect()
}

fn parse_layout(text: &str) -> Result<Layout, String> {
    let usage = || "write shared:N or perCore:N, such as perCore:2".to_owned();
    let (name, threads) = text.split_once(':').ok_or_else(usage)?;
    let threads = threads.parse().ok().filter(|threads| (1..=256).contains(threads)).ok_or_else(usage)?;
    if !["shared", "perCore"].contains(&name) {
        return Err(usage());
    }
    Ok(Layout { name: name.to_owned(), threads })
}

impl Layout {
    fn yaml(&self) -> String {
        format!("runtime: {{ layout: {}, threads: {} }}", self.name, self.threads)
    }
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.name, self.threads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_a_known_name_and_a_number_of_threads() {
        assert_eq!(parse_layout("perCore:2"), Ok(Layout { name: "perCore".to_owned(), threads: 2 }));
        for wrong in ["perCore", "percore:2", "shared:0", "shared:257", "shared:", ":1"] {
            assert!(parse_layout(wrong).is_err(), "{wrong}");
        }
    }
}
