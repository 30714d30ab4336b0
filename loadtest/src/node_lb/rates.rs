//! Rates, latency and CPU time of small GETs and bulk transfers, directly and by way of each balancer.
//!
//! All end at one plain TLS server. A real API server spends more on each request than any balancer does, so it
//! would hide the difference.

use std::error::Error;
use std::ops::Div;

use ::tests::balancers::BalancerKind;
use ::tests::pki::Authority;
use ::tests::scratch::Scratch;
use serde::Serialize;

use super::NodeLbFlags;
use super::start::{destination, start_here};
use crate::comparison::cell;
use crate::rounds::{Direction, Figures, Load, Measurements, compare};
use crate::route::{Daemons, Http, Route};
use crate::spread::Spread;
use crate::table::Table;
use crate::target::{BULK, SMALL, Target};

/// Callers of the closed loops.
const CALLERS: [u32; 2] = [1, 64];

/// Highest p50 of node-lb, x the best peer.
const P50_RATIO_MAX: f64 = 1.05;

/// Lowest rate of requests of node-lb, x the best peer.
const RATE_RATIO_MIN: f64 = 0.95;

/// Lowest rate of bytes of node-lb, x the best peer.
const BULK_RATIO_MIN: f64 = 0.9;

/// The place of the direct route in the list of routes. node-lb is the next one, and then come its peers.
const DIRECT: usize = 0;
const PEERS: usize = DIRECT + 2;

/// The figures of one route under one load. The best peer is the one with the best median of that figure.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RateRow {
    load: Load,
    route: String,
    /// Requests a second, or millions of bytes a second.
    rate: Option<Spread>,
    rate_to_direct: Option<Spread>,
    rate_to_best_peer: Option<Spread>,
    p50_ms: Option<Spread>,
    p50_to_best_peer: Option<Spread>,
    p99_ms: Option<Spread>,
    /// CPU time of the balancer: microseconds for each request, or seconds for 10^9 bytes.
    cpu: Option<Spread>,
    cpu_to_best_peer: Option<Spread>,
}

type Figure = fn(&Figures) -> Option<f64>;

/// Measures all routes in turns.
///
/// # Errors
/// A balancer does not start, or a request fails.
pub async fn measure(
    flags: &NodeLbFlags,
    kinds: &[BalancerKind],
    seed: u64,
) -> Result<Vec<RateRow>, Box<dyn Error>> {
    let (scratch, authority) = (Scratch::new("tombolo-loadtest-")?, Authority::new("kubernetes"));
    let target = Target::start_with(&authority, scratch.path(), flags.mib).await;
    let mut routes = vec![target.direct(Http::Two)];
    // Kept until the end, because a dropped balancer is stopped.
    let mut balancers = Vec::new();
    for kind in kinds {
        let balancer = start_here(*kind, &[target.destination.address], authority.certificate_pem()).await?;
        let (server, further_servers) = match balancer.process_ids().as_slice() {
            [first, others @ ..] => (*first, others.to_vec()),
            [] => return Err(format!("{} has ended: {}", kind.name(), balancer.log()).into()),
        };
        let destination = destination(&balancer, authority.certificate_pem());
        routes.push(Route {
            name: kind.name().to_owned(),
            small: vec![destination.uri(SMALL)],
            bulk: Some(destination.uri(BULK)),
            destination,
            daemons: Some(Daemons { server, further_servers, agents: Vec::new() }),
            target: target.id(),
        });
        balancers.push(balancer);
    }
    let bytes_each = u64::from(flags.mib) << 20;
    let small = CALLERS.map(|callers| Load::Small { callers });
    let bulk =
        [Direction::Down, Direction::Up].map(|direction| Load::Bulk { direction, streams: 1, bytes_each });
    let loads: Vec<Load> = small.into_iter().chain(bulk).collect();
    let measurements = compare(&routes, &loads, &flags.rounds, seed).await?;
    let all = (0..loads.len()).flat_map(|load| (0..routes.len()).map(move |route| (load, route)));
    Ok(all.map(|(load, route)| RateRow::new(&measurements, load, route)).collect())
}

/// One table for each load, with its title.
pub fn tables(rows: &[RateRow]) -> Vec<(String, Table)> {
    rows.chunk_by(|one, next| one.load == next.load)
        .map(|rows| (rows[0].load.description(), table(rows)))
        .collect()
}

/// The bounds that do not hold, as sentences. Without a peer there is none.
pub fn missed(rows: &[RateRow]) -> Vec<String> {
    let mut missed = Vec::new();
    for row in rows.iter().filter(|row| row.route == BalancerKind::NodeLb.name()) {
        let (what, least) =
            if row.load.is_bulk() { ("bytes", BULK_RATIO_MIN) } else { ("requests", RATE_RATIO_MIN) };
        let load = row.load.description();
        if let Some(ratio) = row.rate_to_best_peer.filter(|ratio| ratio.median < least) {
            missed.push(format!(
                "{load}: {what} a second {:.3} x the best peer, at least {least} was wanted",
                ratio.median
            ));
        }
        if let Some(ratio) = row.p50_to_best_peer.filter(|ratio| ratio.median > P50_RATIO_MAX) {
            missed.push(format!(
                "{load}: p50 {:.3} x the best peer, at most {P50_RATIO_MAX} was wanted",
                ratio.median
            ));
        }
    }
    missed
}

