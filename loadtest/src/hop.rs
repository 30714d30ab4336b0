//! `loadtest hop`: the cost of a request through a server that has no tunnel to the cluster, and so one hop more.

use std::error::Error;
use std::ops::{Div, Sub};

use ::tests::etcd::EtcdCluster;
use ::tests::members::{join, join_first};
use ::tests::rig::{Agent, ApiServer, GROUP, Peer, Rig};
use ::tests::scratch::Scratch;
use clap::Args;
use serde::Serialize;

use crate::comparison::{plots, rows, tables};
use crate::report::{Heading, Report};
use crate::rig::{IMPERSONATION, USER, cluster};
use crate::rounds::{Direction, Figures, HALF_LOAD, Load, Measurements, Rounds, compare};
use crate::route::{Daemons, Destination, Http, Route};
use crate::target::{BULK, SMALL, Target};

/// Callers of the closed and of the open loop.
const CALLERS: u32 = 64;

/// Most milliseconds that the hop may add to the median at half load.
const P50_ADDED_MS_MAX: f64 = 0.5;

/// Highest ratio of the p99 at half load.
const P99_RATIO_MAX: f64 = 2.0;

/// Highest ratio of the CPU time of all servers for a request.
const CPU_RATIO_MAX: f64 = 1.8;

/// Lowest ratio of requests a second.
const RATE_RATIO_MIN: f64 = 0.55;

/// Lowest ratio of a bulk transfer's rate.
const BULK_RATIO_MIN: f64 = 0.5;

/// The share of the highest rate at which processes hardly wait for each other, so that the hop's own time is seen.
const LIGHT_LOAD: f64 = 0.05;

/// The flags of `loadtest hop`.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HopFlags {
    #[command(flatten)]
    pub rounds: Rounds,

    /// Size of the bulk transfers
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub mib: u32,
}

/// Two servers, and an agent with a tunnel to the second one alone.
struct TwoServers {
    rig: Rig,
    other: Peer,
    agent: Agent,
    _etcd: EtcdCluster,
}

/// The median of a comparison of two figures, within each round.
#[derive(Debug, Clone, Copy)]
struct Bound {
    what: &'static str,
    found: f64,
    limit: f64,
    is_highest: bool,
}

/// Runs the scenario, and reports its figures.
///
/// # Errors
/// Every error that prevents a report.
pub async fn run(flags: &HopFlags, seed: u64) -> Result<Report, Box<dyn Error>> {
    let heading = Heading::new("hop", seed, flags)?;
    let scratch = Scratch::new("tombolo-loadtest-")?;
    let target = Target::start(scratch.path(), flags.mib).await;
    let servers = TwoServers::start(&target.api_server(scratch.path())?).await;
    let routes = servers.routes(&target).await;

    let bytes_each = u64::from(flags.mib) << 20;
    let bulk = |direction| Load::Bulk { direction, streams: 1, bytes_each };
    let closed = Load::Small { callers: CALLERS };
    let loads = [closed, bulk(Direction::Down), bulk(Direction::Up)];
    let saturated = compare(&routes, &loads, &flags.rounds, seed).await?;
    let share = |share| saturated.share_of_load(CALLERS, share).ok_or("no round was measured");
    let open = compare(&routes, &[share(HALF_LOAD)?, share(LIGHT_LOAD)?], &flags.rounds, seed).await?;

    let all: Vec<_> = rows(&saturated).into_iter().chain(rows(&open)).collect();
    let report = Report::new(heading, &all)?.plots(plots("hop", &all)).missed(missed(&saturated, &open));
    Ok(tables(&all).into_iter().fold(report, |report, (title, table)| report.table(title, table)))
}

impl TwoServers {
    async fn start(api_server: &ApiServer) -> Self {
        let etcd = EtcdCluster::start().await;
        let mut rig = Rig::start_logging("info", "").await;
        join_first(&mut rig, &etcd).await;
        let other = join(&rig, &etcd, "other").await;
        let more = format!("servers: [\"{}\"]\n{IMPERSONATION}", other.gateway);
        let agent = rig.agent_with(&cluster(0), api_server, &more).await;
        rig.connected(&cluster(0)).await;
        Self { rig, other, agent, _etcd: etcd }
    }

