//! Small requests beside a bulk transfer: one every 50 ms, and how long each took.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use super::LinkTurn;

/// 20 callers, each of whom asks once a second.
const SMALL_EVERY: Duration = Duration::from_millis(50);
/// An answer that has not come by then counts as having taken so long.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Asks for so long while the bulk, of which `received` counts the bytes, goes on. `exchange` makes a request that resolves
/// to nothing where it failed.
pub(super) async fn measure<F>(
    lasts: Duration,
    received: &AtomicU64,
    mut exchange: impl FnMut() -> F,
) -> LinkTurn
where
    F: Future<Output = Option<()>> + Send + 'static,
{
    let (began, before) = (Instant::now(), received.load(Relaxed));
    let mut asked = JoinSet::new();
    let mut ticks = interval(SMALL_EVERY);
    while began.elapsed() < lasts {
        ticks.tick().await;
        asked.spawn(took(exchange()));
    }
    let bytes = received.load(Relaxed) - before;
    let goodput_mbit = bytes as f64 * 8.0 / 1e6 / began.elapsed().as_secs_f64();
    // The bulk goes on meanwhile: the last ones are asked beside it like the first.
    let took: Vec<Option<Duration>> = asked.join_all().await;

    let mut milliseconds: Vec<f64> =
        took.iter().map(|took| took.unwrap_or(ANSWER_MAX).as_secs_f64() * 1e3).collect();
    milliseconds.sort_by(f64::total_cmp);
    let part = |part: f64| milliseconds.get((milliseconds.len() as f64 * part) as usize).copied();
    LinkTurn { goodput_mbit, p50_ms: part(0.5), p99_ms: part(0.99), answered: took.iter().flatten().count() }
}

/// How long one small request took; nothing where it was not answered in time.
async fn took(exchange: impl Future<Output = Option<()>>) -> Option<Duration> {
    let began = Instant::now();
    timeout(ANSWER_MAX, exchange).await.ok()??;
    Some(began.elapsed())
}
