//! `loadtest node-lb`: the load balancer of a worker beside haproxy and nginx, in one run.

use std::error::Error;

use ::tests::balancers::BalancerKind;
use ::tests::kube::assets::pinned_kubernetes;
use ::tests::lb_cluster::LbCluster;
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::report::{Heading, Report};
use crate::rounds::{Rounds, seconds};
use crate::table::Table;

mod faults;
mod probes;
mod rates;
mod rest;
mod start;

/// The flags of `loadtest node-lb`.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeLbFlags {
    #[command(flatten)]
    pub rounds: Rounds,

    /// The parts of the scenario that are run
    #[arg(long, value_name = "PART,PART", value_delimiter = ',', value_enum, default_values_t = Part::ALL)]
    pub parts: Vec<Part>,

    /// Size of the bulk transfers
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub mib: u32,

    /// Connections that are open while memory is measured
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub connections: u32,

    /// Time without any caller in which CPU time is measured
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    pub idle_seconds: f64,

    /// Trials of memory and of each fault, and rounds of the cost of probes
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub trials: u32,

    /// Faults of one API server under callers
    #[arg(long, value_name = "FAULT,FAULT", value_delimiter = ',', value_enum, default_values_t = faults::Fault::ALL)]
    pub faults: Vec<faults::Fault>,

    /// Time for which a fault lasts
    #[arg(long, value_name = "SECONDS", default_value_t = 13.0, value_parser = seconds)]
    pub fault_seconds: f64,

    /// Balancers of one kind that probe the same API servers, as of so many workers
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub workers: u32,

    /// Time in which the cost of their probes is measured in each round
    #[arg(long, value_name = "SECONDS", default_value_t = 12.0, value_parser = seconds)]
    pub probe_seconds: f64,
}

/// A part of the scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    /// Small GETs and bulk transfers, by way of each balancer to the same plain TLS server
    Rates,
    /// Memory and CPU time of each balancer at rest, and memory with many connections
    Rest,
    /// Paced callers while one of three real API servers is killed, frozen, or loses its cable
    Faults,
    /// CPU time that the probes of many workers cost a real API server
    Probes,
}

/// All that was measured; `None` is a part that was not run.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeLbResults {
    /// Sentences about what could not be measured here.
    missing: Vec<String>,
    rates: Option<Vec<rates::RateRow>>,
    rest: Option<Vec<rest::RestRow>>,
    faults: Option<Vec<faults::FaultRow>>,
    probes: Option<Vec<probes::ProbeRow>>,
}

impl Part {
    const ALL: [Self; 4] = [Self::Rates, Self::Rest, Self::Faults, Self::Probes];
}

/// Runs the scenario, and reports its figures.
///
/// # Errors
/// Every error that prevents a report.
pub async fn run(flags: &NodeLbFlags, seed: u64) -> Result<Report, Box<dyn Error>> {
    let heading =
        Heading::of_programs("node-lb", seed, flags, &["node-lb"])?.with_kubernetes(pinned_kubernetes());
    let (kinds, missing) = BalancerKind::installed();
    let mut results = NodeLbResults { missing, ..NodeLbResults::default() };
    let (mut tables, mut plots, mut missed) = (Vec::new(), Vec::new(), Vec::new());
    let has = |part| flags.parts.contains(&part);

    if has(Part::Rates) {
        let rows = rates::measure(flags, &kinds, seed).await?;
        tables.extend(rates::tables(&rows));
        missed.extend(rates::missed(&rows));
        results.rates = Some(rows);
    }
    if has(Part::Rest) {
        let rows = rest::measure(flags, &kinds).await?;
        tables.push(rest::table(&rows, flags));
        missed.extend(rest::missed(&rows));
        results.rest = Some(rows);
    }
    if has(Part::Faults) || has(Part::Probes) {
        match LbCluster::start().await {
            Ok(mut cluster) => {
                cluster.until_all_serve().await;
                if has(Part::Faults) {
                    let measured = faults::measure(flags, &kinds, &mut cluster).await?;
                    tables.extend(faults::tables(&measured.rows));
                    missed.extend(faults::missed(&measured.rows));
                    plots.extend(measured.plots);
                    results.faults = Some(measured.rows);
                }
                if has(Part::Probes) {
                    let rows = probes::measure(flags, &kinds, &mut cluster, seed).await?;
                    tables.push(probes::table(&rows, flags));
                    missed.extend(probes::missed(&rows));
                    results.probes = Some(rows);
                }
            }
            Err(error) => results.missing.push(format!("faults and probes: {error}")),
        }
    }
    if !results.missing.is_empty() {
        let mut table = Table::new(&["not measured here"]);
        results.missing.iter().for_each(|sentence| table.row(vec![sentence.clone()]));
        tables.push(("missing".to_owned(), table));
    }
    let report = Report::new(heading, &results)?.plots(plots).missed(missed);
    Ok(tables.into_iter().fold(report, |report, (title, table)| report.table(title, table)))
}
