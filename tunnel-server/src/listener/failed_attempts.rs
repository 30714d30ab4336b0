//! Counts failed logins by source address. Guessing costs a signature check each time, and legitimate sites
//! rarely fail.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::windowed_counts::WindowedCounts;
use daemon::listen::source_of;

/// The time for which a failure counts.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);

/// Most sources that are remembered. Beyond this number the one that began to fail first is forgotten.
const SOURCES_MAX: usize = 4_096;

/// The recent failures of each source.
#[derive(Debug)]
pub(crate) struct FailedAttempts {
    /// Most failures of one source within [`WINDOW`]. A source with more is refused until its window ends.
    max: u32,
    sources: WindowedCounts<IpAddr>,
}

impl FailedAttempts {
    /// Creates an empty set, with a limit for each source.
    pub(crate) fn new(max: u32) -> Self {
        Self { max, sources: WindowedCounts::new(WINDOW, SOURCES_MAX) }
    }

    /// Returns true if `source` may try again now.
    pub(crate) fn may_try(&self, source: IpAddr, now: Instant) -> bool {
        self.sources.count(&source_of(source), now) < self.max
    }

    /// The failures of the source that has most.
    pub(crate) fn most(&self, now: Instant) -> usize {
        self.sources.max(now) as usize
    }

    /// Counts one more failure of `source`.
    pub(crate) fn failed(&self, source: IpAddr, now: Instant) {
        self.sources.add(source_of(source), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURES_MAX: u32 = 20;

    #[test]
    fn a_source_with_too_many_failures_is_refused_for_a_while() {
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
    fn the_busiest_source_is_reported_within_its_window() {
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
