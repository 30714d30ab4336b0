//! Callers who ask for all sorts of things and often do not wait for the answer.

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
use linksim::dice::Dice;

/// A request that is not given up is answered by then, or it has failed.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// The longest that one waits who gives up.
const PATIENCE_MAX_US: u64 = 5_000;
/// The most of a large answer that is read before it is given up, and the most of an upload.
const PART_BYTES_MAX: u64 = 4 << 20;
/// One in so many hangs up instead of giving up the request alone.
const HANG_UP_IN: u64 = 20;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct RequestMix {
    /// Whom.
    pub destination: Destination,
    /// Little.
    pub small: Uri,
    /// Much.
    pub bulk: Uri,
    /// Of 100 requests, how many are given up.
    pub cancel_percent: u64,
}

/// What became of the requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestCounts {
    /// Answered to the last byte.
    pub answered: u64,
    /// Given up by the caller.
    pub given_up: u64,
    /// Neither.
    pub failed: u64,
}

#[derive(Debug, Default)]
struct SharedCounts {
    left: AtomicU64,
    answered: AtomicU64,
    given_up: AtomicU64,
    failed: AtomicU64,
}

/// How one request went.
enum RequestOutcome {
    Answered,
    GivenUp,
}

/// Requests in progress.
#[derive(Debug)]
pub struct CancelingCallers {
    counts: Arc<SharedCounts>,
    callers: JoinSet<Option<String>>,
}

impl CancelingCallers {
    /// Lets so many callers begin so many requests in all; every second caller speaks HTTP/1.1.
    pub fn begin(menu: &RequestMix, callers: u32, requests: u64, seed: u64) -> Self {
        let counts = Arc::new(SharedCounts { left: AtomicU64::new(requests), ..SharedCounts::default() });
        let mut running = JoinSet::new();
        for number in 0..callers {
            let http = if number % 2 == 0 { Http::Two } else { Http::One };
            let destination = Destination { http, ..menu.destination.clone() };
            let rng = Dice::new(seed.wrapping_mul(1_000_003).wrapping_add(u64::from(number)));
            running.spawn(ask(RequestMix { destination, ..menu.clone() }, Arc::clone(&counts), rng));
        }
        Self { counts, callers: running }
    }

    /// So far.
    pub fn tally(&self) -> RequestCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RequestCounts {
            answered: read(&self.counts.answered),
            given_up: read(&self.counts.given_up),
            failed: read(&self.counts.failed),
        }
    }

    /// Waits for all, and returns how they went, with one of the failures.
    pub async fn end(mut self) -> (RequestCounts, Option<String>) {
        let mut failure = None;
        while let Some(ended) = self.callers.join_next().await {
            failure = ended.expect("a caller does not panic").or(failure);
        }
        (self.tally(), failure)
    }
}

/// Asks as long as requests are left; returns a failure, if there was one.
async fn ask(menu: RequestMix, counts: Arc<SharedCounts>, mut rng: Dice) -> Option<String> {
    let (mut caller, mut failure) = (None, None);
    let take = |left: u64| left.checked_sub(1);
    while counts.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
        let went = timeout(ANSWER_MAX, one(&menu, &mut caller, &mut rng)).await;
        let count = match went {
            Ok(Ok(RequestOutcome::Answered)) => &counts.answered,
            Ok(Ok(RequestOutcome::GivenUp)) => &counts.given_up,
            Ok(Err(error)) => {
                failure = Some(crate::chain(&error));
                caller = None;
                &counts.failed
            }
            Err(Elapsed { .. }) => {
                failure = Some(format!("no answer within {} s", ANSWER_MAX.as_secs()));
                caller = None;
                &counts.failed
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
    failure
}

async fn one(
    menu: &RequestMix,
    kept: &mut Option<Caller>,
    rng: &mut Dice,
) -> Result<RequestOutcome, CallError> {
    let mut caller = match kept.take() {
        Some(caller) if !caller.is_over() => caller,
        _ => Caller::connect(&menu.destination).await?,
    };
    if rng.below(100) >= menu.cancel_percent {
        caller.get(&menu.small).await?;
        *kept = Some(caller);
        return Ok(RequestOutcome::Answered);
    }
    let patience = Duration::from_micros(rng.below(PATIENCE_MAX_US));
    let part = rng.below(PART_BYTES_MAX);
    let went = match rng.below(3) {
        // Before the answer, or in it.
        0 => within(patience, caller.get(&menu.small)).await?,
        // In the middle of much.
        1 => {
            let answer = caller.ask(Method::GET, &menu.bulk, RepeatedBody::empty()).await?;
            read_part(answer.into_body(), part).await;
            RequestOutcome::GivenUp
        }
        // In the middle of an upload.
        _ => within(patience, caller.put_sized(&menu.bulk, part)).await?,
    };
    // On HTTP/1.1 a request is given up by hanging up; on HTTP/2 its stream is reset, and some hang up as well.
    if menu.destination.http == Http::Two && rng.below(HANG_UP_IN) > 0 {
        *kept = Some(caller);
    }
    Ok(went)
}

/// Waits so long and no longer.
async fn within<T>(
    patience: Duration,
    asking: impl Future<Output = Result<T, CallError>>,
) -> Result<RequestOutcome, CallError> {
    match timeout(patience, asking).await {
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
