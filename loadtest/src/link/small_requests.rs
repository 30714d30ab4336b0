//! Sends a small request every 50 ms beside a bulk transfer, and measures the latency of each.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use super::LinkTurn;

/// Interval of small requests, as of 20 callers with one request per second each.
const SMALL_EVERY: Duration = Duration::from_millis(50);
/// Longest wait for a response. A missing response counts with this latency.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Measures for this long beside the bulk transfer, whose bytes `received` counts. `exchange` makes a
/// request, which resolves to `None` if it fails.
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
    // The bulk transfer runs on, so that the last requests run beside it like the first.
    let took: Vec<Option<Duration>> = asked.join_all().await;

    let mut milliseconds: Vec<f64> =
        took.iter().map(|took| took.unwrap_or(ANSWER_MAX).as_secs_f64() * 1e3).collect();
    milliseconds.sort_by(f64::total_cmp);
    let part = |part: f64| milliseconds.get((milliseconds.len() as f64 * part) as usize).copied();
    LinkTurn { goodput_mbit, p50_ms: part(0.5), p99_ms: part(0.99), answered: took.iter().flatten().count() }
}

/// The latency of one small request. `None` if it failed or got no response in time.
async fn took(exchange: impl Future<Output = Option<()>>) -> Option<Duration> {
    let began = Instant::now();
    timeout(ANSWER_MAX, exchange).await.ok()??;
    Some(began.elapsed())
}
