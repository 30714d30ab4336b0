//! Many callers at once, who all begin together.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use http::Uri;
use tokio::task::JoinSet;

use crate::caller::{CallError, Caller};
use crate::way::Way;

/// Longest latency that is told apart from longer ones.
const LATENCY_MAX: Duration = Duration::from_secs(60);

/// Figures of a latency that are kept.
const DIGITS: u8 = 3;

/// Requests over each connection before anything counts.
const WARM_UP: usize = 2;

/// Callers who are connected and have asked before.
#[derive(Debug)]
pub struct Crowd(Vec<(Caller, Uri)>);

/// What callers met.
#[derive(Debug)]
pub struct Sample {
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// Of each request to the last byte of its answer, in microseconds.
    pub latency: Histogram<u64>,
}

impl Crowd {
    /// Connects so many callers and lets each ask before it counts.
    ///
    /// # Errors
    /// The first [`CallError`].
    pub async fn gather(way: &Way, callers: u32) -> Result<Self, CallError> {
        let mut crowd = Vec::new();
        for turn in 0..callers as usize {
            let uri = way.small[turn % way.small.len()].clone();
            let mut caller = Caller::connect(&way.door).await?;
            for _ in 0..WARM_UP {
                caller.get(&uri).await?;
            }
            crowd.push((caller, uri));
        }
        Ok(Self(crowd))
    }

    /// Lets each caller ask again as soon as it has its answer, until the time is over.
    ///
    /// # Errors
    /// The first [`CallError`].
    pub async fn ask_for(self, duration: Duration) -> Result<Sample, CallError> {
        let latency = Arc::new(Mutex::new(histogram()));
        let began = Instant::now();
        let end = began + duration;
        let mut callers = JoinSet::new();
        for (caller, uri) in self.0 {
            callers.spawn(ask_until(end, caller, uri, Arc::clone(&latency)));
        }
        while let Some(ended) = callers.join_next().await {
            ended.expect("a caller does not panic")?;
        }
        let elapsed = began.elapsed();
        let latency = latency.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Sample { elapsed, latency })
    }
}

impl Sample {
    /// Requests in a second.
    pub fn per_second(&self) -> f64 {
        self.latency.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// The latency that this share of all requests did not exceed, in milliseconds.
    pub fn quantile_ms(&self, share: f64) -> f64 {
        self.latency.value_at_quantile(share) as f64 / 1000.0
    }
}

/// Keeps the caller until all have ended: closing its connection is no part of what is measured.
async fn ask_until(
    end: Instant,
    mut caller: Caller,
    uri: Uri,
    latency: Arc<Mutex<Histogram<u64>>>,
) -> Result<Caller, CallError> {
    let mut now = Instant::now();
    while now < end {
        caller.get(&uri).await?;
        let then = Instant::now();
        let took = u64::try_from((then - now).as_micros()).unwrap_or(u64::MAX);
        latency.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(took);
        now = then;
    }
    Ok(caller)
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX.as_micros() as u64, DIGITS).expect("the bounds are in order")
}
