//! Repairs QUIC's round-trip estimate after an outage that distorted it.
//!
//! Packets that arrived just before a path went dark are acknowledged when it is back, and quinn takes the
//! whole outage for a sample of the round trip (`quinn_proto`, `Connection::on_ack_received`). An eighth of
//! it stays in the estimate, and half of it in the variation: after an outage of two minutes the probe
//! timeout is two minutes, and the pacer sends one window in fifteen seconds. Only further samples repair it,
//! each by an eighth. So as many pings are sent as that takes, each of some sixty bytes, and meanwhile the
//! pacer is corrected.

use std::time::{Duration, Instant};

/// Interval of repairing pings. As many as a repair needs take half a second at most.
const PING_EVERY: Duration = Duration::from_millis(4);

/// Pings that halve the error: five samples, of which each takes two pings, because a peer acknowledges every
/// second packet.
const PINGS_PER_HALVING: u32 = 11;

/// An estimate is distorted, and not merely old, if it is this many times a ping's own round trip and exceeds
/// it by this much. A queue that has filled up or emptied since explains less.
const FACTOR_MIN: u128 = 3;
const BEYOND_MIN: Duration = Duration::from_millis(200);

/// Most halvings: from the longest outage that a tunnel survives down to a millisecond.
const HALVINGS_MAX: u32 = 20;

/// The progress of a repair: the pings that are left, and the time of the next one.
#[derive(Debug, Default)]
pub(crate) struct RttRepair {
    pings_left: u32,
    next: Option<Instant>,
}

impl RttRepair {
    /// Compares the estimate with a ping's round trip, and returns the factor by which it is too long; one,
    /// if it is not.
    pub(crate) fn correction_factor(&mut self, now: Instant, estimate: Duration, ping: Duration) -> u64 {
        let factor = estimate.as_micros() / ping.as_micros().max(1);
        if factor < FACTOR_MIN || estimate < ping + BEYOND_MIN {
            *self = Self::default();
            return 1;
        }
        if self.pings_left == 0 {
            self.pings_left = PINGS_PER_HALVING * (factor.ilog2() + 1).min(HALVINGS_MAX);
            self.next = Some(now);
        }
        u64::try_from(factor).unwrap_or(u64::MAX)
    }

    /// The time at which the next ping is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Returns true if a ping is due. If it is, it counts as sent.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.next.is_some_and(|next| next <= now);
        if due {
            self.pings_left = self.pings_left.saturating_sub(1);
            self.next = (self.pings_left > 0).then_some(now + PING_EVERY);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: Duration = Duration::from_millis(40);

    #[test]
    fn an_estimate_that_a_queue_explains_is_not_repaired() {
        let (mut repair, now) = (RttRepair::default(), Instant::now());
        for estimate in [PING, PING * 5, PING / 2] {
            assert_eq!((repair.correction_factor(now, estimate, PING), repair.next()), (1, None));
        }
    }

    #[test]
    fn enough_pings_are_sent_to_repair_the_estimate() {
        for outage in [3, 30, 120, 600] {
            let (mut repair, mut now) = (RttRepair::default(), Instant::now());
            let mut estimate = PING + Duration::from_secs(outage) / 8;
            let factor = repair.correction_factor(now, estimate, PING);
            assert_eq!(u128::from(factor), estimate.as_micros() / PING.as_micros());
            let mut pings = 0;
            while let Some(next) = repair.next() {
                now = next;
                assert!(repair.is_due(now));
                pings += 1;
                if pings % 2 == 0 {
                    // RFC 9002, section 5.3.
                    estimate = (estimate * 7 + PING) / 8;
                }
            }
            assert!(pings < 160, "{pings} pings after {outage} s");
            assert_eq!(
                repair.correction_factor(now, estimate, PING),
                1,
                "{estimate:?} after {outage} s and {pings} pings"
            );
        }
    }

    #[test]
    fn an_estimate_that_is_still_distorted_is_repaired_again() {
        let (mut repair, now) = (RttRepair::default(), Instant::now());
        repair.correction_factor(now, PING * 100, PING);
        while repair.next().is_some() {
            repair.is_due(repair.next().unwrap());
        }
        repair.correction_factor(now, PING * 50, PING);
        assert!(repair.is_due(now));
    }
}
