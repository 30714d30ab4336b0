//! Ways compared: round after round, each way once in each round, in an order drawn anew.

use std::io;
use std::time::{Duration, Instant};

use clap::Args;
use http::Method;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::caller::{CallError, Caller};
use crate::caller_pool::{CallerPool, Sample};
use crate::order::Order;
use crate::process::settled_bytes;
use crate::progress::Progress;
use crate::repeated_body::RepeatedBody;
use crate::route::{CpuTime, Http, Route};

/// What one turn may take beyond its time: connecting, and the last answers.
const TURN_EXTRA_MAX: Duration = Duration::from_secs(120);

/// How long everything goes on.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rounds {
    /// Rounds that count; one more warms up
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// How long each way is asked in each round, per number of callers
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,

    /// Begin no further round after so long, and report those that are done
    #[arg(long, value_name = "MINUTES", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub limit_minutes: u64,
}

/// What is asked of a way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Load {
    /// Small GETs, by so many callers at once, each of whom asks again when it has its answer.
    #[serde(rename_all = "camelCase")]
    Small {
        /// How many.
        callers: u32,
    },
    /// Small GETs over so many connections that begin at times of their own, whoever was answered.
    #[serde(rename_all = "camelCase")]
    Open {
        /// How many connections.
        callers: u32,
        /// How many requests begin in a second.
        per_second: f64,
    },
    /// Small GETs by so many callers, beside others who have asked for much and do not read it.
    #[serde(rename = "beside", rename_all = "camelCase")]
    BesideSlowReaders {
        /// Callers that do not read, each over a connection of its own.
        #[serde(rename = "stalled")]
        slow_readers: u32,
        /// How many ask.
        callers: u32,
    },
    /// So many bytes in all, over so many streams at once: of one connection on HTTP/2, of as many on HTTP/1.1.
    #[serde(rename_all = "camelCase")]
    Bulk {
        /// Which way.
        direction: Direction,
        /// How many at once.
        streams: u32,
        /// How many on each.
        bytes_each: u64,
    },
}

/// Where bulk goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Direction {
    /// To the caller.
    Down,
    /// To the API server.
    Up,
}

/// What one way did in one round.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// Answers, or millions of bytes, in a second.
    pub rate: f64,
    /// Of small requests.
    #[serde(flatten)]
    pub latency: Option<Latency>,
    /// The server's CPU time: microseconds a request, or seconds for 10^9 bytes; 0 on the direct way.
    pub server_cpu: f64,
    /// All agents'.
    pub agent_cpu: f64,
    /// The API server's.
    pub target_cpu: f64,
    /// While others stalled.
    #[serde(flatten)]
    pub memory: Option<Memory>,
}

/// Resident bytes of daemons.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// The server's.
    pub server_bytes: u64,
    /// The first agent's.
    pub agent_bytes: u64,
}

/// How long requests took, to the last byte of the answer, in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Latency {
    /// Half were quicker.
    pub p50_ms: f64,
    /// Nine in ten.
    pub p90_ms: f64,
    /// All but one in a hundred.
    pub p99_ms: f64,
    /// All but one in a thousand.
    pub p999_ms: f64,
}

/// Everything that was measured.
#[derive(Debug)]
pub struct Measurements {
    /// What was asked, in the order of the report.
    pub loads: Vec<Load>,
    /// The ways' names; the first is the one that the others are compared with.
    pub routes: Vec<String>,
    /// By load and way, in the round that does not count: what happened here for the first time.
    pub warm_up: Vec<Vec<Figures>>,
    /// By round, load and way.
    pub rounds: Vec<Vec<Vec<Figures>>>,
}

/// The error if there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// A request failed.
    #[error("{route}: a request failed, so the figures would say nothing")]
    Call {
        /// The way.
        route: String,
        /// Why.
        #[source]
        source: CallError,
    },
    /// A way did not come to an end.
    #[error("{route} did not end its turn within {} s", .limit.as_secs())]
    Stuck {
        /// The way.
        route: String,
        /// What it had.
        limit: Duration,
    },
    /// A process is gone.
    #[error("{route}: the CPU time of a process cannot be read")]
    Process {
        /// The way.
        route: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The error if one turn failed, before it is known whose turn it was.
#[derive(Debug, thiserror::Error)]
enum TurnError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Process(#[from] io::Error),
}

/// A flag's seconds.
///
/// # Errors
/// What to write instead.
pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.05..=600.0).contains(seconds));
    seconds.ok_or_else(|| "write seconds, from 0.05 to 600".to_owned())
}

