//! A caller who asks for far too much at once, reads not all of it, and beside whom logins fail, from one address.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Args;
use futures::future::try_join_all;
use http::{HeaderValue, Method, StatusCode, Uri};
use http_body_util::BodyExt;
use linksim::dice::Dice;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::caller::{CallError, Caller};
use crate::repeated_body::RepeatedBody;
use crate::route::Destination;
use crate::target::{BULK, SLOW};

/// Requests at once on a connection; the gateway grants 250.
const STREAMS: u32 = 90;

/// After a refusal it asks again when it was told to, on average: each in its own time, or all of them would come at once for
/// ever after.
const AGAIN: Duration = Duration::from_secs(1);

/// An answer that it does not read it holds for so long, on average: longer than the gateway's patience, so that there is always
/// one that was cut off; and asks again.
const UNREAD: Duration = Duration::from_secs(10);

/// What of such an answer comes as far as its connection.
const UNREAD_WINDOW_BYTES: u32 = 64 * 1024;

/// What who fails to log in asks for.
const LOGIN: &str = "/api/v1/namespaces";

/// TurnError logins go out in bunches, so many times a second, over so many connections.
const BUNCHES_PER_SECOND: u32 = 500;
const STRANGERS: u32 = 4;

/// It is at work once it has been at it for so long: whatever is to fill has filled.
const WARM_UP: Duration = Duration::from_secs(2);

/// How much it wants.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GreedyFlags {
    /// How many requests the greedy caller has under way, those that it does not read among them
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10000))]
    pub concurrent: u32,

    /// Of how many large answers it reads nothing
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub unread: u32,

    /// How many logins fail in a second, from its address
    #[arg(long, value_name = "N", default_value_t = 10000, value_parser = clap::value_parser!(u32).range(0..=100000))]
    pub failures: u32,
}

/// Whom it asks for what.
#[derive(Debug, Clone)]
pub struct GreedyCaller {
    /// Where, and who it is there; who fails to log in shows no certificate.
    pub destination: Destination,
    /// What stands before each path.
    pub prefix: String,
    /// How much.
    pub wants: GreedyFlags,
}

/// One that goes on until it is told to end, in a thread of its own: it takes no turn of those who are measured.
#[derive(Debug)]
pub struct RunningGreedyCaller {
    counts: Arc<GreedyCounts>,
    began: Instant,
    thread: JoinHandle<Result<(), CallError>>,
}

/// What it met.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GreedyFigures {
    /// Small answers.
    pub answered_per_second: f64,
    /// Answers with 429 or 503.
    pub refused_per_second: f64,
    /// The most that were asked for and not yet answered, unread ones included.
    pub under_way_max: u64,
    /// Large answers that it was given and did not read.
    pub unread_per_second: f64,
    /// Answers that broke off.
    pub broken_per_second: f64,
    /// Answers with 401 or 429 to who is nobody.
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
    /// Begins, and returns when all of it is under way.
    ///
    /// # Errors
    /// The first [`CallError`] on the way there.
    pub async fn begin(self) -> Result<RunningGreedyCaller, CallError> {
        let counts = Arc::new(GreedyCounts::default());
        let (ready, is_ready) = oneshot::channel();
        let thread = std::thread::spawn({
            let counts = Arc::clone(&counts);
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime can be built").block_on(self.work(&counts, ready))
            }
        });
        // Where it ended before, `end` says why.
        let _ = is_ready.await;
        sleep(WARM_UP).await;
        for count in [&counts.answered, &counts.refused, &counts.unread, &counts.broken, &counts.failed] {
            count.store(0, Ordering::Relaxed);
        }
        Ok(RunningGreedyCaller { counts, began: Instant::now(), thread })
    }

    async fn work(&self, counts: &Arc<GreedyCounts>, ready: oneshot::Sender<()>) -> Result<(), CallError> {
        let small = self.wants.concurrent.saturating_sub(self.wants.unread);
        let connected =
            try_join_all((0..small.div_ceil(STREAMS)).map(|_| Caller::connect(&self.destination))).await?;
        let careless = Caller::connect_windowed(&self.destination, UNREAD_WINDOW_BYTES).await?;
        let stranger = Destination { identity: None, ..self.destination.clone() };
        let strangers = try_join_all((0..STRANGERS).map(|_| Caller::connect(&stranger))).await?;

        let mut tasks = JoinSet::new();
        let slow = self.destination.uri(&format!("{}{SLOW}", self.prefix));
        for number in 0..small {
            let caller = shared(&connected[(number / STREAMS) as usize]);
            let rng = Dice::new(u64::from(number));
            tasks.spawn(ask_again(caller, slow.clone(), rng, Arc::clone(counts)));
        }
        let bulk = self.destination.uri(&format!("{}{BULK}", self.prefix));
        for number in 0..self.wants.unread {
            let rng = Dice::new(u64::from(number));
            tasks.spawn(read_nothing(shared(&careless), bulk.clone(), rng, Arc::clone(counts)));
        }
        let login = self.destination.uri(&format!("{}{LOGIN}", self.prefix));
        for (number, caller) in strangers.into_iter().enumerate() {
            let wrong = HeaderValue::from_str(&format!("Bearer wrong-{number}")).expect("a header");
            let caller = caller.with_authorization(wrong);
            tasks.spawn(fail(caller, login.clone(), self.wants.failures / STRANGERS, Arc::clone(counts)));
        }
        let _ = ready.send(()); // Whoever waits for it waits until then.
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
    /// Ends it.
    ///
    /// # Errors
    /// The first [`CallError`] that was none of its making.
    ///
    /// # Panics
    /// If it has.
    pub fn end(self) -> Result<GreedyFigures, CallError> {
        let seconds = self.began.elapsed().as_secs_f64();
        let GreedyCounts { answered, refused, under_way_max, unread, broken, failed, .. } = &*self.counts;
        let rate = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64 / seconds;
        let met = GreedyFigures {
            answered_per_second: rate(answered),
            refused_per_second: rate(refused),
            under_way_max: under_way_max.load(Ordering::Relaxed),
            unread_per_second: rate(unread),
            broken_per_second: rate(broken),
            failed_logins_per_second: rate(failed),
        };
        self.counts.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("it does not panic").map(|()| met)
    }
}

