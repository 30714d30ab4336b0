//! CPU time that the balancers of many workers cost real API servers, while nobody calls.

use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use ::tests::balancers::BalancerKind;
use ::tests::cpu_time::cpu_time_of;
use ::tests::lb_cluster::{LbCluster, MASTERS};
use serde::Serialize;
use tokio::time::sleep;

use super::NodeLbFlags;
use crate::comparison::cell;
use crate::order::Order;
use crate::progress::Progress;
use crate::spread::Spread;
use crate::table::Table;

/// Most CPU time of an API server for node-lb, in milliseconds for each worker and second.
const MS_MAX: f64 = 0.3;

/// The time from the start of the balancers until the measurement.
const SETTLE: Duration = Duration::from_secs(6);

/// The number of the first balancer on the worker, beyond those of other parts.
const BEYOND: u16 = 100;

/// The cost of one balancer, over all rounds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeRow {
    balancer: &'static str,
    /// CPU time of one API server in milliseconds for each worker and second, beyond that without any balancer.
    ms_per_worker_second: Option<Spread>,
    /// CPU time of one API server without any balancer, in milliseconds a second.
    ms_per_second_without: Option<Spread>,
}

/// Measures, in each round and in random order, without a balancer and with those of each kind.
///
/// # Errors
/// A balancer does not start, or an API server has ended.
pub async fn measure(
    flags: &NodeLbFlags,
    kinds: &[BalancerKind],
    cluster: &mut LbCluster,
    seed: u64,
) -> Result<Vec<ProbeRow>, Box<dyn Error>> {
    let (progress, mut order) = (Progress::new(), Order::new(seed));
    let (mut without, mut by_kind) = (Vec::new(), vec![Vec::new(); kinds.len()]);
    for round in 1..=flags.trials {
        let mut costs = vec![0.0; kinds.len() + 1];
        for turn in order.draw(kinds.len() + 1) {
            let kind = kinds.get(turn).copied();
            let name = kind.map_or("without", BalancerKind::name);
            progress.show(&format!("probes, round {round}/{}: {name}", flags.trials));
            costs[turn] = cost(flags, kind, cluster).await?;
        }
        for (place, costs_of_kind) in by_kind.iter_mut().enumerate() {
            costs_of_kind.push((costs[place] - costs[kinds.len()]) / f64::from(flags.workers));
        }
        without.push(costs[kinds.len()]);
    }
    let row = |(kind, costs): (&BalancerKind, &Vec<f64>)| ProbeRow {
        balancer: kind.name(),
        ms_per_worker_second: Spread::of(costs.iter().copied()),
        ms_per_second_without: Spread::of(without.iter().copied()),
    };
    Ok(kinds.iter().zip(&by_kind).map(row).collect())
}

/// CPU time of one API server in milliseconds a second, with so many balancers of one kind or without any.
async fn cost(
    flags: &NodeLbFlags,
    kind: Option<BalancerKind>,
    cluster: &mut LbCluster,
) -> Result<f64, Box<dyn Error>> {
    let mut balancers = Vec::new();
    if let Some(kind) = kind {
        for number in 0..flags.workers {
            balancers.push(cluster.start_balancer(kind, BEYOND + u16::try_from(number)?).await?);
        }
        for balancer in &balancers {
            cluster.until_serves(balancer.address).await;
        }
    }
    sleep(SETTLE).await;
    let ended = || io::Error::other("an API server has ended");
    let ids: Vec<u32> =
        (0..MASTERS).map(|master| cluster.id(master).ok_or_else(ended)).collect::<io::Result<_>>()?;
    let (before, began) = (cpu_time_of(&ids)?, Instant::now());
    sleep(Duration::from_secs_f64(flags.probe_seconds)).await;
    let (used, elapsed) = (cpu_time_of(&ids)? - before, began.elapsed());
    Ok(used.as_secs_f64() * 1000.0 / elapsed.as_secs_f64() / MASTERS as f64)
}

/// The figures as a table, with its title.
pub fn table(rows: &[ProbeRow], flags: &NodeLbFlags) -> (String, Table) {
    let mut table = Table::new(&["", "ms of an API server for each worker and second"]);
    for row in rows {
        table.row(vec![row.balancer.to_owned(), cell(row.ms_per_worker_second, 3)]);
    }
    let without = cell(rows.first().and_then(|row| row.ms_per_second_without), 1);
    (
        format!("probes of {} workers; without them an API server uses {without} ms a second", flags.workers),
        table,
    )
}

/// The bounds that do not hold, as sentences.
pub fn missed(rows: &[ProbeRow]) -> Vec<String> {
    let of_node_lb = rows.iter().find(|row| row.balancer == BalancerKind::NodeLb.name());
    let found = of_node_lb.and_then(|row| row.ms_per_worker_second).filter(|found| found.median > MS_MAX);
    found
        .map(|found| {
            format!(
                "probes: {:.3} ms of an API server for each worker and second, at most {MS_MAX} was wanted",
                found.median
            )
        })
        .into_iter()
        .collect()
}
