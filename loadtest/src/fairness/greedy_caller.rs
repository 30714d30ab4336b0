//! The greedy caller: too many requests at once, responses that it does not read, and failing logins, all
//! from one address.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Args;
use futures::future::try_join_all;
use http::{HeaderValue, Method, StatusCode, Uri};
use http_body_util::BodyExt;
use linksim::rng::SeededRng;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::caller::{CallError, Caller};
use crate::repeated_body::RepeatedBody;
use crate::route::Destination;
use crate::target::{BULK, SLOW};

/// Concurrent requests on a connection. The gateway allows 250.
const STREAMS: u32 = 90;

/// Average pause after a refusal, as its Retry-After says. The pause is random, or all requests would come at
/// the same time from then on.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Average time for which a response stays unread. It is longer than the gateway's slow-reader limit, so that
/// some are always cut off.
const UNREAD_FOR: Duration = Duration::from_secs(10);

/// The receive window of an unread response, in bytes.
const UNREAD_WINDOW_BYTES: u32 = 64 * 1024;

/// The path of the requests with a wrong token.
const LOGIN: &str = "/api/v1/namespaces";

/// Failed logins are sent in this many batches per second, over `LOGIN_CONNECTIONS` connections.
const BATCHES_PER_SECOND: u32 = 500;
const LOGIN_CONNECTIONS: u32 = 4;

/// Time after which every queue that it can fill is full.
const WARM_UP: Duration = Duration::from_secs(2);

/// The load of the greedy caller.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GreedyFlags {
    /// Concurrent requests of the greedy caller, with those that it does not read
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10000))]
    pub concurrent: u32,

    /// Large responses that it does not read
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub unread: u32,

    /// Failing logins per second from its address
    #[arg(long, value_name = "N", default_value_t = 10000, value_parser = clap::value_parser!(u32).range(0..=100000))]
    pub failures: u32,
}

/// A greedy caller that was not started yet.
#[derive(Debug, Clone)]
pub struct GreedyCaller {
    /// The destination, with its client certificate. The failing logins use none.
    pub destination: Destination,
    /// The prefix of each path.
    pub prefix: String,
    /// The load that it produces.
    pub load: GreedyFlags,
}

/// A greedy caller that runs until it is ended. It has a thread of its own, so that it does not delay the
/// measured callers' runtime.
#[derive(Debug)]
pub struct RunningGreedyCaller {
    counts: Arc<GreedyCounts>,
    began: Instant,
    thread: JoinHandle<Result<(), CallError>>,
}

/// The responses that the greedy caller got.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GreedyFigures {
    /// Small responses that succeeded, per second.
    pub answered_per_second: f64,
    /// Responses with status 429 or 503.
    pub refused_per_second: f64,
    /// Most requests at once that were pending or unread.
    pub under_way_max: u64,
    /// Large responses that it got and did not read.
    pub unread_per_second: f64,
    /// Responses that were cut off.
    pub broken_per_second: f64,
    /// Responses with status 401 or 429 to requests with a wrong token.
    pub failed_logins_per_second: f64,
}

#[derive(Debug, Default)]
struct GreedyCounts {
    is_over: AtomicBool,
    answered: AtomicU64,
    refused: AtomicU64,
    under_way: AtomicU64,
    under_way_max: AtomicU64,
    unread: AtomicU64,
    broken: AtomicU64,
    failed: AtomicU64,
}

impl GreedyCaller {
    /// Starts it, and returns when its full load runs.
    ///
    /// # Errors
    /// The first [`CallError`] of a connection.
    pub async fn start(self) -> Result<RunningGreedyCaller, CallError> {
        let counts = Arc::new(GreedyCounts::default());
        let (ready, is_ready) = oneshot::channel();
        let thread = std::thread::spawn({
            let counts = Arc::clone(&counts);
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime can be built").block_on(self.run(&counts, ready))
            }
        });
        // If it has ended already, `end` returns the reason.
        let _ = is_ready.await;
        sleep(WARM_UP).await;
        for count in [&counts.answered, &counts.refused, &counts.unread, &counts.broken, &counts.failed] {
            count.store(0, Ordering::Relaxed);
        }
        Ok(RunningGreedyCaller { counts, began: Instant::now(), thread })
    }

    async fn run(&self, counts: &Arc<GreedyCounts>, ready: oneshot::Sender<()>) -> Result<(), CallError> {
        let small = self.load.concurrent.saturating_sub(self.load.unread);
        let connected =
            try_join_all((0..small.div_ceil(STREAMS)).map(|_| Caller::connect(&self.destination))).await?;
        let slow_reader = Caller::connect_windowed(&self.destination, UNREAD_WINDOW_BYTES).await?;
        let unauthenticated = Destination { identity: None, ..self.destination.clone() };
        let login_callers =
            try_join_all((0..LOGIN_CONNECTIONS).map(|_| Caller::connect(&unauthenticated))).await?;

        let mut tasks = JoinSet::new();
        let slow = self.destination.uri(&format!("{}{SLOW}", self.prefix));
        for number in 0..small {
            let caller = shared(&connected[(number / STREAMS) as usize]);
            let rng = SeededRng::new(u64::from(number));
            tasks.spawn(ask_again(caller, slow.clone(), rng, Arc::clone(counts)));
        }
        let bulk = self.destination.uri(&format!("{}{BULK}", self.prefix));
        for number in 0..self.load.unread {
            let rng = SeededRng::new(u64::from(number));
            tasks.spawn(read_nothing(shared(&slow_reader), bulk.clone(), rng, Arc::clone(counts)));
        }
        let login = self.destination.uri(&format!("{}{LOGIN}", self.prefix));
        for (number, caller) in login_callers.into_iter().enumerate() {
            let wrong = HeaderValue::from_str(&format!("Bearer wrong-{number}")).expect("a header");
            let caller = caller.with_authorization(wrong);
            tasks.spawn(fail_logins(
                caller,
                login.clone(),
                self.load.failures / LOGIN_CONNECTIONS,
                Arc::clone(counts),
            ));
        }
        let _ = ready.send(()); // `start` waits for it.
        let mut tick = interval(Duration::from_millis(20));
        while !counts.is_over.load(Ordering::Relaxed) {
            tick.tick().await;
            if let Some(ended) = tasks.try_join_next() {
                ended.expect("a task does not panic")?;
            }
        }
        Ok(())
    }
}

