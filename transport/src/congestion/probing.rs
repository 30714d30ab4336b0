//! The size of bandwidth probes: small on a path that is already full, where a probe only builds a queue.

use std::time::Instant;

use super::delivery;

/// Gains of successive rounds, as long as each brings at least half of what it asked for. The second is the
/// draft's `BBRProbeBW_UP` gain; the next ones find a link that has become many times faster within a second.
const GAINS: [f64; 4] = [1.125, 1.25, 1.5, 2.0];

/// The step to begin with where the path is not known to be full.
pub(super) const UNKNOWN: usize = 1;

/// A path that carries this part of its bandwidth while nothing is tried is full. On one whose round trips
/// vary, less is carried: one product does not fill it, and its bandwidth is what probes show.
const FULL: f64 = 0.85;

/// A period without probes, in which the path's utilization is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct CruiseInterval {
    began: Instant,
    delivered: u64,
}

impl CruiseInterval {
    /// Begins a period, at this count of delivered bytes.
    pub(super) fn begin(now: Instant, delivered: u64) -> Self {
        Self { began: now, delivered }
    }

    /// The rate that the path carried in it, in bytes a second.
    pub(super) fn carried(&self, now: Instant, delivered: u64) -> u64 {
        delivery::per_second(delivered - self.delivered, now.saturating_duration_since(self.began))
    }
}

/// The first step of a probe, for a path of `bandwidth` that carried this rate without probes, both in bytes
/// a second.
pub(super) fn first_step(carried: u64, bandwidth: u64) -> usize {
    if carried as f64 >= bandwidth as f64 * FULL { 0 } else { UNKNOWN }
}

/// The factor by which a step multiplies the window.
pub(super) fn gain(step: usize) -> f64 {
    GAINS.get(step).or(GAINS.last()).copied().unwrap_or(1.0)
}
