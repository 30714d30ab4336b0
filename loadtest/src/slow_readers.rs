//! `loadtest stalled`: whether callers who never read a large answer cost others their time, or the daemons their memory.

use std::error::Error;
use std::ops::{Div, Sub};

use ::tests::rig::ApiServer;
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

/// What the server may hold for each caller who does not read: a window of the tunnel (1.25 MB) in whole batches of packets,
/// and the caller's connection. Past a budget of its own it ends the longest-stalled, but those who begin at once fill first.
const SERVER_MIB_EACH_MAX: f64 = 4.0;
/// What the agent may: a stream's window towards the API server (256 KiB), and what is on its way into the tunnel.
const AGENT_MIB_EACH_MAX: f64 = 2.0;
/// What either may grow by whoever asks: small requests, allocators.
const MIB_BESIDE_MAX: f64 = 32.0;
/// How much longer the slowest hundredth of the others' requests may take than without those who do not read.
const P99_RATIO_MAX: f64 = 2.0;

/// SlowReadersFlags of `loadtest stalled`.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SlowReadersFlags {
    #[command(flatten)]
    pub rounds: Rounds,

    /// How many callers do not read, each over a connection of its own; 0 is always measured beside
    #[serde(rename = "stalled")]
    #[arg(long, alias = "stalled", value_name = "N,N", value_delimiter = ',', default_values_t = [1, 13, 100, 500], value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub slow_readers: Vec<u32>,

    /// How many ask for little beside them
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub callers: u32,

    /// What is not read
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub mib: u32,

    /// What callers speak
    #[arg(long, value_name = "VERSION", value_enum, default_value_t = Http::Two)]
    pub http: Http,
}

/// What those who do not read cost on one way.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SlowReaderCost {
    #[serde(rename = "way")]
    route: String,
    #[serde(rename = "stalled")]
    slow_readers: u32,
    /// Milliseconds on top of the same round without them.
    p50_added_ms: Option<Spread>,
    p99_added_ms: Option<Spread>,
    /// How many times what it is without them.
    p99_ratio: Option<Spread>,
    /// What a daemon held above what it held before anybody asked, when so many stalled for the first time: allocators
    /// keep what more of them have needed before.
    server_grew_mib: Option<f64>,
    agent_grew_mib: Option<f64>,
}

/// Measures.
///
/// # Errors
/// Any that stands in the way of a report.
pub async fn run(flags: &SlowReadersFlags, seed: u64) -> Result<Report, Box<dyn Error>> {
    let heading = Heading::new("slow-readers", seed, flags)?;
    let scratch = Scratch::new("tombolo-loadtest-")?;
    let target = Target::start(scratch.path(), flags.mib).await;
    let kubeconfig = scratch.path().join("target.kubeconfig");
    target.write_kubeconfig(&kubeconfig)?;
    let at = target.destination.address;
    let agents = format!("advertise: [\"{at}\"]\ntargets: [\"{at}\"]");
    let mut tunneled = TunnelRig::start_with(&ApiServer::Kubeconfig(kubeconfig), 1, "", &agents).await;
    let tunnel = tunneled.route("tunnel", flags.http, SMALL, Some(BULK), target.id()).await;
    let direct = target.direct(flags.http);
    let by_address = tunneled.way_by_address(&direct).await;
    let routes = [direct, tunnel, by_address];

    let daemons = tunneled.daemons();
    let at_first = Memory {
        server_bytes: settled_bytes(daemons.server).await?,
        agent_bytes: settled_bytes(daemons.agents[0]).await?,
    };
    // Fewer before more, because of what allocators keep.
    let mut slow_readers = flags.slow_readers.clone();
    slow_readers.sort_unstable();
    let loads: Vec<Load> = std::iter::once(0)
        .chain(slow_readers)
        .map(|slow_readers| Load::BesideSlowReaders { slow_readers, callers: flags.callers })
        .collect();
    let ledger = compare(&routes, &loads, &flags.rounds, seed).await?;

    let costs = costs(&ledger, at_first);
    let rows = rows(&ledger);
    let report = Report::new(heading, &serde_json::json!({ "costs": costs, "rows": rows }))?;
    let report = tables(&rows).into_iter().fold(report, |report, (title, table)| report.table(title, table));
    let missed: Vec<String> = costs.iter().flat_map(SlowReaderCost::missed).collect();
    Ok(report.table("what those who do not read cost", table(&costs)).missed(missed))
}

fn costs(ledger: &Measurements, at_first: Memory) -> Vec<SlowReaderCost> {
    let mut costs = Vec::new();
    for (load, route) in
        (1..ledger.loads.len()).flat_map(|load| (0..ledger.routes.len()).map(move |route| (load, route)))
    {
        let Load::BesideSlowReaders { slow_readers, .. } = ledger.loads[load] else { continue };
        let beside = |figure: fn(f64, f64) -> f64, of: fn(Latency) -> f64| {
            Spread::of(ledger.rounds.iter().filter_map(|round| {
                Some(figure(of(round[load][route].latency?), of(round[0][route].latency?)))
            }))
        };
        let grew = |figure: fn(Memory) -> u64| {
            let held = ledger.warm_up[load][route].memory.map(figure)?;
            Some((held as f64 - figure(at_first) as f64) / f64::from(1 << 20))
        };
        costs.push(SlowReaderCost {
            route: ledger.routes[route].clone(),
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
        let judged = [
            ("server", self.server_grew_mib, SERVER_MIB_EACH_MAX),
            ("agent", self.agent_grew_mib, AGENT_MIB_EACH_MAX),
        ];
        let budget = |each: f64| each * f64::from(self.slow_readers) + MIB_BESIDE_MAX;
        let over = judged.into_iter().filter_map(|(name, grew, each)| Some((name, grew?, budget(each))));
        let over = over.filter(|(_, grew, budget)| grew > budget).map(|(name, grew, budget)| {
            format!(
                "with {} slow readers the {name} grew by {grew:.0} MiB, more than {budget:.0}",
                self.slow_readers
            )
        });
        // What the direct way shows is the machine's.
        let judged = self.p99_ratio.filter(|_| self.route != DIRECT);
        let slow = judged.map(|ratio| ratio.median).filter(|ratio| *ratio > P99_RATIO_MAX);
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
    fn who_does_not_read_may_cost_others_as_much_again_and_no_more() {
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
    fn memory_is_judged_by_how_many_do_not_read() {
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