    /// The route through the server with the tunnel, and the one through both servers.
    async fn routes(&self, target: &Target) -> [Route; 2] {
        let identity = self.rig.caller(USER, &[GROUP]).await;
        let other = self.other.process.as_ref().and_then(|process| process.id()).expect("it runs");
        let agents = vec![self.agent.process.id().expect("the agent runs")];
        let route = |name: &str, address, further_servers| {
            let ca_pem = self.rig.server_ca();
            let identity = Some(identity.clone());
            let destination = Destination { address, ca_pem, identity, http: Http::Two, via: None };
            let uri = |path| destination.uri(&format!("/clusters/{}{path}", cluster(0)));
            let (small, bulk) = (vec![uri(SMALL)], Some(uri(BULK)));
            let daemons = Some(Daemons { server: other, further_servers, agents: agents.clone() });
            Route { name: name.to_owned(), destination, small, bulk, daemons, target: target.id() }
        };
        let first = self.rig.server_id();
        [route("local", self.other.gateway, Vec::new()), route("hop", self.rig.gateway(), vec![first])]
    }
}

/// The bounds that do not hold, as sentences.
fn missed(saturated: &Measurements, open: &Measurements) -> Vec<String> {
    let rate = |figures: &Figures| Some(figures.rate);
    let bounds = [
        Bound::highest(
            "at half load the hop adds to the p50, in ms",
            median(open, 0, |figures| figures.latency.map(|latency| latency.p50_ms), Sub::sub),
            P50_ADDED_MS_MAX,
        ),
        Bound::highest(
            "p99 at half load, x local",
            median(open, 0, |figures| figures.latency.map(|latency| latency.p99_ms), Div::div),
            P99_RATIO_MAX,
        ),
        Bound::highest(
            "CPU of the servers for a request, x local",
            median(saturated, 0, |figures| Some(figures.server_cpu), Div::div),
            CPU_RATIO_MAX,
        ),
        Bound::lowest("requests a second, x local", median(saturated, 0, rate, Div::div), RATE_RATIO_MIN),
        Bound::lowest("a download, x local", median(saturated, 1, rate, Div::div), BULK_RATIO_MIN),
        Bound::lowest("an upload, x local", median(saturated, 2, rate, Div::div), BULK_RATIO_MIN),
    ];
    bounds.into_iter().filter_map(Bound::missed).collect()
}

/// The median of the comparison of the second route with the first one.
fn median(
    measurements: &Measurements,
    load: usize,
    figure: fn(&Figures) -> Option<f64>,
    compare: fn(f64, f64) -> f64,
) -> f64 {
    measurements.compared((load, 1), (load, 0), figure, compare).map_or(f64::NAN, |spread| spread.median)
}

impl Bound {
    fn highest(what: &'static str, found: f64, limit: f64) -> Self {
        Self { what, found, limit, is_highest: true }
    }

    fn lowest(what: &'static str, found: f64, limit: f64) -> Self {
        Self { what, found, limit, is_highest: false }
    }

    /// The sentence, unless the bound holds. A figure that was not measured does not hold.
    fn missed(self) -> Option<String> {
        let Self { what, found, limit, is_highest } = self;
        let holds = if is_highest { found <= limit } else { found >= limit };
        let most = if is_highest { "at most" } else { "at least" };
        (!holds).then(|| format!("{what}: {found:.2}, {most} {limit} was wanted"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_holds_at_its_limit_and_without_a_figure_never() {
        assert_eq!(Bound::highest("p99", 2.0, 2.0).missed(), None);
        assert_eq!(Bound::lowest("rate", 0.5, 0.5).missed(), None);
        let missed = Bound::lowest("rate", 0.49, 0.5).missed();
        assert_eq!(missed.as_deref(), Some("rate: 0.49, at least 0.5 was wanted"));
        assert!(Bound::highest("p99", f64::NAN, 2.0).missed().is_some());
    }
}
