//! Exponential backoff with full jitter, for repeated attempts.

use std::time::Duration;

/// Waits that grow from `base` to `cap`, each drawn evenly from zero to the current limit.
///
/// Full jitter spreads a thousand agents whose server restarted, so that they do not come back at one
/// instant. <https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/>
#[derive(Debug, Clone)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    attempts: u32,
}

impl Backoff {
    /// The first wait is at most `base`, and none is longer than `cap`.
    #[must_use]
    pub fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap, attempts: 0 }
    }

    /// The next wait; `random` is any number, evenly distributed.
    pub fn next(&mut self, random: u64) -> Duration {
        let limit = self.limit();
        self.attempts = self.attempts.saturating_add(1);
        let share = random as f64 / u64::MAX as f64;
        limit.mul_f64(share).min(limit)
    }

    /// The next wait after a refusal that will not change by itself: from half the cap to the cap.
    pub fn next_after_refusal(&mut self, random: u64) -> Duration {
        self.attempts = u32::MAX;
        let half = self.cap / 2;
        let share = random as f64 / u64::MAX as f64;
        (half + half.mul_f64(share)).min(self.cap)
    }

    /// Starts again from the shortest wait. Called when a greeting has held, not when a handshake was made:
    /// in TLS 1.3 a handshake succeeds at the dialing side before the other has judged its certificate.
    pub fn reset(&mut self) {
        self.attempts = 0;
    }

    fn limit(&self) -> Duration {
        let factor = 1_u32.checked_shl(self.attempts).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.cap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BASE: Duration = Duration::from_millis(200);
    const CAP: Duration = Duration::from_secs(2);

    proptest! {
        #[test]
        fn no_wait_is_longer_than_its_limit(randoms in prop::collection::vec(any::<u64>(), 1..100)) {
            let mut backoff = Backoff::new(BASE, CAP);
            let mut limit = BASE;
            for random in randoms {
                prop_assert!(backoff.next(random) <= limit);
                limit = (limit * 2).min(CAP);
            }
        }

        #[test]
        fn a_refusal_waits_at_least_half_the_cap(random: u64) {
            let wait = Backoff::new(BASE, CAP).next_after_refusal(random);
            prop_assert!(wait >= CAP / 2 && wait <= CAP);
        }
    }

    #[test]
    fn the_whole_range_from_zero_to_the_limit_is_drawn() {
        assert_eq!(Backoff::new(BASE, CAP).next(0), Duration::ZERO);
        assert_eq!(Backoff::new(BASE, CAP).next(u64::MAX), BASE);
    }

    #[test]
    fn reset_begins_anew() {
        let mut backoff = Backoff::new(BASE, CAP);
        for _ in 0..10 {
            backoff.next(u64::MAX);
        }
        assert_eq!(backoff.next(u64::MAX), CAP);
        backoff.reset();
        assert_eq!(backoff.next(u64::MAX), BASE);
    }
}
