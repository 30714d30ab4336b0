//! The effect of a fault on others: how long another cluster's caller waits for small requests, before and
//! during it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The pause between two requests.
const ASK_EVERY: Duration = Duration::from_millis(25);

/// A caller that sends requests repeatedly until it is dropped.
#[derive(Debug)]
#[must_use = "the bystander goes home when this is dropped"]
pub struct Bystander {
    phases: Arc<Mutex<Phases>>,
    asking: JoinHandle<()>,
}

/// The effect of a fault on a bystander.
#[derive(Debug, Clone, PartialEq)]
pub struct BystanderReport {
    /// Requests before the fault, and their 99th percentile.
    pub before: (usize, Duration),
    /// The same count and time during the fault.
    pub during: (usize, Duration),
    /// Requests that failed, of all.
    pub failed: usize,
}

#[derive(Debug, Default)]
struct Phases {
    before: Vec<Duration>,
    during: Vec<Duration>,
    failed: usize,
    has_begun: bool,
}

impl Phases {
    fn note(&mut self, took: Duration, is_right: bool) {
        let phase = if self.has_begun { &mut self.during } else { &mut self.before };
        phase.push(took);
        self.failed += usize::from(!is_right);
    }
}

impl Bystander {
    /// Sends requests by `ask`, which returns whether the answer was right.
    pub fn start<F>(ask: impl Fn() -> F + Send + 'static) -> Self
    where
        F: Future<Output = bool> + Send,
    {
        let phases: Arc<Mutex<Phases>> = Arc::default();
        let shared = Arc::clone(&phases);
        let asking = tokio::spawn(async move {
            loop {
                let begun = Instant::now();
                let is_right = ask().await;
                let took = begun.elapsed();
                shared.lock().unwrap_or_else(PoisonError::into_inner).note(took, is_right);
                sleep(ASK_EVERY).await;
            }
        });
        Self { phases, asking }
    }

    /// From now on what is asked is asked during the fault.
    pub fn the_fault_begins(&self) {
        self.phases.lock().unwrap_or_else(PoisonError::into_inner).has_begun = true;
    }

    /// The effect that was measured so far.
    pub fn noticed(&self) -> BystanderReport {
        let phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        BystanderReport {
            before: (phases.before.len(), p99(&phases.before)),
            during: (phases.during.len(), p99(&phases.during)),
            failed: phases.failed,
        }
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.asking.abort();
    }
}

impl BystanderReport {
    /// The factor by which the slowest hundredth took longer than in the same run's own baseline.
    pub fn ratio(&self) -> f64 {
        self.during.1.as_secs_f64() / self.before.1.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// The 99th percentile by nearest rank; zero for an empty list.
pub fn p99(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * 99).div_ceil(100);
    rank.checked_sub(1).and_then(|index| sorted.get(index)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn the_99th_percentile_is_the_nearest_rank() {
        let times: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!(p99(&times), Duration::from_millis(198));
        assert_eq!((p99(&times[..1]), p99(&[])), (Duration::from_millis(200), Duration::ZERO));
    }

    #[tokio::test]
    async fn a_slower_and_failing_phase_differs_from_the_baseline() {
        let is_slow = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&is_slow);
        let bystander = Bystander::start(move || {
            let slow = shared.load(Ordering::Relaxed);
            async move {
                sleep(Duration::from_millis(if slow { 200 } else { 1 })).await;
                !slow
            }
        });
        until(|| bystander.noticed().before.0 >= 3).await;
        is_slow.store(true, Ordering::Relaxed);
        bystander.the_fault_begins();
        until(|| bystander.noticed().failed >= 1).await;
        let noticed = bystander.noticed();
        assert!(noticed.during.1 >= Duration::from_millis(200), "{noticed:?}");
        assert!(noticed.ratio() > 0.0);
    }

    async fn until(done: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !done() {
            assert!(Instant::now() < deadline);
            sleep(Duration::from_millis(5)).await;
        }
    }
}
