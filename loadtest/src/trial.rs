//! Ways compared: round after round, each way once in each round, in an order drawn anew.

use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::time::timeout;

use crate::args::Rounds;
use crate::caller::{CallError, Caller};
use crate::crowd::Crowd;
use crate::order::Order;
use crate::progress::Progress;
use crate::way::{CpuTime, Way};

/// What one turn may take beyond its time: connecting, and the last answers.
const TURN_EXTRA_MAX: Duration = Duration::from_secs(120);

/// What is asked of a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Load {
    /// Small GETs, by so many callers at once.
    Small {
        /// How many.
        callers: u32,
    },
    /// One download of so many bytes.
    Bulk {
        /// How many.
        bytes: u64,
    },
}

/// What one way did in one round.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase", untagged)]
pub enum Figures {
    /// Of small GETs.
    #[serde(rename_all = "camelCase")]
    Small {
        /// Answers in a second.
        per_second: f64,
        /// Half of them came within so many milliseconds.
        p50_ms: f64,
        /// All but one in a hundred.
        p99_ms: f64,
        /// The server's CPU time for each, in microseconds.
        server_cpu_us: Option<f64>,
        /// The agents'.
        agent_cpu_us: Option<f64>,
    },
    /// Of a download.
    #[serde(rename_all = "camelCase")]
    Bulk {
        /// Millions of bytes in a second.
        mb_per_second: f64,
        /// The server's CPU time for each 10^9 bytes, in seconds.
        server_cpu_s_per_gb: Option<f64>,
        /// The agents'.
        agent_cpu_s_per_gb: Option<f64>,
    },
}

/// Everything that was measured.
#[derive(Debug)]
pub struct Ledger {
    /// What was asked, in the order of the report.
    pub loads: Vec<Load>,
    /// The ways' names; the first is the one that the others are compared with.
    pub ways: Vec<String>,
    /// By round, load and way.
    pub rounds: Vec<Vec<Vec<Figures>>>,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// A request failed.
    #[error("{way}: a request failed, so the figures would say nothing")]
    Call {
        /// The way.
        way: String,
        /// Why.
        #[source]
        source: CallError,
    },
    /// A way did not come to an end.
    #[error("{way} did not end its turn within {} s", .limit.as_secs())]
    Stuck {
        /// The way.
        way: String,
        /// What it had.
        limit: Duration,
    },
    /// A process is gone.
    #[error("{way}: the CPU time of a process cannot be read")]
    Process {
        /// The way.
        way: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Why one turn failed, before it is known whose turn it was.
#[derive(Debug)]
enum Failed {
    Call(CallError),
    Process(io::Error),
}

impl Load {
    /// In words.
    pub fn words(self) -> String {
        match self {
            Self::Small { callers: 1 } => "1 caller".to_owned(),
            Self::Small { callers } => format!("{callers} callers"),
            Self::Bulk { bytes } => format!("{} MiB down, 1 caller", bytes >> 20),
        }
    }
}

/// Compares the ways under each load; the first round warms up and does not count.
///
/// # Errors
/// [`TrialError`], at the first request that fails.
pub async fn compare(ways: &[Way], loads: &[Load], rounds: &Rounds) -> Result<Ledger, TrialError> {
    let (progress, mut order) = (Progress::new(), Order::new(rounds.seed));
    let (seconds, end) = (
        Duration::from_secs(rounds.seconds),
        Instant::now() + Duration::from_secs(rounds.limit_minutes * 60),
    );
    let mut ledger = Ledger {
        loads: loads.to_vec(),
        ways: ways.iter().map(|way| way.name.clone()).collect(),
        rounds: Vec::new(),
    };
    for round in 0..=rounds.rounds {
        let mut by_load = Vec::new();
        for &load in loads {
            let mut figures = vec![None; ways.len()];
            for turn in order.draw(ways.len()) {
                let way = &ways[turn];
                progress.say(&format!("round {round}/{}: {}, {}", rounds.rounds, load.words(), way.name));
                figures[turn] = Some(turn_of(way, load, seconds).await?);
            }
            by_load.push(figures.into_iter().flatten().collect());
        }
        if round > 0 {
            ledger.rounds.push(by_load);
        }
        if Instant::now() >= end && !ledger.rounds.is_empty() {
            break;
        }
    }
    Ok(ledger)
}

async fn turn_of(way: &Way, load: Load, seconds: Duration) -> Result<Figures, TrialError> {
    let limit = seconds + TURN_EXTRA_MAX;
    let turn = async {
        match load {
            Load::Small { callers } => small(way, callers, seconds).await,
            Load::Bulk { bytes } => bulk(way, bytes).await,
        }
    };
    let name = || way.name.clone();
    match timeout(limit, turn).await {
        Ok(Ok(figures)) => Ok(figures),
        Ok(Err(Failed::Call(source))) => Err(TrialError::Call { way: name(), source }),
        Ok(Err(Failed::Process(source))) => Err(TrialError::Process { way: name(), source }),
        Err(_) => Err(TrialError::Stuck { way: name(), limit }),
    }
}

async fn small(way: &Way, callers: u32, seconds: Duration) -> Result<Figures, Failed> {
    let crowd = Crowd::gather(way, callers).await?;
    let before = cpu_time(way)?;
    let sample = crowd.ask_for(seconds).await?;
    let used = used_since(way, before)?;
    let each_us = |time: Duration| time.as_secs_f64() * 1e6 / sample.latency.len() as f64;
    Ok(Figures::Small {
        per_second: sample.per_second(),
        p50_ms: sample.quantile_ms(0.5),
        p99_ms: sample.quantile_ms(0.99),
        server_cpu_us: used.map(|used| each_us(used.server)),
        agent_cpu_us: used.map(|used| each_us(used.agents)),
    })
}

async fn bulk(way: &Way, bytes: u64) -> Result<Figures, Failed> {
    let mut caller = Caller::connect(&way.door).await?;
    caller.get(&way.small[0]).await?;
    let before = cpu_time(way)?;
    let began = Instant::now();
    let uri = way.bulk.as_ref().expect("a way whose bulk is asked for has one");
    caller.get_sized(uri, bytes).await?;
    let elapsed = began.elapsed();
    let used = used_since(way, before)?;
    let per_gb = |time: Duration| time.as_secs_f64() * 1e9 / bytes as f64;
    Ok(Figures::Bulk {
        mb_per_second: bytes as f64 / 1e6 / elapsed.as_secs_f64(),
        server_cpu_s_per_gb: used.map(|used| per_gb(used.server)),
        agent_cpu_s_per_gb: used.map(|used| per_gb(used.agents)),
    })
}

fn cpu_time(way: &Way) -> io::Result<Option<CpuTime>> {
    way.daemons.as_ref().map(crate::way::Daemons::cpu_time).transpose()
}

fn used_since(way: &Way, before: Option<CpuTime>) -> io::Result<Option<CpuTime>> {
    let now = cpu_time(way)?;
    Ok(now.zip(before).map(|(now, before)| now.since(before)))
}

impl From<CallError> for Failed {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Process(error)
    }
}
