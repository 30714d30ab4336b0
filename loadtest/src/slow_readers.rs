//! `loadtest slow-readers`: measures whether callers that never read a large response delay others, or cost
//! the daemons memory.

use std::error::Error;
use std::ops::{Div, Sub};

use ::tests::scratch::Scratch;
use clap::Args;
use serde::Serialize;

use crate::comparison::{cell, rows, tables};
use crate::process::settled_bytes;
use crate::report::{Heading, Report};
use crate::rig::TunnelRig;
use crate::rounds::{Latency, Load, Measurements, Memory, Rounds, compare};
use crate::route::{DIRECT, Http};
use crate::spread::Spread;
use crate::table::Table;
use crate::target::{BULK, SMALL, Target};

/// Most memory of the server for each slow reader: a window of the tunnel (1.25 MB) in complete batches of
/// packets, and the caller's connection. Beyond its budget the server ends the slowest readers, but readers
/// that begin at once fill their windows first.
const SERVER_MIB_EACH_MAX: f64 = 4.0;
/// Most memory of the agent for each slow reader: a stream's window towards the API server (256 KiB), and
/// bytes on their way into the tunnel.
const AGENT_MIB_EACH_MAX: f64 = 2.0;
/// Growth of either daemon that small requests and allocators explain.
const MIB_OTHER_MAX: f64 = 32.0;
/// Largest p99 of the other callers, as a multiple of their p99 without slow readers.
const P99_RATIO_MAX: f64 = 2.0;

/// The flags of `loadtest slow-readers`.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SlowReadersFlags {
    #[command(flatten)]
    pub rounds: Rounds,

    /// Callers that do not read, each over a connection of its own; 0 is always measured, too
    #[serde(rename = "stalled")]
    #[arg(long, alias = "stalled", value_name = "N,N", value_delimiter = ',', default_values_t = [1, 13, 100, 500], value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub slow_readers: Vec<u32>,

    /// Callers that send small requests beside them
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub callers: u32,

    /// Size of the responses that are not read
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub mib: u32,

    /// The version of HTTP that callers use
    #[arg(long, value_name = "VERSION", value_enum, default_value_t = Http::Two)]
    pub http: Http,
}

/// The cost of slow readers on one route.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SlowReaderCost {
    #[serde(rename = "way")]
    route: String,
    #[serde(rename = "stalled")]
    slow_readers: u32,
    /// Milliseconds more than without them in the same round.
    p50_added_ms: Option<Spread>,
    p99_added_ms: Option<Spread>,
    /// p99 as a multiple of p99 without them.
    p99_ratio: Option<Spread>,
    /// Growth of a daemon's memory with this many slow readers in the warm-up round. Later rounds do not
    /// count, because allocators keep freed memory.
    server_grew_mib: Option<f64>,
    agent_grew_mib: Option<f64>,
}

/// Runs the scenario, and reports its figures.
///
/// # Errors
/// Every error that prevents a report.
pub async fn run(flags: &SlowReadersFlags, seed: u64) -> Result<Report, Box<dyn Error>> {
    let heading = Heading::new("slow-readers", seed, flags)?;
    let scratch = Scratch::new("tombolo-loadtest-")?;
    let target = Target::start(scratch.path(), flags.mib).await;
    let at = target.destination.address;
    let agents = format!("advertise: [\"{at}\"]\ntargets: [\"{at}\"]");
    let mut tunneled = TunnelRig::start_with(&target.api_server(scratch.path())?, 1, "", &agents).await;
    let tunnel = tunneled.route("tunnel", flags.http, SMALL, Some(BULK), target.id()).await;
    let direct = target.direct(flags.http);
    let by_address = tunneled.route_by_address(&direct).await;
    let routes = [direct, tunnel, by_address];

    let daemons = tunneled.daemons();
    let at_first = Memory {
        server_bytes: settled_bytes(daemons.server).await?,
        agent_bytes: settled_bytes(daemons.agents[0]).await?,
    };
    // In ascending order, because allocators keep freed memory.
    let mut slow_readers = flags.slow_readers.clone();
    slow_readers.sort_unstable();
    let loads: Vec<Load> = std::iter::once(0)
        .chain(slow_readers)
        .map(|slow_readers| Load::BesideSlowReaders { slow_readers, callers: flags.callers })
        .collect();
    let measurements = compare(&routes, &loads, &flags.rounds, seed).await?;

    let costs = costs(&measurements, at_first);
    let rows = rows(&measurements);
    let report = Report::new(heading, &serde_json::json!({ "costs": costs, "rows": rows }))?;
    let report = tables(&rows).into_iter().fold(report, |report, (title, table)| report.table(title, table));
    let missed: Vec<String> = costs.iter().flat_map(SlowReaderCost::missed).collect();
    Ok(report.table("the cost of slow readers", table(&costs)).missed(missed))
}

