//! Compares routes in rounds. Each round has one turn of each route, in a random order.

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
use crate::spread::Spread;

/// Time that a turn may take beyond its measurement, for connecting and for the last responses.
const TURN_EXTRA_MAX: Duration = Duration::from_secs(120);

/// The number and the length of rounds.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rounds {
    /// Measured rounds; one more warms up
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// Time for which each route is measured in each round, for each number of callers
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,

    /// Begin no further round after this time, and report the completed rounds
    #[arg(long, value_name = "MINUTES", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub limit_minutes: u64,
}

/// The load on a route.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Load {
    /// Small GETs in a closed loop: each caller sends its next request after its response.
    #[serde(rename_all = "camelCase")]
    Small {
        /// The number of concurrent callers.
        callers: u32,
    },
    /// Small GETs in an open loop: requests begin at random times.
    #[serde(rename_all = "camelCase")]
    Open {
        /// The number of open connections.
        callers: u32,
        /// The average number of requests per second.
        per_second: f64,
    },
    /// Small GETs in a closed loop, beside slow readers of large responses.
    #[serde(rename = "beside", rename_all = "camelCase")]
    BesideSlowReaders {
        /// The number of callers that read nothing, each over a connection of its own.
        #[serde(rename = "stalled")]
        slow_readers: u32,
        /// The number of callers that send small GETs.
        callers: u32,
    },
    /// Large transfers over several streams: of one connection on HTTP/2, of a connection each on HTTP/1.1.
    #[serde(rename_all = "camelCase")]
    Bulk {
        /// The direction of the transfers.
        direction: Direction,
        /// The number of concurrent streams.
        streams: u32,
        /// The number of bytes on each stream.
        bytes_each: u64,
    },
}

/// The direction of a large transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Direction {
    /// A download to the caller.
    Down,
    /// An upload to the API server.
    Up,
}

/// The figures of one route in one round.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// Responses, or millions of bytes, per second.
    pub rate: f64,
    /// The latency of small requests.
    #[serde(flatten)]
    pub latency: Option<Latency>,
    /// CPU time of the server: microseconds per request, or seconds per 10^9 bytes; 0 on the direct route.
    pub server_cpu: f64,
    /// CPU time of all agents, in the same unit.
    pub agent_cpu: f64,
    /// CPU time of the API server, in the same unit.
    pub target_cpu: f64,
    /// Memory of the daemons beside slow readers.
    #[serde(flatten)]
    pub memory: Option<Memory>,
}

/// Resident memory of the daemons.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Resident bytes of the server.
    pub server_bytes: u64,
    /// Resident bytes of the first agent.
    pub agent_bytes: u64,
}

/// Latency quantiles of requests to the last byte of the response, in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Latency {
    /// Half of the requests were faster.
    pub p50_ms: f64,
    /// Nine of ten requests were faster.
    pub p90_ms: f64,
    /// 99 of 100 requests were faster.
    pub p99_ms: f64,
    /// 999 of 1,000 requests were faster.
    pub p999_ms: f64,
}

/// The figures of all rounds.
#[derive(Debug)]
pub struct Measurements {
    /// The loads, in the order of the report.
    pub loads: Vec<Load>,
    /// The names of the routes. The others are compared with the first.
    pub routes: Vec<String>,
    /// The figures of the warm-up round by load and route. Memory is taken from here, because later rounds
    /// reuse it.
    pub warm_up: Vec<Vec<Figures>>,
    /// The figures by round, load and route.
    pub rounds: Vec<Vec<Vec<Figures>>>,
}

/// The error if a comparison failed.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A request of the route failed.
    #[error("{route}: a request failed, so the figures would say nothing")]
    Call {
        /// The name of the route.
        route: String,
        /// The cause of the failure.
        #[source]
        source: CallError,
    },
    /// A turn did not end in time.
    #[error("{route} did not end its turn within {} s", .limit.as_secs())]
    Timeout {
        /// The name of the route.
        route: String,
        /// The time limit of the turn.
        limit: Duration,
    },
    /// A process of the route has ended.
    #[error("{route}: the CPU time of a process cannot be read")]
    Process {
        /// The name of the route.
        route: String,
        /// The cause of the failure.
        #[source]
        source: io::Error,
    },
}

/// The error if one turn failed, without the name of the route.
#[derive(Debug, thiserror::Error)]
enum TurnError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Process(#[from] io::Error),
}

/// Parses a flag in seconds.
///
/// # Errors
/// The text is not a number in the range.
pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.05..=600.0).contains(seconds));
    seconds.ok_or_else(|| "write seconds, from 0.05 to 600".to_owned())
}

