//! `loadtest fairness`: measures whether a greedy caller delays a modest one, or gets its requests refused.

use std::error::Error;
use std::time::Duration;

use ::tests::rig::GROUP;
use ::tests::scratch::Scratch;
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::caller::CallError;
use crate::caller_pool::{CallerPool, histogram};
use crate::comparison::cell;
use crate::order::Order;
use crate::progress::Progress;
use crate::report::{Heading, Report};
use crate::rig::{TunnelRig, cluster};
use crate::route::{Destination, Http, Route};
use crate::spread::Spread;
use crate::table::Table;
use crate::target::{SMALL, Target};

use greedy_caller::{GreedyCaller, GreedyFigures, GreedyFlags, RunningGreedyCaller};

mod greedy_caller;

/// Largest p99 of the modest caller beside the greedy one, as a multiple of its p99 beside the same noise.
const RATIO_MAX: f64 = 2.0;

/// Smallest share of the requested failed logins with which the run counts.
const FAILURES_SHARE_MIN: f64 = 0.9;

/// Connections of the modest caller.
const CONNECTIONS: u32 = 4;

/// Size of the responses that the greedy caller does not read.
const BULK_MIB: u32 = 1024;

/// The flags of `loadtest fairness`.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FairnessFlags {
    /// Total time in which the modest caller is measured beside the greedy one; as long alone, and as long
    /// beside its noise
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,

    /// Number of rounds; each round has one turn of all three, in a random order
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,

    /// The limits that apply to the greedy caller, one after the other
    #[serde(rename = "held")]
    #[arg(long, alias = "held", value_name = "WHOSE,WHOSE", value_enum, value_delimiter = ',', default_values_t = [LimitedBy::Caller, LimitedBy::Server, LimitedBy::Agent])]
    pub limited_by: Vec<LimitedBy>,

    /// Small requests per second of the modest caller, at random times
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10000))]
    pub per_second: u32,

    #[command(flatten)]
    #[serde(rename = "wants")]
    pub greedy: GreedyFlags,
}

/// The limits that apply to the greedy caller. The other limits are raised out of its reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum LimitedBy {
    /// The default limits of one caller at the gateway.
    Caller,
    /// The cluster's seats and queues at the server.
    Server,
    /// The seats and queues at the agent.
    Agent,
}

/// The load beside the modest caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Background {
    Nothing,
    /// The greedy caller at a target of its own, which shows how much CPU time it takes itself.
    Noise,
    /// The greedy caller at the same gateway.
    Greedy,
}

const BACKGROUNDS: [Background; 3] = [Background::Nothing, Background::Noise, Background::Greedy];

/// The results under one set of limits.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FairnessResult {
    #[serde(rename = "held")]
    limited_by: LimitedBy,
    /// The modest caller alone, beside the noise, and beside the greedy caller.
    modest: [ModestLatency; 3],
    /// p99 beside the greedy caller, as a multiple of p99 alone and of p99 beside the noise, over the whole
    /// time.
    ratio: f64,
    ratio_to_noise: f64,
    /// The same ratios for each round.
    ratios: Option<Spread>,
    ratios_to_noise: Option<Spread>,
    greed: GreedyFigures,
    /// A refusal that the modest caller got, if any.
    refused: Option<String>,
}

/// The latency of the modest caller's requests.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
struct ModestLatency {
    answers: u64,
    p50_ms: f64,
    p99_ms: f64,
}

/// Runs the scenario, and reports its figures.
///
/// # Errors
/// Every error that prevents a report.
pub async fn run(flags: &FairnessFlags, seed: u64) -> Result<Report, Box<dyn Error>> {
    let heading = Heading::new("fairness", seed, flags)?;
    let mut found = Vec::new();
    for &limited_by in &flags.limited_by {
        found.push(measure(flags, limited_by, seed).await?);
    }
    let missed: Vec<String> = found.iter().flat_map(|found| found.missed(flags)).collect();
    let report = Report::new(heading, &found)?;
    Ok(report
        .table("the modest caller", modest_table(&found))
        .table("the greedy caller", greed_table(&found))
        .missed(missed))
}

