//! A token bucket: limits the rate of events, and the size of bursts. Pure.

use std::time::{Duration, Instant};

/// A rate limit: events per second, after an initial burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Events in a second; at least 1.
    pub per_second: u32,
    /// Events that may come at once; at least 1.
    pub burst: u32,
}

/// The tokens that are left of a burst. An empty bucket is full again after [`Rate::refill_time`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    /// The time at which the bucket is or will be full. Each taken token moves it later.
    full_at: Instant,
}

impl Rate {
    /// The time in which an empty bucket becomes full.
    #[must_use]
    pub fn refill_time(self) -> Duration {
        self.interval() * self.burst.max(1)
    }

    /// The time after which a taken token is back.
    #[must_use]
    pub fn interval(self) -> Duration {
        Duration::from_secs(1) / self.per_second.max(1)
    }
}

impl TokenBucket {
    /// A bucket with all its tokens.
    #[must_use]
    pub fn full(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Takes a token; `false` if none is left.
    pub fn take(&mut self, rate: Rate, now: Instant) -> bool {
        self.take_for(rate.interval(), rate, now)
    }

    /// Takes a token that is back after `interval`, where that of `rate` is shorter. So only a part of the rate and of the
    /// burst is left. A full bucket gives one in any case.
    pub fn take_for(&mut self, interval: Duration, rate: Rate, now: Instant) -> bool {
        let full_at = self.full_at.max(now) + interval;
        let is_left = self.is_full(now) || full_at <= now + rate.refill_time();
        if is_left {
            self.full_at = full_at;
        }
        is_left
    }

    /// Returns true if the bucket is full, so that a new bucket can replace it.
    #[must_use]
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_rate_has_the_same_part_of_the_burst() {
        let (rate, now) = (Rate { per_second: 10, burst: 20 }, Instant::now());
        let (mut bucket, interval) = (TokenBucket::full(now), Duration::from_millis(400));
        let mut take = |now| (0..100).filter(|_| bucket.take_for(interval, rate, now)).count();

        assert_eq!(take(now), 5, "a quarter of the burst");
        assert_eq!(take(now + Duration::from_secs(2)), 5, "a quarter of the rate");
    }

    #[test]
    fn a_full_bucket_gives_one_token_though_its_part_is_smaller() {
        let (rate, now) = (Rate { per_second: 1, burst: 1 }, Instant::now());
        let (mut bucket, interval) = (TokenBucket::full(now), Duration::from_secs(3));

        assert!(bucket.take_for(interval, rate, now));
        assert!(!bucket.take_for(interval, rate, now + Duration::from_millis(2_999)));
        assert!(bucket.take_for(interval, rate, now + Duration::from_secs(3)));
    }

    #[test]
    fn a_burst_is_admitted_at_once_and_then_the_rate() {
        let (rate, now) = (Rate { per_second: 10, burst: 20 }, Instant::now());
        let mut bucket = TokenBucket::full(now);

        assert_eq!((0..100).filter(|_| bucket.take(rate, now)).count(), 20);
        let later = now + Duration::from_secs(1);
        assert_eq!((0..100).filter(|_| bucket.take(rate, later)).count(), 10);
        let much_later = later + Duration::from_secs(3_600);
        assert!(!bucket.is_full(later) && bucket.is_full(later + rate.refill_time()));
        assert_eq!((0..100).filter(|_| bucket.take(rate, much_later)).count(), 20, "no more than the burst");
    }
}
