//! How much more than the bandwidth allows is acknowledged at once: paths that gather acknowledgements (Wi-Fi, LTE) need
//! that much more in flight to stay busy.

use std::time::{Duration, Instant};

/// Rounds for which an excess counts. The draft has twice as many (draft-ietf-ccwg-bbr: `ExtraAckedFilterLen`); its pace
/// keeps them from becoming a queue, and ours would not.
const ROUNDS: usize = 5;

/// The greatest excess of the last [`ROUNDS`] rounds.
#[derive(Debug, Clone, Default)]
pub(super) struct Aggregation {
    since: Option<Instant>,
    acked: u64,
    rounds: [u64; ROUNDS],
    now: usize,
}

impl Aggregation {
    /// Bytes.
    pub(super) fn excess(&self) -> u64 {
        self.rounds.iter().copied().max().unwrap_or(0)
    }

    /// `bytes` were acknowledged at once, on a path of `bandwidth` bytes a second.
    pub(super) fn acked(&mut self, now: Instant, bytes: u64, bandwidth: u64) {
        let since = *self.since.get_or_insert(now);
        let elapsed = now.saturating_duration_since(since);
        let mut expected = expected(bandwidth, elapsed);
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

    pub(super) fn next_round(&mut self) {
        self.now = (self.now + 1) % ROUNDS;
        if let Some(round) = self.rounds.get_mut(self.now) {
            *round = 0;
        }
    }
}

/// What `bandwidth` delivers in that time.
fn expected(bandwidth: u64, elapsed: Duration) -> u64 {
    u64::try_from(u128::from(bandwidth) * elapsed.as_nanos() / 1_000_000_000).unwrap_or(u64::MAX)
}