impl Rounds {
    /// The length of each turn.
    pub fn turn(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

impl Load {
    /// Describes the load for tables and progress.
    pub fn description(self) -> String {
        let people = |count: u32| if count == 1 { "1 caller".to_owned() } else { format!("{count} callers") };
        match self {
            Self::Small { callers } => people(callers),
            Self::Open { callers, per_second } => {
                format!("{per_second:.0} requests a second over {callers} connections")
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

    /// Tells whether it is a large transfer.
    pub fn is_bulk(self) -> bool {
        matches!(self, Self::Bulk { .. })
    }
}

impl Measurements {
    /// A figure of one place, a load and a route, compared with that of another place within each round, so that other load
    /// of the machine cancels out; `None` where neither round has both.
    pub fn compared<F: Fn(&Figures) -> Option<f64>>(
        &self,
        (load, route): (usize, usize),
        (with_load, with_route): (usize, usize),
        figure: F,
        compare: fn(f64, f64) -> f64,
    ) -> Option<Spread> {
        Spread::of(self.rounds.iter().filter_map(|round| {
            Some(compare(figure(&round[load][route])?, figure(&round[with_load][with_route])?))
        }))
    }

    /// This share of the slowest route's median rate with so many callers, so that every route gets the same requests at the
    /// same times; `None` if that was not measured.
    pub fn share_of_load(&self, callers: u32, share: f64) -> Option<Load> {
        let load = self.loads.iter().position(|load| *load == Load::Small { callers })?;
        let medians = (0..self.routes.len())
            .filter_map(|route| Spread::of(self.rounds.iter().map(|round| round[load][route].rate)))
            .map(|spread| spread.median);
        let slowest = medians.min_by(f64::total_cmp)?;
        Some(Load::Open { callers, per_second: slowest * share })
    }
}

/// The share of the highest rate at which latency is compared.
pub const HALF_LOAD: f64 = 0.5;

/// Compares the routes under each load. The first round warms up and does not count.
///
/// # Errors
/// [`CompareError`], at the first request that fails.
pub async fn compare(
    routes: &[Route],
    loads: &[Load],
    rounds: &Rounds,
    seed: u64,
) -> Result<Measurements, CompareError> {
    let (progress, mut order) = (Progress::new(), Order::new(seed));
    let end = Instant::now() + Duration::from_secs(rounds.limit_minutes * 60);
    let mut measurements = Measurements {
        loads: loads.to_vec(),
        routes: routes.iter().map(|route| route.name.clone()).collect(),
        warm_up: Vec::new(),
        rounds: Vec::new(),
    };
    for round in 0..=rounds.rounds {
        let mut by_load = Vec::new();
        for &load in loads {
            let mut figures = vec![None; routes.len()];
            // Every route gets the same random times in a round, and other times in the next.
            let seed = seed.wrapping_add(u64::from(round));
            for turn in order.draw(routes.len()) {
                let route = &routes[turn];
                progress.show(&format!(
                    "round {round}/{}: {}, {}",
                    rounds.rounds,
                    load.description(),
                    route.name
                ));
                figures[turn] = Some(turn_of(route, load, rounds.turn(), seed).await?);
            }
            by_load.push(figures.into_iter().flatten().collect());
        }
        if round == 0 {
            measurements.warm_up = by_load;
        } else {
            measurements.rounds.push(by_load);
        }
        if Instant::now() >= end && !measurements.rounds.is_empty() {
            break;
        }
    }
    Ok(measurements)
}

async fn turn_of(route: &Route, load: Load, duration: Duration, seed: u64) -> Result<Figures, CompareError> {
    let limit = duration + TURN_EXTRA_MAX;
    let turn = async {
        match load {
            Load::Small { callers } => {
                let pool = CallerPool::connect(route, callers).await?;
                small(route, pool.closed_loop(duration)).await
            }
            Load::Open { callers, per_second } => {
                let pool = CallerPool::connect(route, callers).await?;
                small(route, pool.open_loop(per_second, duration, seed)).await
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
        Ok(Err(TurnError::Call(source))) => Err(CompareError::Call { route: name(), source }),
        Ok(Err(TurnError::Process(source))) => Err(CompareError::Process { route: name(), source }),
        Err(_) => Err(CompareError::Timeout { route: name(), limit }),
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
    Ok(Figures::new(sample.per_second(), Some(Latency::from_sample(&sample)), used, each_us))
}

/// Measures small GETs beside slow readers. They begin when all buffers of the slow readers are full.
async fn beside_slow_readers(
    route: &Route,
    slow_readers: u32,
    callers: u32,
    duration: Duration,
) -> Result<Figures, TurnError> {
    let pool = CallerPool::connect(route, callers).await?;
    let uri = route.bulk.as_ref().expect("the route has a bulk path");
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
    let figures = small(route, pool.closed_loop(duration)).await?;
    drop(unread);
    Ok(Figures { memory, ..figures })
}

async fn bulk(
    route: &Route,
    direction: Direction,
    streams: u32,
    bytes_each: u64,
) -> Result<Figures, TurnError> {
    let uri = route.bulk.as_ref().expect("the route has a bulk path");
    let mut callers = Vec::new();
    let mut first = Caller::connect(&route.destination).await?;
    first.get(&route.small[0]).await?;
    match route.destination.http {
        Http::Two => callers.extend((1..streams).map(|_| first.share().expect("HTTP/2 is shared"))),
        Http::One => {
            for _ in 1..streams {
                callers.push(Caller::connect(&route.destination).await?);
            }
        }
    }
    callers.push(first);

    let before = route.cpu_time()?;
    let began = Instant::now();
    let mut moving = JoinSet::new();
    for mut caller in callers {
        let uri = uri.clone();
        moving.spawn(async move {
            match direction {
                Direction::Down => caller.get_sized(&uri, bytes_each).await?,
                Direction::Up => caller.put_sized(&uri, bytes_each).await?,
            }
            Ok::<_, CallError>(caller)
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
    /// The quantiles of a sample.
    pub fn from_sample(sample: &Sample) -> Self {
        let [p50_ms, p90_ms, p99_ms, p999_ms] =
            [0.5, 0.9, 0.99, 0.999].map(|share| sample.quantile_ms(share));
        Self { p50_ms, p90_ms, p99_ms, p999_ms }
    }
}
