//! How much more a probe asks for: little of a path that is full as it is, because a queue is all that it can make there.

use std::time::Instant;

use super::delivery;

/// Tried in one round after the other while each brings at least half of what it asked for. The second is the draft's
/// `BBRProbeBW_UP` gain; the next ones find a link that has become many times faster within a second.
const GAINS: [f64; 4] = [1.125, 1.25, 1.5, 2.0];

/// The step to begin with where the path is not known to be full.
pub(super) const UNKNOWN: usize = 1;

/// A path that carries this part of its bandwidth while nothing is tried is full. On one whose round trips vary, less is
/// carried: one product does not fill it, and its bandwidth is what probes show.
const FULL: f64 = 0.85;

/// A time in which nothing was tried.
#[derive(Debug, Clone, Copy)]
pub(super) struct CruiseInterval {
    began: Instant,
    delivered: u64,
}

impl CruiseInterval {
    /// Begins when `delivered` bytes had been delivered.
    pub(super) fn begin(now: Instant, delivered: u64) -> Self {
        Self { began: now, delivered }
    }

    /// What the path carried in it, in bytes a second.
    pub(super) fn carried(&self, now: Instant, delivered: u64) -> u64 {
        delivery::per_second(delivered - self.delivered, now.saturating_duration_since(self.began))
    }
}

/// The step to begin with on a path of `bandwidth` that carried so much while nothing was tried, both in bytes a second.
pub(super) fn first_step(carried: u64, bandwidth: u64) -> usize {
    if carried as f64 >= bandwidth as f64 * FULL { 0 } else { UNKNOWN }
}

/// What a step multiplies the window by.
pub(super) fn gain(step: usize) -> f64 {
    GAINS.get(step).or(GAINS.last()).copied().unwrap_or(1.0)
}
