//! Estimates the path's round trip, without any queue and with the part of the queue that is not ours.

use std::time::{Duration, Instant};

/// A shortest round trip that has not been seen for this long is probed for (draft-ietf-ccwg-bbr:
/// `ProbeRTTInterval`).
const PROBE_RTT_AFTER: Duration = Duration::from_secs(5);
/// Least value of that time, in round trips, so that on a far path a cycle of probing, which empties the
/// queue, fits in.
const PROBE_RTT_AFTER_ROUND_TRIPS: u32 = 20;

/// The shortest round trip expires after this many times that time (the draft's `MinRTTFilterLen`).
const EXPIRY_FACTOR: u32 = 2;

/// Two round trips count as equal if they differ by less than this part, or by less than this minimum.
const TOLERANCE_PART: u32 = 32;
const TOLERANCE_MIN: Duration = Duration::from_micros(500);

/// Below this a round trip is that of schedulers and not of the path: two busy machines beside each other
/// answer in milliseconds what they answer in microseconds when idle.
pub(super) const ROUND_TRIP_MIN: Duration = Duration::from_millis(5);

/// Estimates of a path's round trip.
#[derive(Debug, Clone, Default)]
pub(super) struct RoundTrip {
    shortest: Option<RttSample>,
    /// The shortest since it was last probed for. All flows of a bottleneck see its queue shrink at the same
    /// moment, and therefore probe for the next one at the same moment, when all of them make room.
    recent: Option<RttSample>,
    latest: Option<Duration>,
    cycle: Option<Duration>,
    cycle_before: Option<Duration>,
    /// The shortest of this round, and of the one before.
    round: Option<Duration>,
    round_before: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
struct RttSample {
    round_trip: Duration,
    at: Instant,
}

impl RttSample {
    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }
}

impl RoundTrip {
    /// The shortest one: propagation, without a queue.
    pub(super) fn shortest(&self) -> Option<Duration> {
        self.shortest.map(|sample| sample.round_trip)
    }

    /// The round trip that was measured last.
    pub(super) fn latest(&self) -> Option<Duration> {
        self.latest
    }

    /// The shortest one of this cycle of probing and the one before, in each of which we drained what we had
    /// queued: what it is above [`shortest`](Self::shortest) is the queue of others.
    pub(super) fn standing(&self) -> Option<Duration> {
        match (self.cycle, self.cycle_before) {
            (Some(now), Some(before)) => Some(now.min(before)),
            (one, other) => one.or(other).or_else(|| self.shortest()),
        }
    }

    /// The time that everything waited in queues throughout the last round, in both directions together.
    pub(super) fn queued(&self) -> Duration {
        self.beyond_shortest(self.round_before)
    }

    /// The same for the current round.
    pub(super) fn queued_now(&self) -> Duration {
        self.beyond_shortest(self.round)
    }

    fn beyond_shortest(&self, round_trip: Option<Duration>) -> Duration {
        round_trip
            .zip(self.shortest())
            .map_or(Duration::ZERO, |(round_trip, shortest)| round_trip.saturating_sub(shortest))
    }

    /// Adds a measured round trip. Returns true if the shortest was not seen for [`PROBE_RTT_AFTER`] and
    /// should be probed for.
    pub(super) fn measured(&mut self, now: Instant, round_trip: Duration, app_limited: bool) -> bool {
        self.latest = Some(round_trip);
        self.round = Some(self.round.map_or(round_trip, |round| round.min(round_trip)));
        let probe_rtt_after =
            PROBE_RTT_AFTER.max(self.shortest().unwrap_or_default() * PROBE_RTT_AFTER_ROUND_TRIPS);
        let old = self.recent.is_some_and(|sample| sample.age(now) > probe_rtt_after);
        let recent = match self.recent {
            Some(sample) if !old && round_trip > sample.round_trip + tolerance(sample.round_trip) => sample,
            Some(sample) if !old => RttSample { round_trip: round_trip.min(sample.round_trip), at: now },
            _ => RttSample { round_trip, at: now },
        };
        self.recent = Some(recent);
        self.shortest = match self.shortest {
            Some(sample) if sample.age(now) > probe_rtt_after * EXPIRY_FACTOR => Some(recent),
            Some(sample) if recent.round_trip > sample.round_trip + tolerance(sample.round_trip) => {
                Some(sample)
            }
            Some(sample) => {
                Some(RttSample { round_trip: recent.round_trip.min(sample.round_trip), at: recent.at })
            }
            None => Some(recent),
        };
        // The receiver may delay an acknowledgement while little is sent, which would look like a queue.
        if !app_limited {
            self.cycle = Some(self.cycle.map_or(round_trip, |cycle| cycle.min(round_trip)));
        }
        old
    }

    /// Begins a new round of packets.
    pub(super) fn next_round(&mut self) {
        self.round_before = self.round.take();
    }

    /// Begins a new cycle of probing.
    pub(super) fn next_cycle(&mut self) {
        self.cycle_before = self.cycle.take();
    }
}

/// The tolerance within which two round trips count as equal.
fn tolerance(round_trip: Duration) -> Duration {
    (round_trip / TOLERANCE_PART).max(TOLERANCE_MIN)
}
