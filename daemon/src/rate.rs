//! How many of something may come in a second, and how many at once. Pure.

use std::time::{Duration, Instant};

/// So many a second, once a burst is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// At least 1.
    pub per_second: u32,
    /// How many may come at once; at least 1.
    pub burst: u32,
}

/// What is left of a burst. It fills up by itself, whole after [`Rate::fills_in`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// When it was, or will be, full, had nothing come since: what has come puts that off.
    full_at: Instant,
}

impl Rate {
    /// How long an empty bucket takes to be full.
    #[must_use]
    pub fn fills_in(self) -> Duration {
        self.each() * self.burst.max(1)
    }

    fn each(self) -> Duration {
        Duration::from_secs(1) / self.per_second.max(1)
    }
}

impl Bucket {
    /// A full one.
    #[must_use]
    pub fn full(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Takes one out, if there is one.
    pub fn take(&mut self, rate: Rate, now: Instant) -> bool {
        let full_at = self.full_at.max(now) + rate.each();
        let is_left = full_at <= now + rate.fills_in();
        if is_left {
            self.full_at = full_at;
        }
        is_left
    }

    /// Whether it is full, so that another full one is as good.
    #[must_use]
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_may_come_at_once_and_then_so_many_a_second_and_not_one_more() {
        let (rate, now) = (Rate { per_second: 10, burst: 20 }, Instant::now());
        let mut bucket = Bucket::full(now);

        assert_eq!((0..100).filter(|_| bucket.take(rate, now)).count(), 20);
        let later = now + Duration::from_secs(1);
        assert_eq!((0..100).filter(|_| bucket.take(rate, later)).count(), 10);
        let much_later = later + Duration::from_secs(3_600);
        assert!(!bucket.is_full(later) && bucket.is_full(later + rate.fills_in()));
        assert_eq!((0..100).filter(|_| bucket.take(rate, much_later)).count(), 20, "no more than the burst");
    }
}