impl RateRow {
    fn new(measurements: &Measurements, load: usize, route: usize) -> Self {
        let spread = |figure: Figure| {
            Spread::of(measurements.rounds.iter().filter_map(|round| figure(&round[load][route])))
        };
        let beside = |figure: Figure, other: Option<usize>| {
            measurements.compared((load, route), (load, other?), figure, Div::div)
        };
        let rate: Figure = |figures| Some(figures.rate);
        let p50: Figure = |figures| figures.latency.map(|latency| latency.p50_ms);
        let cpu: Figure = |figures| Some(figures.server_cpu);
        let is_balancer = route != DIRECT;
        let best =
            |figure, is_high| if is_balancer { best_peer(measurements, load, figure, is_high) } else { None };
        Self {
            load: measurements.loads[load],
            route: measurements.routes[route].clone(),
            rate: spread(rate),
            rate_to_direct: beside(rate, Some(DIRECT)),
            rate_to_best_peer: beside(rate, best(rate, true)),
            p50_ms: spread(p50),
            p50_to_best_peer: beside(p50, best(p50, false)),
            p99_ms: spread(|figures| figures.latency.map(|latency| latency.p99_ms)),
            cpu: spread(cpu).filter(|_| is_balancer),
            cpu_to_best_peer: beside(cpu, best(cpu, false)),
        }
    }
}

/// The peer whose median of a figure is the best.
fn best_peer(measurements: &Measurements, load: usize, figure: Figure, is_high: bool) -> Option<usize> {
    let median = |route: usize| {
        let spread = Spread::of(measurements.rounds.iter().filter_map(|round| figure(&round[load][route])))?;
        Some((route, if is_high { -spread.median } else { spread.median }))
    };
    let medians = (PEERS..measurements.routes.len()).filter_map(median);
    medians.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(route, _)| route)
}

/// Formats the rows of one load.
fn table(rows: &[RateRow]) -> Table {
    let is_bulk = rows[0].load.is_bulk();
    let mut table = if is_bulk {
        Table::new(&["", "MB/s", "x direct", "x best peer", "CPU s/GB", "x best peer"])
    } else {
        Table::new(&[
            "",
            "per s",
            "x direct",
            "x best peer",
            "CPU us each",
            "x best peer",
            "p50 ms",
            "x best peer",
            "p99 ms",
        ])
    };
    for row in rows {
        let mut cells = vec![
            row.route.clone(),
            cell(row.rate, 0),
            cell(row.rate_to_direct, 2),
            cell(row.rate_to_best_peer, 2),
            cell(row.cpu, if is_bulk { 2 } else { 1 }),
            cell(row.cpu_to_best_peer, 2),
        ];
        if !is_bulk {
            cells.extend([cell(row.p50_ms, 3), cell(row.p50_to_best_peer, 2), cell(row.p99_ms, 3)]);
        }
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::Latency;

    fn figures(rate: f64) -> Figures {
        let ms = 1000.0 / rate;
        let latency = Some(Latency { p50_ms: ms, p90_ms: ms, p99_ms: ms, p999_ms: ms });
        Figures { rate, latency, server_cpu: ms, agent_cpu: 0.0, target_cpu: 0.0, memory: None }
    }

    fn measured(rates: &[f64]) -> Vec<RateRow> {
        let names = ["direct", "node-lb", "one", "other"];
        let round = vec![rates.iter().copied().map(figures).collect()];
        let measurements = Measurements {
            loads: vec![Load::Small { callers: 1 }],
            routes: names[..rates.len()].iter().map(|&name| name.to_owned()).collect(),
            warm_up: Vec::new(),
            rounds: vec![round],
        };
        (0..rates.len()).map(|route| RateRow::new(&measurements, 0, route)).collect()
    }

    #[test]
    fn node_lb_is_held_to_the_best_of_its_peers() {
        let rows = measured(&[200.0, 90.0, 100.0, 50.0]);
        assert_eq!(rows[1].rate_to_best_peer.map(|ratio| ratio.median), Some(0.9));
        assert_eq!(missed(&rows).len(), 2, "{:?}", missed(&rows));
        assert_eq!(missed(&measured(&[200.0, 99.0, 100.0, 50.0])), Vec::<String>::new());
    }

    #[test]
    fn without_a_peer_there_is_no_ratio_and_no_bound() {
        let rows = measured(&[200.0, 90.0]);
        assert_eq!(rows[1].rate_to_best_peer, None);
        assert_eq!(missed(&rows), Vec::<String>::new());
    }
}