async fn measure(
    flags: &FairnessFlags,
    limited_by: LimitedBy,
    seed: u64,
) -> Result<FairnessResult, Box<dyn Error>> {
    let scratch = Scratch::new("tombolo-loadtest-")?;
    let [served, peer] = ["served", "peer"].map(|name| scratch.path().join(name));
    std::fs::create_dir(&served)?;
    std::fs::create_dir(&peer)?;
    let (target, peer) = (Target::start(&served, BULK_MIB).await, Target::start(&peer, BULK_MIB).await);
    let (api_server, limits) = (target.api_server(scratch.path())?, limited_by.server_limits());
    let mut tunneled = TunnelRig::start_with(&api_server, 1, limits, "limits: {}").await;
    let route = tunneled.route("tunnel", Http::Two, SMALL, None, target.id()).await;
    let gus = tunneled.rig().caller("gus", &[GROUP]).await;
    let at_gateway = GreedyCaller {
        destination: Destination { identity: Some(gus), ..route.destination.clone() },
        prefix: format!("/clusters/{}", cluster(0)),
        load: flags.greedy.clone(),
    };
    let at_peer = GreedyCaller {
        destination: peer.destination.clone(),
        prefix: String::new(),
        load: flags.greedy.clone(),
    };

    let each = Duration::from_secs(flags.seconds.into()) / flags.rounds;
    let (mut order, progress) = (Order::new(seed), Progress::new());
    let mut all = [histogram(), histogram(), histogram()];
    let (mut ratios, mut ratios_to_noise, mut figures, mut refused) =
        (Vec::new(), Vec::new(), Vec::new(), None);
    for round in 0..flags.rounds {
        let mut of_round = [histogram(), histogram(), histogram()];
        for turn in order.draw(BACKGROUNDS.len()) {
            let background = BACKGROUNDS[turn];
            progress.show(&format!(
                "{limited_by:?}: round {} of {}, {background:?}",
                round + 1,
                flags.rounds
            ));
            let running = start_background(background, &at_peer, &at_gateway).await?;
            let asked = ask(&route, flags.per_second, each, seed + u64::from(round)).await;
            let greedy_figures = running.map(|running| running.end()).transpose()?;
            if background == Background::Greedy {
                figures.extend(greedy_figures);
            }
            match asked {
                Ok(latency) => of_round[turn] = latency,
                Err(error) => refused = refused.or(Some(error.to_string())),
            }
        }
        let [nothing, noise, greed] = of_round.each_ref().map(p99_ms);
        ratios.push(greed / nothing);
        ratios_to_noise.push(greed / noise);
        for (all, of_round) in all.iter_mut().zip(&of_round) {
            all.add(of_round)?;
        }
    }
    let modest = all.each_ref().map(ModestLatency::of);
    let [nothing, noise, greed] = modest.map(|latency| latency.p99_ms);
    Ok(FairnessResult {
        limited_by,
        modest,
        ratio: greed / nothing,
        ratio_to_noise: greed / noise,
        ratios: Spread::of(ratios),
        ratios_to_noise: Spread::of(ratios_to_noise),
        greed: GreedyFigures::mean(&figures),
        refused,
    })
}

/// Starts the load beside the modest caller, if this turn has one.
async fn start_background(
    background: Background,
    at_peer: &GreedyCaller,
    at_gateway: &GreedyCaller,
) -> Result<Option<RunningGreedyCaller>, CallError> {
    let greedy = match background {
        Background::Nothing => return Ok(None),
        Background::Noise => at_peer,
        Background::Greedy => at_gateway,
    };
    Ok(Some(greedy.clone().start().await?))
}

/// One turn of the modest caller. Its request times are the same beside every load.
async fn ask(route: &Route, per_second: u32, each: Duration, seed: u64) -> Result<Histogram<u64>, CallError> {
    let pool = CallerPool::connect(route, CONNECTIONS).await?;
    Ok(pool.open_loop(per_second.into(), each, seed).await?.latency)
}

impl LimitedBy {
    /// The limits in the server's configuration. The agent's limits are always the defaults.
    fn server_limits(self) -> &'static str {
        match self {
            Self::Caller => "limits: {}",
            Self::Server => "limits: { caller: { requests: 10000, requestsPerSecond: 100000 } }",
            Self::Agent => {
                "limits: { caller: { requests: 10000, requestsPerSecond: 100000 }, cluster: { requests: 10000 } }"
            }
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Caller => "its own limits",
            Self::Server => "the server's seats",
            Self::Agent => "the agent's seats",
        }
    }
}