impl Rounds {
    /// How long each turn takes.
    pub fn turn(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

impl Load {
    /// In words.
    pub fn words(self) -> String {
        let people = |count: u32| if count == 1 { "1 caller".to_owned() } else { format!("{count} callers") };
        match self {
            Self::Small { callers } => people(callers),
            Self::Open { callers, per_second } => {
                format!("half load: {per_second:.0} requests a second over {callers} connections")
            }
            Self::BesideSlowReaders { slow_readers, callers } => {
                format!("{} beside {slow_readers} who do not read", people(callers))
            }
            Self::Bulk { direction, streams, bytes_each } => {
                let direction = match direction {
                    Direction::Down => "down",
                    Direction::Up => "up",
                };
                let mib = bytes_each as f64 / f64::from(1 << 20);
                let streams = if streams == 1 { "1 stream".to_owned() } else { format!("{streams} streams") };
                format!("{mib} MiB {direction}, {streams}")
            }
        }
    }

    /// Tells whether it is bulk.
    pub fn is_bulk(self) -> bool {
        matches!(self, Self::Bulk { .. })
    }
}

/// Compares the ways under each load; the first round warms up and does not count.
///
/// # Errors
/// [`TrialError`], at the first request that fails.
pub async fn compare(
    routes: &[Route],
    loads: &[Load],
    rounds: &Rounds,
    seed: u64,
) -> Result<Measurements, TrialError> {
    let (progress, mut order) = (Progress::new(), Order::new(seed));
    let end = Instant::now() + Duration::from_secs(rounds.limit_minutes * 60);
    let mut ledger = Measurements {
        loads: loads.to_vec(),
        routes: routes.iter().map(|route| route.name.clone()).collect(),
        warm_up: Vec::new(),
        rounds: Vec::new(),
    };
    for round in 0..=rounds.rounds {
        let mut by_load = Vec::new();
        for &load in loads {
            let mut figures = vec![None; routes.len()];
            // Every way meets the same times in a round, and others in the next.
            let seed = seed.wrapping_add(u64::from(round));
            for turn in order.draw(routes.len()) {
                let route = &routes[turn];
                progress.say(&format!("round {round}/{}: {}, {}", rounds.rounds, load.words(), route.name));
                figures[turn] = Some(turn_of(route, load, rounds.turn(), seed).await?);
            }
            by_load.push(figures.into_iter().flatten().collect());
        }
        if round == 0 {
            ledger.warm_up = by_load;
        } else {
            ledger.rounds.push(by_load);
        }
        if Instant::now() >= end && !ledger.rounds.is_empty() {
            break;
        }
    }
    Ok(ledger)
}

async fn turn_of(route: &Route, load: Load, duration: Duration, seed: u64) -> Result<Figures, TrialError> {
    let limit = duration + TURN_EXTRA_MAX;
    let turn = async {
        match load {
            Load::Small { callers } => {
                let crowd = CallerPool::connect(route, callers).await?;
                small(route, crowd.closed_loop(duration)).await
            }
            Load::Open { callers, per_second } => {
                let crowd = CallerPool::connect(route, callers).await?;
                small(route, crowd.open_loop(per_second, duration, seed)).await
            }
            Load::BesideSlowReaders { slow_readers, callers } => {
                beside_slow_readers(route, slow_readers, callers, duration).await
            }
            Load::Bulk { direction, streams, bytes_each } => {
                bulk(route, direction, streams, bytes_each).await
            }
        }
    };
    let name = || route.name.clone();
    match timeout(limit, turn).await {
        Ok(Ok(figures)) => Ok(figures),
        Ok(Err(TurnError::Call(source))) => Err(TrialError::Call { route: name(), source }),
        Ok(Err(TurnError::Process(source))) => Err(TrialError::Process { route: name(), source }),
        Err(_) => Err(TrialError::Stuck { route: name(), limit }),
    }
}

async fn small(
    route: &Route,
    asking: impl Future<Output = Result<Sample, CallError>>,
) -> Result<Figures, TurnError> {
    let before = route.cpu_time()?;
    let sample = asking.await?;
    let used = route.cpu_time()?.since(before);
    let each_us = |time: Duration| time.as_secs_f64() * 1e6 / sample.latency.len().max(1) as f64;
    Ok(Figures::new(sample.per_second(), Some(Latency::of(&sample)), used, each_us))
}

/// The small GETs begin when everything that can be buffered for those who do not read has been.
async fn beside_slow_readers(
    route: &Route,
    slow_readers: u32,
    callers: u32,
    duration: Duration,
) -> Result<Figures, TurnError> {
    let crowd = CallerPool::connect(route, callers).await?;
    let uri = route.bulk.as_ref().expect("a route whose bulk is asked for has one");
    let mut unread = Vec::new();
    for _ in 0..slow_readers {
        let mut caller = Caller::connect(&route.destination).await?;
        unread.push((caller.ask(Method::GET, uri, RepeatedBody::empty()).await?, caller));
    }
    let memory = match &route.daemons {
        Some(daemons) => {
            let agent_bytes = settled_bytes(daemons.agents[0]).await?;
            Some(Memory { server_bytes: settled_bytes(daemons.server).await?, agent_bytes })
        }
        None => {
            settled_bytes(route.target).await?;
            None
        }
    };
    let figures = small(route, crowd.closed_loop(duration)).await?;
    drop(unread);
    Ok(Figures { memory, ..figures })
}

async fn bulk(
    route: &Route,
    direction: Direction,
    streams: u32,
    bytes_each: u64,
) -> Result<Figures, TurnError> {
    let uri = route.bulk.as_ref().expect("a route whose bulk is asked for has one");
    let mut lanes = Vec::new();
    let mut first = Caller::connect(&route.destination).await?;
    first.get(&route.small[0]).await?;
    match route.destination.http {
        Http::Two => lanes.extend((1..streams).map(|_| first.share().expect("HTTP/2 is shared"))),
        Http::One => {
            for _ in 1..streams {
                lanes.push(Caller::connect(&route.destination).await?);
            }
        }
    }
    lanes.push(first);

    let before = route.cpu_time()?;
    let began = Instant::now();
    let mut moving = JoinSet::new();
    for mut lane in lanes {
        let uri = uri.clone();
        moving.spawn(async move {
            match direction {
                Direction::Down => lane.get_sized(&uri, bytes_each).await?,
                Direction::Up => lane.put_sized(&uri, bytes_each).await?,
            }
            Ok::<_, CallError>(lane)
        });
    }
    let mut kept = Vec::new();
    while let Some(moved) = moving.join_next().await {
        kept.push(moved.expect("a caller does not panic")?);
    }
    let elapsed = began.elapsed();
    let used = route.cpu_time()?.since(before);
    let bytes = bytes_each as f64 * f64::from(streams);
    let per_gb = |time: Duration| time.as_secs_f64() * 1e9 / bytes;
    Ok(Figures::new(bytes / 1e6 / elapsed.as_secs_f64(), None, used, per_gb))
}

impl Figures {
    fn new(rate: f64, latency: Option<Latency>, used: CpuTime, each: impl Fn(Duration) -> f64) -> Self {
        Self {
            rate,
            latency,
            server_cpu: each(used.server),
            agent_cpu: each(used.agents),
            target_cpu: each(used.target),
            memory: None,
        }
    }
}

impl Latency {
    /// Of a sample.
    pub fn of(sample: &Sample) -> Self {
        let [p50_ms, p90_ms, p99_ms, p999_ms] =
            [0.5, 0.9, 0.99, 0.999].map(|share| sample.quantile_ms(share));
        Self { p50_ms, p90_ms, p99_ms, p999_ms }
    }
}
