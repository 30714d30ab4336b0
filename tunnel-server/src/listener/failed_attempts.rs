//! How often who has failed, by address: guessing costs a signature check each time, and nobody's site does it often.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::source_limits::prefix;
use super::windowed_counts::WindowedCounts;

/// How long failures count.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);

/// Most sources that are remembered; beyond, the one that began to fail first is forgotten.
const SOURCES_MAX: usize = 4_096;

/// The failures of late.
#[derive(Debug)]
pub(crate) struct FailedAttempts {
    /// Most failures of one source within [`WINDOW`]; whoever has failed so often is not listened to until it ends.
    max: u32,
    sources: WindowedCounts<IpAddr>,
}

impl FailedAttempts {
    /// None yet, of which a source may have so many.
    pub(crate) fn new(max: u32) -> Self {
        Self { max, sources: WindowedCounts::new(WINDOW, SOURCES_MAX) }
    }

    /// Whether `source` is listened to.
    pub(crate) fn may_try(&self, source: IpAddr, now: Instant) -> bool {
        self.sources.count(&prefix(source), now) < self.max
    }

    /// What the source has that has failed most.
    pub(crate) fn most(&self, now: Instant) -> usize {
        self.sources.max(now) as usize
    }

    /// Notes that `source` has failed.
    pub(crate) fn failed(&self, source: IpAddr, now: Instant) {
        self.sources.add(prefix(source), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURES_MAX: u32 = 20;

    #[test]
    fn who_failed_too_often_is_not_listened_to_for_a_while_and_others_are() {
        let (failures, now) = (FailedAttempts::new(FAILURES_MAX), Instant::now());
        let (guesser, other_network) = ("2001:db8::1".parse().unwrap(), "2001:db8:0:1::1".parse().unwrap());
        for _ in 0..FAILURES_MAX {
            assert!(failures.may_try(guesser, now));
            failures.failed(guesser, now);
        }
        assert!(!failures.may_try(guesser, now));
        assert!(!failures.may_try("2001:db8::2".parse().unwrap(), now), "the same network");
        assert!(failures.may_try(other_network, now));
        assert!(failures.may_try(guesser, now + WINDOW));
        failures.failed(guesser, now + WINDOW);
        assert!(failures.may_try(guesser, now + WINDOW));
    }

    #[test]
    fn the_most_that_a_source_has_failed_is_told_while_it_counts() {
        let (failures, now) = (FailedAttempts::new(FAILURES_MAX), Instant::now());
        assert_eq!(failures.most(now), 0);
        for source in ["10.0.0.1", "10.0.0.2", "2001:db8::1", "10.0.0.2", "2001:db8::2", "2001:db8::3"] {
            failures.failed(source.parse().unwrap(), now);
        }
        assert_eq!(failures.most(now), 3, "the network of the last");
        assert_eq!(failures.most(now + WINDOW), 0);
    }

    #[test]
    fn no_more_sources_than_the_limit_are_remembered() {
        let (failures, now) = (FailedAttempts::new(1), Instant::now());
        let source = |n: usize| IpAddr::from(u32::try_from(n).unwrap().to_be_bytes());
        for n in 0..=SOURCES_MAX {
            failures.failed(source(n), now + Duration::from_millis(n as u64));
        }
        let later = now + Duration::from_millis(SOURCES_MAX as u64);
        assert!(failures.may_try(source(0), later));
        assert!(!failures.may_try(source(1), later));
    }
}