impl GreedyFigures {
    /// Of turns of the same length.
    pub fn sum(turns: &[Self]) -> Self {
        let mean =
            |figure: fn(&Self) -> f64| turns.iter().map(figure).sum::<f64>() / turns.len().max(1) as f64;
        Self {
            answered_per_second: mean(|met| met.answered_per_second),
            refused_per_second: mean(|met| met.refused_per_second),
            under_way_max: turns.iter().map(|met| met.under_way_max).max().unwrap_or_default(),
            unread_per_second: mean(|met| met.unread_per_second),
            broken_per_second: mean(|met| met.broken_per_second),
            failed_logins_per_second: mean(|met| met.failed_logins_per_second),
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

fn is_no(status: StatusCode) -> bool {
    [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&status)
}

/// Half of it to one and a half.
fn about(span: Duration, rng: &mut Dice) -> Duration {
    span.mul_f64(0.5 + rng.share())
}

async fn ask_again(
    mut caller: Caller,
    uri: Uri,
    mut rng: Dice,
    counts: Arc<GreedyCounts>,
) -> Result<(), CallError> {
    loop {
        counts.begun();
        match caller.get(&uri).await {
            Ok(_) => counts.ended(&counts.answered),
            Err(CallError::Refused { status, .. }) if is_no(status) => {
                counts.ended(&counts.refused);
                sleep(about(AGAIN, &mut rng)).await;
            }
            // Whoever reads nothing is cut off, and one of its other answers may be taken for such a one.
            Err(CallError::Http(_)) if !caller.is_over() => {
                counts.ended(&counts.broken);
                sleep(about(AGAIN, &mut rng)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn read_nothing(
    mut caller: Caller,
    uri: Uri,
    mut rng: Dice,
    counts: Arc<GreedyCounts>,
) -> Result<(), CallError> {
    loop {
        counts.begun();
        match caller.ask(Method::GET, &uri, RepeatedBody::empty()).await {
            Ok(unread) => {
                sleep(about(UNREAD, &mut rng)).await;
                drop(unread);
                counts.ended(&counts.unread);
            }
            Err(CallError::Refused { status, .. }) if is_no(status) => {
                counts.ended(&counts.refused);
                sleep(about(AGAIN, &mut rng)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn fail(caller: Caller, uri: Uri, per_second: u32, counts: Arc<GreedyCounts>) -> Result<(), CallError> {
    let mut bunches = interval(Duration::from_secs(1) / BUNCHES_PER_SECOND);
    bunches.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut begun = 0_u64;
    let since = Instant::now();
    loop {
        bunches.tick().await;
        let due = (since.elapsed().as_secs_f64() * f64::from(per_second)) as u64;
        let bunch = (begun..due).take(STREAMS as usize).map(|_| log_in(shared(&caller), uri.clone()));
        let failed = try_join_all(bunch).await?.len() as u64;
        begun += failed;
        counts.failed.fetch_add(failed, Ordering::Relaxed);
    }
}

/// One that fails: at a server that does nothing it is answered 200.
async fn log_in(mut caller: Caller, uri: Uri) -> Result<(), CallError> {
    match caller.ask(Method::GET, &uri, RepeatedBody::empty()).await {
        Ok(answer) => answer.into_body().collect().await.map(drop).map_err(CallError::Http),
        Err(CallError::Refused { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
