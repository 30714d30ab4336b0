//! Estimates the bottleneck's bandwidth: the greatest recent delivery rate.

use std::time::Duration;

/// Rounds for which a measurement counts: longer than a cycle of probing, so that what the last probe found
/// lasts until the next one (BBRv1 has 10 rounds for a cycle of 8).
const ROUNDS: usize = 12;

/// The greatest delivery rate of the last [`ROUNDS`] rounds, in bytes a second.
#[derive(Debug, Clone, Default)]
pub(super) struct Bandwidth {
    rounds: [u64; ROUNDS],
    now: usize,
}

impl Bandwidth {
    /// The bandwidth in bytes a second; zero before the first measurement.
    pub(super) fn get(&self) -> u64 {
        self.rounds.iter().copied().max().unwrap_or(0)
    }

    /// The greatest rate of the current round so far.
    pub(super) fn this_round(&self) -> u64 {
        self.rounds.get(self.now).copied().unwrap_or(0)
    }

    pub(super) fn measured(&mut self, rate: u64) {
        if let Some(round) = self.rounds.get_mut(self.now) {
            *round = rate.max(*round);
        }
    }

    /// Ends a round that the path limited. Rounds that the application limited are not counted, so that
    /// idleness forgets nothing.
    pub(super) fn next_round(&mut self) {
        self.now = (self.now + 1) % ROUNDS;
        if let Some(round) = self.rounds.get_mut(self.now) {
            *round = 0;
        }
    }

    /// Forgets all rounds: the path has changed, and `rate` is all that is known of it.
    pub(super) fn replace(&mut self, rate: u64) {
        self.rounds = [0; ROUNDS];
        self.measured(rate);
    }
}

/// The bytes that `bandwidth` delivers within a time: for a round trip, the bandwidth-delay product.
pub(super) fn product(bandwidth: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(bandwidth) * time.as_nanos() / 1_000_000_000).unwrap_or(u64::MAX)
}