impl ModestLatency {
    fn of(latency: &Histogram<u64>) -> Self {
        let p50_ms = latency.value_at_quantile(0.5) as f64 / 1000.0;
        Self { answers: latency.len(), p50_ms, p99_ms: p99_ms(latency) }
    }
}

impl FairnessResult {
    fn missed(&self, flags: &FairnessFlags) -> Vec<String> {
        let limits = self.limited_by.description();
        let mut missed = Vec::new();
        // The bound compares with the noise, because the greedy caller itself takes CPU time from the modest
        // one.
        if self.ratio_to_noise > RATIO_MAX {
            missed.push(format!(
                "limited by {limits}, the greedy caller makes the modest one's p99 {:.2} times what it is beside the same \
                 noise, more than {RATIO_MAX}",
                self.ratio_to_noise
            ));
        }
        missed.extend(
            self.refused
                .as_ref()
                .map(|why| format!("limited by {limits}: a request of the modest caller failed: {why}")),
        );
        let (came, wanted) = (self.greed.failed_logins_per_second, f64::from(flags.greedy.failures));
        if came < wanted * FAILURES_SHARE_MIN {
            missed.push(format!(
                "only {came:.0} logins failed per second and not {wanted}: the run proves nothing"
            ));
        }
        missed
    }
}

fn p99_ms(latency: &Histogram<u64>) -> f64 {
    latency.value_at_quantile(0.99) as f64 / 1000.0
}

fn modest_table(found: &[FairnessResult]) -> Table {
    let mut table = Table::new(&[
        "greedy caller limited by",
        "answers",
        "p50 alone ms",
        "beside noise",
        "beside greedy",
        "p99 alone ms",
        "beside noise",
        "beside greedy",
        "x alone",
        "by round",
        "x noise",
        "by round",
    ]);
    for found in found {
        let mut cells = vec![found.limited_by.description().to_owned(), found.modest[2].answers.to_string()];
        cells.extend(found.modest.iter().map(|latency| format!("{:.2}", latency.p50_ms)));
        cells.extend(found.modest.iter().map(|latency| format!("{:.2}", latency.p99_ms)));
        cells.extend([format!("{:.2}", found.ratio), cell(found.ratios, 2)]);
        cells.extend([format!("{:.2}", found.ratio_to_noise), cell(found.ratios_to_noise, 2)]);
        table.row(cells);
    }
    table
}

fn greed_table(found: &[FairnessResult]) -> Table {
    let heading =
        ["limited by", "answered/s", "refused/s", "most pending", "unread/s", "broken/s", "failed logins/s"];
    let mut table = Table::new(&heading);
    for FairnessResult { limited_by, greed, .. } in found {
        table.row(vec![
            limited_by.description().to_owned(),
            format!("{:.0}", greed.answered_per_second),
            format!("{:.0}", greed.refused_per_second),
            greed.under_way_max.to_string(),
            format!("{:.1}", greed.unread_per_second),
            format!("{:.1}", greed.broken_per_second),
            format!("{:.0}", greed.failed_logins_per_second),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_response_a_refusal_and_too_few_logins_are_each_missed() {
        let latency = ModestLatency { answers: 1, p50_ms: 1.0, p99_ms: 1.0 };
        let greed =
            |failed_logins_per_second| GreedyFigures { failed_logins_per_second, ..GreedyFigures::default() };
        let found = |ratio_to_noise, failures, refused: Option<&str>| FairnessResult {
            limited_by: LimitedBy::Agent,
            modest: [latency; 3],
            ratio: 9.0,
            ratio_to_noise,
            ratios: None,
            ratios_to_noise: None,
            greed: greed(failures),
            refused: refused.map(str::to_owned),
        };
        let greedy = GreedyFlags { concurrent: 1, unread: 0, failures: 100 };
        let flags = FairnessFlags {
            seconds: 1,
            rounds: 1,
            limited_by: vec![LimitedBy::Agent],
            per_second: 1,
            greedy,
        };
        assert!(found(2.0, 90.0, None).missed(&flags).is_empty());
        for found in [found(2.01, 90.0, None), found(2.0, 89.0, None), found(2.0, 90.0, Some("429"))] {
            assert_eq!(found.missed(&flags).len(), 1, "{found:?}");
        }
    }
}