fn costs(measurements: &Measurements, at_first: Memory) -> Vec<SlowReaderCost> {
    let mut costs = Vec::new();
    for (load, route) in (1..measurements.loads.len())
        .flat_map(|load| (0..measurements.routes.len()).map(move |route| (load, route)))
    {
        let Load::BesideSlowReaders { slow_readers, .. } = measurements.loads[load] else { continue };
        let beside = |figure: fn(f64, f64) -> f64, of: fn(Latency) -> f64| {
            measurements.compared((load, route), (0, route), |figures| figures.latency.map(of), figure)
        };
        let grew = |figure: fn(Memory) -> u64| {
            let resident = measurements.warm_up[load][route].memory.map(figure)?;
            Some((resident as f64 - figure(at_first) as f64) / f64::from(1 << 20))
        };
        costs.push(SlowReaderCost {
            route: measurements.routes[route].clone(),
            slow_readers,
            p50_added_ms: beside(Sub::sub, |latency| latency.p50_ms),
            p99_added_ms: beside(Sub::sub, |latency| latency.p99_ms),
            p99_ratio: beside(Div::div, |latency| latency.p99_ms),
            server_grew_mib: grew(|memory| memory.server_bytes),
            agent_grew_mib: grew(|memory| memory.agent_bytes),
        });
    }
    costs
}

fn table(costs: &[SlowReaderCost]) -> Table {
    let mut table =
        Table::new(&["", "slow readers", "p50 + ms", "p99 + ms", "p99 ×", "server + MiB", "agent + MiB"]);
    let mib = |grew: Option<f64>| grew.map_or_else(|| "-".to_owned(), |mib| format!("{mib:.1}"));
    for cost in costs {
        table.row(vec![
            cost.route.clone(),
            cost.slow_readers.to_string(),
            cell(cost.p50_added_ms, 2),
            cell(cost.p99_added_ms, 2),
            cell(cost.p99_ratio, 2),
            mib(cost.server_grew_mib),
            mib(cost.agent_grew_mib),
        ]);
    }
    table
}

impl SlowReaderCost {
    fn missed(&self) -> Vec<String> {
        let bounded = [
            ("server", self.server_grew_mib, SERVER_MIB_EACH_MAX),
            ("agent", self.agent_grew_mib, AGENT_MIB_EACH_MAX),
        ];
        let budget = |each: f64| each * f64::from(self.slow_readers) + MIB_OTHER_MAX;
        let over = bounded.into_iter().filter_map(|(name, grew, each)| Some((name, grew?, budget(each))));
        let over = over.filter(|(_, grew, budget)| grew > budget).map(|(name, grew, budget)| {
            format!(
                "with {} slow readers the {name} grew by {grew:.0} MiB, more than {budget:.0}",
                self.slow_readers
            )
        });
        // The direct route has no bound, because it shows the machine's own effect.
        let ratio = self.p99_ratio.filter(|_| self.route != DIRECT);
        let slow = ratio.map(|ratio| ratio.median).filter(|ratio| *ratio > P99_RATIO_MAX);
        let slow = slow.map(|ratio| {
            format!(
                "with {} slow readers the p99 of others, {}, was {ratio:.2} times what it is without them",
                self.slow_readers, self.route
            )
        });
        over.chain(slow).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_readers_may_at_most_double_the_p99_of_others() {
        let cost = |ratio| SlowReaderCost {
            route: "tunnel".to_owned(),
            slow_readers: 1,
            p50_added_ms: None,
            p99_added_ms: None,
            p99_ratio: Spread::of([ratio]),
            server_grew_mib: None,
            agent_grew_mib: None,
        };
        assert!(cost(2.0).missed().is_empty());
        assert_eq!(cost(2.1).missed().len(), 1);
    }

    #[test]
    fn the_memory_bound_grows_with_the_number_of_slow_readers() {
        let cost = |slow_readers, mib| SlowReaderCost {
            route: "tunnel".to_owned(),
            slow_readers,
            p50_added_ms: None,
            p99_added_ms: None,
            p99_ratio: None,
            server_grew_mib: Some(mib),
            agent_grew_mib: None,
        };
        assert!(cost(100, 431.0).missed().is_empty());
        assert_eq!(cost(100, 433.0).missed().len(), 1);
        assert_eq!(cost(1, 431.0).missed().len(), 1);
    }
}
