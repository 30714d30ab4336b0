//! Paced callers of every balancer, while one of three real API servers is killed, frozen, or loses its cable.
//!
//! All balancers run at the same time, so that each sees the same fault beside the same other load.

use std::error::Error;
use std::time::{Duration, Instant};

use ::tests::balancers::{Balancer, BalancerKind};
use ::tests::lb_cluster::LbCluster;
use ::tests::lb_cluster::callers::{Callers, PACE, Report as CallerReport};
use clap::ValueEnum;
use futures::future::join_all;
use rustix::process::Signal;
use serde::Serialize;
use tokio::time::sleep;

use super::NodeLbFlags;
use crate::comparison::cell;
use crate::progress::Progress;
use crate::spread::Spread;
use crate::svg::{Labels, Line, Plot, lines};
use crate::table::Table;

/// Callers that each balancer has at once.
const CALLERS: usize = 9;

/// The time for which callers run before a fault and after it.
const AROUND: Duration = Duration::from_secs(3);

/// The API server that has the faults.
const VICTIM: usize = 1;

/// Most requests of node-lb's callers that may fail in a fault: one of each.
const FAILED_MAX: f64 = CALLERS as f64;

/// The time over which answers are counted for a point of a plot, in seconds.
const POINT_SECONDS: f64 = 0.25;

/// A fault of one API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum Fault {
    /// SIGKILL: its kernel resets all connections
    Killed,
    /// SIGSTOP: its kernel accepts connections, and nobody answers
    Frozen,
    /// The cable of its machine is pulled: no answer of any kind
    Cable,
}

/// The figures of one balancer in one fault, over all trials.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultRow {
    fault: Fault,
    balancer: &'static str,
    answered: Option<Spread>,
    failed: Option<Spread>,
    /// The longest time of a caller without an answer.
    longest_gap_seconds: Option<Spread>,
    /// The reasons of requests that failed in the first trial.
    reasons: Vec<String>,
}

/// All figures, and a plot for each fault.
#[derive(Debug)]
pub struct MeasuredFaults {
    /// The figures by fault and balancer.
    pub rows: Vec<FaultRow>,
    /// Answers over time of the first trial of each fault.
    pub plots: Vec<Plot>,
}

/// The reports of all callers in one trial, in the order of the balancers.
#[derive(Debug)]
struct Trial {
    at: Instant,
    reports: Vec<CallerReport>,
}

impl Fault {
    /// Every fault, in the order of the report.
    pub const ALL: [Self; 3] = [Self::Killed, Self::Frozen, Self::Cable];

    fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Frozen => "frozen",
            Self::Cable => "cable",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Killed => "one of three API servers is killed",
            Self::Frozen => "one of three API servers is frozen (SIGSTOP)",
            Self::Cable => "the cable of one of three API servers is pulled",
        }
    }

    /// The longest gap of node-lb's callers that is wanted.
    fn gap_max(self) -> f64 {
        match self {
            // Half a second without an answer, and the time to the next request.
            Self::Killed => 0.5 + PACE.as_secs_f64(),
            Self::Frozen | Self::Cable => 5.0,
        }
    }

    async fn begin(self, cluster: &mut LbCluster) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Killed => cluster.kill(VICTIM),
            Self::Frozen => cluster.signal(VICTIM, Signal::STOP),
            Self::Cable => drop(cluster.masters[VICTIM].ip("link set eth0 down").await?),
        }
        Ok(())
    }

    async fn end(self, cluster: &mut LbCluster) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Killed => cluster.start_again(VICTIM).await,
            Self::Frozen => cluster.signal(VICTIM, Signal::CONT),
            Self::Cable => drop(cluster.masters[VICTIM].ip("link set eth0 up").await?),
        }
        Ok(())
    }
}

/// Runs every fault, each so many times.
///
/// # Errors
/// A balancer does not start, or a fault cannot be made.
pub async fn measure(
    flags: &NodeLbFlags,
    kinds: &[BalancerKind],
    cluster: &mut LbCluster,
) -> Result<MeasuredFaults, Box<dyn Error>> {
    let (mut balancers, progress) = (Vec::new(), Progress::new());
    for (number, kind) in (0..).zip(kinds) {
        let balancer = cluster.start_balancer(*kind, number).await?;
        cluster.until_serves(balancer.address).await;
        balancers.push(balancer);
    }
    let mut measured = MeasuredFaults { rows: Vec::new(), plots: Vec::new() };
    for &fault in &flags.faults {
        let mut trials = Vec::new();
        for number in 1..=flags.trials {
            cluster.until_all_serve().await;
            progress.show(&format!("{}, trial {number}/{}", fault.name(), flags.trials));
            let duration = Duration::from_secs_f64(flags.fault_seconds);
            trials.push(run(fault, duration, cluster, &balancers).await?);
        }
        measured.plots.extend(trials.first().map(|trial| plot(fault, kinds, trial, flags.fault_seconds)));
        measured.rows.extend((0..kinds.len()).map(|place| FaultRow::new(fault, kinds, place, &trials)));
    }
    cluster.until_all_serve().await;
    Ok(measured)
}

