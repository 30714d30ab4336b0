//! Many callers at once, in a closed loop (each sends its next request after a response) or in an open loop
//! (at random times).

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use http::Uri;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::caller::{CallError, Caller};
use crate::route::Route;
use linksim::rng::SeededRng;

/// Longest latency that the histogram resolves.
const LATENCY_MAX: Duration = Duration::from_secs(60);

/// Significant digits of a latency in the histogram.
const DIGITS: u8 = 3;

/// Requests over each connection before the measurement.
const WARM_UP: usize = 2;

/// Connected callers that have sent their warm-up requests.
#[derive(Debug)]
pub struct CallerPool(Vec<(Caller, Uri)>);

/// The latencies of all requests of a measurement.
#[derive(Debug)]
pub struct Sample {
    /// The time from the first request to the last response.
    pub elapsed: Duration,
    /// The latency of each request to the last byte of its response, in microseconds.
    pub latency: Histogram<u64>,
}

type Shared = Arc<Mutex<Histogram<u64>>>;

impl CallerPool {
    /// Connects this many callers, and sends the warm-up requests of each.
    ///
    /// # Errors
    /// The first [`CallError`].
    pub async fn connect(route: &Route, callers: u32) -> Result<Self, CallError> {
        let mut pool = Vec::new();
        for turn in 0..callers as usize {
            let uri = route.small[turn % route.small.len()].clone();
            let mut caller = Caller::connect(&route.destination).await?;
            for _ in 0..WARM_UP {
                caller.get(&uri).await?;
            }
            pool.push((caller, uri));
        }
        Ok(Self(pool))
    }

    /// Closed loop: each caller sends its next request as soon as it has its response, until the time is
    /// over.
    ///
    /// # Errors
    /// The first [`CallError`].
    pub async fn closed_loop(self, duration: Duration) -> Result<Sample, CallError> {
        let latency = shared();
        let began = Instant::now();
        let end = began + duration;
        let mut callers = JoinSet::new();
        for (caller, uri) in self.0 {
            callers.spawn(ask_until(end, caller, uri, Arc::clone(&latency)));
        }
        // Kept until all have ended, so that closing connections is not measured.
        let mut kept = Vec::new();
        while let Some(ended) = callers.join_next().await {
            kept.push(ended.expect("a caller does not panic")?);
        }
        Ok(Sample::of(began.elapsed(), &latency))
    }

    /// Open loop: requests begin at times drawn from the seed, `per_second` on average, even if earlier ones
    /// have no response yet. A latency counts from the drawn time, so that the wait behind slow responses is
    /// included (no coordinated omission).
    ///
    /// # Errors
    /// The first [`CallError`].
    ///
    /// # Panics
    /// With callers on HTTP/1.1.
    pub async fn open_loop(
        self,
        per_second: f64,
        duration: Duration,
        seed: u64,
    ) -> Result<Sample, CallError> {
        let latency = shared();
        let times = times(per_second, duration, seed);
        let (send, mut due) = mpsc::channel(times.len().max(1));
        let began = Instant::now();
        let clock = thread::spawn(move || keep_time(began, times, &send));
        let mut requests = JoinSet::new();
        let mut turn = 0;
        while let Some(at) = due.recv().await {
            let (caller, uri) = &self.0[turn % self.0.len()];
            turn += 1;
            let (mut caller, uri) = (caller.share().expect("open loops are asked over HTTP/2"), uri.clone());
            let latency = Arc::clone(&latency);
            requests.spawn(async move {
                caller.get(&uri).await?;
                record(&latency, at.elapsed());
                Ok::<_, CallError>(())
            });
            while let Some(ended) = requests.try_join_next() {
                ended.expect("a request does not panic")?;
            }
        }
        while let Some(ended) = requests.join_next().await {
            ended.expect("a request does not panic")?;
        }
        let _ = clock.join(); // It has sent everything.
        Ok(Sample::of(began.elapsed(), &latency))
    }
}

impl Sample {
    fn of(elapsed: Duration, latency: &Shared) -> Self {
        Self { elapsed, latency: latency.lock().unwrap_or_else(PoisonError::into_inner).clone() }
    }

    /// Requests per second over the whole measurement.
    pub fn per_second(&self) -> f64 {
        self.latency.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// The latency quantile in milliseconds; 0.99 for p99.
    pub fn quantile_ms(&self, share: f64) -> f64 {
        self.latency.value_at_quantile(share) as f64 / 1000.0
    }
}

async fn ask_until(end: Instant, mut caller: Caller, uri: Uri, latency: Shared) -> Result<Caller, CallError> {
    let mut now = Instant::now();
    while now < end {
        caller.get(&uri).await?;
        let then = Instant::now();
        record(&latency, then - now);
        now = then;
    }
    Ok(caller)
}

/// The begin of each request, counted from the start, with exponential gaps as of independent callers (a
/// Poisson process).
fn times(per_second: f64, duration: Duration, seed: u64) -> Vec<Duration> {
    let (mut rng, mut at, mut times) = (SeededRng::new(seed), 0.0, Vec::new());
    loop {
        at += -(1.0 - rng.next_f64()).ln() / per_second;
        if at >= duration.as_secs_f64() {
            return times;
        }
        times.push(Duration::from_secs_f64(at));
    }
}

/// Sends each begin at its time. Runs on a thread of its own, because Tokio's timers have a resolution of 1
/// ms.
fn keep_time(began: Instant, times: Vec<Duration>, due: &mpsc::Sender<Instant>) {
    for time in times {
        let at = began + time;
        thread::sleep(at.saturating_duration_since(Instant::now()));
        // The channel has room for all. It is closed only if a request has failed.
        if due.try_send(at).is_err() {
            return;
        }
    }
}

fn record(latency: &Shared, took: Duration) {
    let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    latency.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(took);
}

fn shared() -> Shared {
    Arc::new(Mutex::new(histogram()))
}

/// An empty histogram of latencies in microseconds.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX.as_micros() as u64, DIGITS).expect("the bounds are in order")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_order_repeatable_and_as_many_as_were_asked_for() {
        let drawn = times(1000.0, Duration::from_secs(10), 7);
        assert!(drawn.is_sorted());
        assert!((9_500..10_500).contains(&drawn.len()), "{}", drawn.len());
        assert_eq!(drawn, times(1000.0, Duration::from_secs(10), 7));
        assert_ne!(drawn, times(1000.0, Duration::from_secs(10), 8));
    }
}
