//! Detects a bandwidth that fell, within a few round trips instead of the whole length of the bandwidth
//! filter.

use std::time::{Duration, Instant};

use super::delivery::{self, Sample};
use super::round_trip::{ROUND_TRIP_MIN, RoundTrip};

/// A queue of this many shortest round trips: our window cannot have built it unless the bandwidth fell.
const ROUND_TRIPS: f64 = 2.5;

/// Detects a bandwidth that fell to less than half: for two periods of four round trips each, no packet came
/// back soon and little was delivered. The periods are of time and not of rounds, because a round becomes as
/// long as the queue.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BandwidthDrop {
    since: Option<Instant>,
    delivered: u64,
    shortest: Option<Duration>,
    periods: u8,
}

impl BandwidthDrop {
    /// The new bandwidth in bytes a second, if it fell.
    pub(super) fn detect(
        &mut self,
        now: Instant,
        sample: &Sample,
        delivered: u64,
        round_trip: &RoundTrip,
        bandwidth: u64,
    ) -> Option<u64> {
        let usual = round_trip.shortest()?.max(ROUND_TRIP_MIN);
        let period = usual * 4;
        let Some(since) = self.since.filter(|since| now.saturating_duration_since(*since) < period * 2)
        else {
            // The first period, or one in which nothing was heard: silence is an outage, not a slow link.
            *self = Self { since: Some(now), delivered, ..Self::default() };
            return None;
        };
        self.shortest =
            Some(self.shortest.map_or(sample.round_trip, |shortest| shortest.min(sample.round_trip)));
        let elapsed = now.saturating_duration_since(since);
        if elapsed < period {
            return None;
        }
        let rate = delivery::per_second(delivered - self.delivered, elapsed);
        let queued = self.shortest.is_some_and(|shortest| shortest > usual.mul_f64(ROUND_TRIPS));
        let periods =
            if queued && !sample.app_limited && rate < bandwidth / 2 { self.periods + 1 } else { 0 };
        *self = Self { since: Some(now), delivered, shortest: None, periods };
        (periods == 2).then(|| {
            self.periods = 0;
            rate
        })
    }
}