impl RunningGreedyCaller {
    /// Ends it, and returns its figures.
    ///
    /// # Errors
    /// The first [`CallError`] that its load does not explain.
    ///
    /// # Panics
    /// Its thread has panicked.
    pub fn end(self) -> Result<GreedyFigures, CallError> {
        let seconds = self.began.elapsed().as_secs_f64();
        let GreedyCounts { answered, refused, under_way_max, unread, broken, failed, .. } = &*self.counts;
        let rate = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64 / seconds;
        let figures = GreedyFigures {
            answered_per_second: rate(answered),
            refused_per_second: rate(refused),
            under_way_max: under_way_max.load(Ordering::Relaxed),
            unread_per_second: rate(unread),
            broken_per_second: rate(broken),
            failed_logins_per_second: rate(failed),
        };
        self.counts.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("it does not panic").map(|()| figures)
    }
}

impl GreedyFigures {
    /// The mean of several turns of the same length.
    pub fn mean(turns: &[Self]) -> Self {
        let mean =
            |figure: fn(&Self) -> f64| turns.iter().map(figure).sum::<f64>() / turns.len().max(1) as f64;
        Self {
            answered_per_second: mean(|figures| figures.answered_per_second),
            refused_per_second: mean(|figures| figures.refused_per_second),
            under_way_max: turns.iter().map(|figures| figures.under_way_max).max().unwrap_or_default(),
            unread_per_second: mean(|figures| figures.unread_per_second),
            broken_per_second: mean(|figures| figures.broken_per_second),
            failed_logins_per_second: mean(|figures| figures.failed_logins_per_second),
        }
    }
}

impl GreedyCounts {
    fn begun(&self) {
        let now = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.under_way_max.fetch_max(now, Ordering::Relaxed);
    }

    fn ended(&self, count: &AtomicU64) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn shared(caller: &Caller) -> Caller {
    caller.share().expect("it speaks HTTP/2")
}

fn is_refusal(status: StatusCode) -> bool {
    [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&status)
}

/// A random duration between half of `span` and one and a half times `span`.
fn about(span: Duration, rng: &mut SeededRng) -> Duration {
    span.mul_f64(0.5 + rng.next_f64())
}

async fn ask_again(
    mut caller: Caller,
    uri: Uri,
    mut rng: SeededRng,
    counts: Arc<GreedyCounts>,
) -> Result<(), CallError> {
    loop {
        counts.begun();
        match caller.get(&uri).await {
            Ok(_) => counts.ended(&counts.answered),
            Err(CallError::Refused { status, .. }) if is_refusal(status) => {
                counts.ended(&counts.refused);
                sleep(about(RETRY_PAUSE, &mut rng)).await;
            }
            // The gateway ends slow readers, and may take another response of this caller for one.
            Err(CallError::Http(_)) if !caller.is_over() => {
                counts.ended(&counts.broken);
                sleep(about(RETRY_PAUSE, &mut rng)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn read_nothing(
    mut caller: Caller,
    uri: Uri,
    mut rng: SeededRng,
    counts: Arc<GreedyCounts>,
) -> Result<(), CallError> {
    loop {
        counts.begun();
        match caller.ask(Method::GET, &uri, RepeatedBody::empty()).await {
            Ok(unread) => {
                sleep(about(UNREAD_FOR, &mut rng)).await;
                drop(unread);
                counts.ended(&counts.unread);
            }
            Err(CallError::Refused { status, .. }) if is_refusal(status) => {
                counts.ended(&counts.refused);
                sleep(about(RETRY_PAUSE, &mut rng)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn fail_logins(
    caller: Caller,
    uri: Uri,
    per_second: u32,
    counts: Arc<GreedyCounts>,
) -> Result<(), CallError> {
    let mut batches = interval(Duration::from_secs(1) / BATCHES_PER_SECOND);
    batches.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut begun = 0_u64;
    let since = Instant::now();
    loop {
        batches.tick().await;
        let due = (since.elapsed().as_secs_f64() * f64::from(per_second)) as u64;
        let batch = (begun..due).take(STREAMS as usize).map(|_| log_in(shared(&caller), uri.clone()));
        let failed = try_join_all(batch).await?.len() as u64;
        begun += failed;
        counts.failed.fetch_add(failed, Ordering::Relaxed);
    }
}

/// Sends one request with a wrong token. A target without authentication answers it with 200.
async fn log_in(mut caller: Caller, uri: Uri) -> Result<(), CallError> {
    match caller.ask(Method::GET, &uri, RepeatedBody::empty()).await {
        Ok(answer) => answer.into_body().collect().await.map(drop).map_err(CallError::Http),
        Err(CallError::Refused { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
