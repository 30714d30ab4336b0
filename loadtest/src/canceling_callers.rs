//! Callers that send a mix of requests, and cancel many of them before the response is complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Method, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{error::Elapsed, timeout};

use crate::caller::{CallError, Caller};
use crate::repeated_body::RepeatedBody;
use crate::route::{Destination, Http};
use linksim::rng::SeededRng;

/// Longest wait for a response. A request without one has failed.
const RESPONSE_MAX: Duration = Duration::from_secs(60);
/// Longest wait of a caller before it cancels, in microseconds.
const CANCEL_AFTER_MAX_US: u64 = 5_000;
/// Most bytes of a large response that are read before it is cancelled, and largest upload.
const PART_BYTES_MAX: u64 = 4 << 20;
/// One in this many cancellations closes the connection instead of resetting the stream.
const CLOSE_ONE_IN: u64 = 20;

/// The requests that callers choose from.
#[derive(Debug, Clone)]
pub struct RequestMix {
    /// The server that callers connect to.
    pub destination: Destination,
    /// The URI of a small response.
    pub small: Uri,
    /// The URI of large downloads and uploads.
    pub bulk: Uri,
    /// The percentage of requests that are cancelled.
    pub cancel_percent: u64,
}

/// The number of requests by their outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestCounts {
    /// Requests whose response was read to its last byte.
    pub answered: u64,
    /// Requests that the caller cancelled.
    pub given_up: u64,
    /// Requests that failed by themselves.
    pub failed: u64,
}

#[derive(Debug, Default)]
struct SharedCounts {
    left: AtomicU64,
    answered: AtomicU64,
    given_up: AtomicU64,
    failed: AtomicU64,
}

/// The outcome of one request without an error.
enum RequestOutcome {
    Answered,
    GivenUp,
}

/// A running set of callers, with their counts.
#[derive(Debug)]
pub struct CancelingCallers {
    counts: Arc<SharedCounts>,
    callers: JoinSet<Option<String>>,
}

impl CancelingCallers {
    /// Starts this many callers, which send `requests` requests in total. Every second caller uses HTTP/1.1.
    pub fn start(mix: &RequestMix, callers: u32, requests: u64, seed: u64) -> Self {
        let counts = Arc::new(SharedCounts { left: AtomicU64::new(requests), ..SharedCounts::default() });
        let mut running = JoinSet::new();
        for number in 0..callers {
            let http = if number % 2 == 0 { Http::Two } else { Http::One };
            let destination = Destination { http, ..mix.destination.clone() };
            let rng = SeededRng::new(seed.wrapping_mul(1_000_003).wrapping_add(u64::from(number)));
            running.spawn(ask(RequestMix { destination, ..mix.clone() }, Arc::clone(&counts), rng));
        }
        Self { counts, callers: running }
    }

    /// The counts up to now.
    pub fn counts(&self) -> RequestCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RequestCounts {
            answered: read(&self.counts.answered),
            given_up: read(&self.counts.given_up),
            failed: read(&self.counts.failed),
        }
    }

    /// Waits for all callers, and returns the counts with one of the failures.
    pub async fn end(mut self) -> (RequestCounts, Option<String>) {
        let mut failure = None;
        while let Some(ended) = self.callers.join_next().await {
            failure = ended.expect("a caller does not panic").or(failure);
        }
        (self.counts(), failure)
    }
}

/// Sends requests as long as any are left. Returns a failure if there was one.
async fn ask(mix: RequestMix, counts: Arc<SharedCounts>, mut rng: SeededRng) -> Option<String> {
    let (mut caller, mut failure) = (None, None);
    let take = |left: u64| left.checked_sub(1);
    while counts.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
        let outcome = timeout(RESPONSE_MAX, send_one(&mix, &mut caller, &mut rng)).await;
        let count = match outcome {
            Ok(Ok(RequestOutcome::Answered)) => &counts.answered,
            Ok(Ok(RequestOutcome::GivenUp)) => &counts.given_up,
            Ok(Err(error)) => {
                failure = Some(crate::chain(&error));
                caller = None;
                &counts.failed
            }
            Err(Elapsed { .. }) => {
                failure = Some(format!("no answer within {} s", RESPONSE_MAX.as_secs()));
                caller = None;
                &counts.failed
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
    failure
}

async fn send_one(
    mix: &RequestMix,
    open: &mut Option<Caller>,
    rng: &mut SeededRng,
) -> Result<RequestOutcome, CallError> {
    let mut caller = match open.take() {
        Some(caller) if !caller.is_over() => caller,
        _ => Caller::connect(&mix.destination).await?,
    };
    if rng.below(100) >= mix.cancel_percent {
        caller.get(&mix.small).await?;
        *open = Some(caller);
        return Ok(RequestOutcome::Answered);
    }
    let cancel_after = Duration::from_micros(rng.below(CANCEL_AFTER_MAX_US));
    let part = rng.below(PART_BYTES_MAX);
    let outcome = match rng.below(3) {
        // Cancel before the response, or in it.
        0 => within(cancel_after, caller.get(&mix.small)).await?,
        // Cancel in the middle of a large response.
        1 => {
            let answer = caller.ask(Method::GET, &mix.bulk, RepeatedBody::empty()).await?;
            read_part(answer.into_body(), part).await;
            RequestOutcome::GivenUp
        }
        // Cancel in the middle of an upload.
        _ => within(cancel_after, caller.put_sized(&mix.bulk, part)).await?,
    };
    // On HTTP/1.1 a request is cancelled by closing the connection. On HTTP/2 its stream is reset, and some
    // callers also close the connection.
    if mix.destination.http == Http::Two && rng.below(CLOSE_ONE_IN) > 0 {
        *open = Some(caller);
    }
    Ok(outcome)
}

/// Waits this long for the request, and cancels it then.
async fn within<T>(
    cancel_after: Duration,
    asking: impl Future<Output = Result<T, CallError>>,
) -> Result<RequestOutcome, CallError> {
    match timeout(cancel_after, asking).await {
        Ok(asked) => asked.map(|_| RequestOutcome::Answered),
        Err(Elapsed { .. }) => Ok(RequestOutcome::GivenUp),
    }
}

async fn read_part(mut body: Incoming, part: u64) {
    let mut read = 0;
    while read < part {
        let Some(Ok(frame)) = body.frame().await else { return };
        read += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
}
