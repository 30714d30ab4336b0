//! The settings and limits that all watches of one gateway share.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::buffer_budget::BufferBudget;
use crate::config;
use crate::registry::WaitQueue;

/// Most bytes of incomplete events that all watches hold together.
const PARTIAL_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The shared settings and limits of all watches of one gateway.
pub(in crate::gateway) struct WatchResources {
    pub(super) settings: config::WatchesConfig,
    /// The queue in which watches wait for disconnected clusters.
    pub(super) places: WaitQueue,
    pub(super) budget: BufferBudget,
    /// Time for which what runs may continue after a drain began.
    drain_grace: Duration,
    /// The number of watches whose end in a drain was planned.
    planned: AtomicU32,
}

impl WatchResources {
    pub(in crate::gateway) fn new(settings: config::WatchesConfig, drain_grace: Duration) -> Self {
        let places = WaitQueue::new(settings.per_cluster, config::WATCHES_PARKED_MAX);
        let budget = BufferBudget::new(PARTIAL_BYTES_MAX);
        Self { settings, places, budget, drain_grace, planned: AtomicU32::new(0) }
    }

    /// The time after the begin of a drain at which the next watch ends, so that another server gets its caller. Those of
    /// all watches are spread evenly over half the grace.
    pub(super) fn end_in_drain(&self) -> Duration {
        let number = self.planned.fetch_add(1, Ordering::Relaxed);
        // Multiples of the golden ratio, modulo one, are spread evenly however many there are (Weyl's sequence).
        let share = f64::from(number.wrapping_mul(0x9E37_79B9)) / f64::from(u32::MAX);
        (self.drain_grace / 2).mul_f64(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_end_evenly_over_half_the_grace() {
        let settings = config::WatchesConfig {
            resume: true,
            limit: Duration::ZERO,
            per_cluster: 1,
            event_bytes_max: config::WATCH_EVENT_BYTES_MIN,
        };
        let resources = WatchResources::new(settings, Duration::from_secs(40));
        let mut in_quarter = [0; 4];

        for _ in 0..100 {
            let end = resources.end_in_drain();
            assert!(end <= Duration::from_secs(20), "{end:?}");
            in_quarter[(end.as_secs() / 5).min(3) as usize] += 1;
        }

        assert!(in_quarter.iter().all(|count| (23..=27).contains(count)), "{in_quarter:?}");
    }
}
