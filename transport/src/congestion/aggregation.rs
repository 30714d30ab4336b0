//! Measures ACK aggregation: paths that gather acknowledgements (Wi-Fi, LTE) need more in flight to stay
//! busy.
//!
//! The measure is the number of bytes that are acknowledged at once beyond the bandwidth.

use std::time::Instant;

use super::bandwidth::product;

/// Rounds for which an excess counts. The draft has twice as many (draft-ietf-ccwg-bbr:
/// `ExtraAckedFilterLen`); its pace keeps them from becoming a queue, and ours would not.
const ROUNDS: usize = 5;

/// The excess of the last [`ROUNDS`] rounds.
#[derive(Debug, Clone, Default)]
pub(super) struct Aggregation {
    since: Option<Instant>,
    acked: u64,
    rounds: [u64; ROUNDS],
    now: usize,
}

impl Aggregation {
    /// The excess in bytes: the second greatest of the rounds. A path that aggregates does so in every round;
    /// a single bunch in five rounds comes from a machine that was busy with something else.
    pub(super) fn excess(&self) -> u64 {
        let (mut most, mut second) = (0, 0);
        for round in self.rounds {
            second = second.max(round.min(most));
            most = most.max(round);
        }
        second
    }

    /// `bytes` were acknowledged at once, on a path of `bandwidth` bytes a second.
    pub(super) fn acked(&mut self, now: Instant, bytes: u64, bandwidth: u64) {
        let since = *self.since.get_or_insert(now);
        let elapsed = now.saturating_duration_since(since);
        let mut expected = product(bandwidth, elapsed);
        // Slower than the bandwidth: the burst, if there was one, is over.
        if self.acked <= expected {
            self.since = Some(now);
            self.acked = 0;
            expected = 0;
        }
        self.acked += bytes;
        if let Some(round) = self.rounds.get_mut(self.now) {
            *round = (*round).max(self.acked.saturating_sub(expected));
        }
    }

    /// Begins a round, in which nothing of the last one counts: at a pace of 98 % of the bandwidth, a bunch
    /// of half a round would be made up for only in 25 rounds.
    pub(super) fn next_round(&mut self) {
        self.acked = 0;
        self.now = (self.now + 1) % ROUNDS;
        if let Some(round) = self.rounds.get_mut(self.now) {
            *round = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Bytes a second: one in a microsecond.
    const BANDWIDTH: u64 = 1_000_000;
    const BUNCH: u64 = 10_000;

    /// The excess after rounds of 40 ms, each of which brought its bytes at an even pace, or at once at its
    /// end.
    fn excess_after(rounds: &[bool]) -> u64 {
        let (mut aggregation, mut now) = (Aggregation::default(), Instant::now());
        for is_bunched in rounds {
            for _ in 0..4 {
                now += Duration::from_millis(10);
                let bytes = if *is_bunched { 0 } else { BUNCH };
                aggregation.acked(now, bytes, BANDWIDTH);
            }
            aggregation.acked(now, if *is_bunched { 4 * BUNCH } else { 0 }, BANDWIDTH);
            aggregation.next_round();
        }
        aggregation.excess()
    }

    #[test]
    fn aggregation_in_one_round_of_five_does_not_count() {
        let even = excess_after(&[false; 5]);
        assert_eq!(excess_after(&[false, false, true, false, false]), even);
    }

    #[test]
    fn aggregation_in_two_rounds_of_five_counts_until_they_have_passed() {
        let even = excess_after(&[false; 5]);
        assert!(excess_after(&[false, true, false, true, false]) > even + 2 * BUNCH);
        assert_eq!(excess_after(&[false, true, false, true, false, false, false]), even);
    }
}