async fn run(
    fault: Fault,
    duration: Duration,
    cluster: &mut LbCluster,
    balancers: &[Balancer],
) -> Result<Trial, Box<dyn Error>> {
    let mut callers = Vec::new();
    for balancer in balancers {
        let (ca_pem, administrator) = (cluster.edge.ca_pem(), cluster.administrator());
        callers.push(
            Callers::start_at(&cluster.on_worker, balancer.address, CALLERS, ca_pem, &administrator).await,
        );
    }
    sleep(AROUND).await;
    let at = Instant::now();
    fault.begin(cluster).await?;
    sleep(duration).await;
    fault.end(cluster).await?;
    sleep(AROUND).await;
    Ok(Trial { at, reports: join_all(callers.into_iter().map(Callers::stop)).await })
}

/// One table for each fault, with its title.
pub fn tables(rows: &[FaultRow]) -> Vec<(String, Table)> {
    let of_fault = |rows: &[FaultRow]| {
        let mut table = Table::new(&["", "longest gap s", "requests failed", "answered"]);
        for row in rows {
            let cells = [cell(row.longest_gap_seconds, 2), cell(row.failed, 0), cell(row.answered, 0)];
            table.row(std::iter::once(row.balancer.to_owned()).chain(cells).collect());
        }
        (format!("{}, {CALLERS} callers", rows[0].fault.description()), table)
    };
    rows.chunk_by(|one, next| one.fault == next.fault).map(of_fault).collect()
}

/// The bounds that do not hold, as sentences.
pub fn missed(rows: &[FaultRow]) -> Vec<String> {
    let mut missed = Vec::new();
    for row in rows.iter().filter(|row| row.balancer == BalancerKind::NodeLb.name()) {
        let (fault, gap_max) = (row.fault.name(), row.fault.gap_max());
        if let Some(gap) = row.longest_gap_seconds.filter(|gap| gap.median > gap_max) {
            missed.push(format!(
                "{fault}: {:.2} s without an answer, at most {gap_max} was wanted",
                gap.median
            ));
        }
        if let Some(failed) = row.failed.filter(|failed| failed.max > FAILED_MAX) {
            missed.push(format!("{fault}: {} requests failed, at most {FAILED_MAX} were wanted", failed.max));
        }
    }
    missed
}

impl FaultRow {
    fn new(fault: Fault, kinds: &[BalancerKind], place: usize, trials: &[Trial]) -> Self {
        let spread = |figure: fn(&CallerReport) -> f64| {
            Spread::of(trials.iter().map(|trial| figure(&trial.reports[place])))
        };
        Self {
            fault,
            balancer: kinds[place].name(),
            answered: spread(|report| report.answered as f64),
            failed: spread(|report| report.failed.len() as f64),
            longest_gap_seconds: spread(|report| report.longest.as_secs_f64()),
            reasons: trials.first().map(|trial| trial.reports[place].failed.clone()).unwrap_or_default(),
        }
    }
}

/// Answers a second of each balancer's callers, over the time since the fault.
fn plot(fault: Fault, kinds: &[BalancerKind], trial: &Trial, fault_seconds: f64) -> Plot {
    let end = fault_seconds + AROUND.as_secs_f64();
    let drawn: Vec<Line> = kinds
        .iter()
        .zip(&trial.reports)
        .map(|(kind, report)| {
            let seconds = report.times.0.iter().map(|time| seconds_since(*time, trial.at));
            Line { name: kind.name().to_owned(), points: points(seconds, -AROUND.as_secs_f64(), end) }
        })
        .collect();
    let title = format!("From 0 to {fault_seconds} s {}", fault.description());
    let (x, y) = ("seconds since the fault began", "answers a second, of all 9 callers");
    lines(&format!("node-lb-{}", fault.name()), Labels { title: &title, x, y }, &drawn, false, false)
}

fn seconds_since(time: Instant, at: Instant) -> f64 {
    let before = at.saturating_duration_since(time).as_secs_f64();
    time.saturating_duration_since(at).as_secs_f64() - before
}

/// The answers a second in each interval of [`POINT_SECONDS`] from `begin` to `end`, at its middle.
fn points(seconds: impl Iterator<Item = f64>, begin: f64, end: f64) -> Vec<(f64, f64)> {
    let mut counts = vec![0_u32; ((end - begin) / POINT_SECONDS) as usize];
    for second in seconds.filter(|second| *second >= begin) {
        if let Some(count) = counts.get_mut(((second - begin) / POINT_SECONDS) as usize) {
            *count += 1;
        }
    }
    let middle = |place: usize| begin + POINT_SECONDS * (place as f64 + 0.5);
    counts
        .iter()
        .enumerate()
        .map(|(place, count)| (middle(place), f64::from(*count) / POINT_SECONDS))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_without_an_answer_is_a_point_at_zero() {
        let drawn = points([-0.9, 0.1, 0.2, 0.6, 5.0].into_iter(), -0.5, 0.75);
        assert_eq!(drawn, [(-0.375, 0.0), (-0.125, 0.0), (0.125, 8.0), (0.375, 0.0), (0.625, 4.0)]);
    }

    #[test]
    fn a_gap_of_node_lb_is_held_to_its_bound_and_that_of_a_peer_is_not() {
        let row = |balancer: BalancerKind, gap: f64| FaultRow {
            fault: Fault::Frozen,
            balancer: balancer.name(),
            answered: None,
            failed: Spread::of([1.0]),
            longest_gap_seconds: Spread::of([gap]),
            reasons: Vec::new(),
        };
        assert_eq!(missed(&[row(BalancerKind::NodeLb, 4.9), row(BalancerKind::Nginx, 13.0)]).len(), 0);
        assert_eq!(missed(&[row(BalancerKind::NodeLb, 5.1)]).len(), 1);
    }
}
