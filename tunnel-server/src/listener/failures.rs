//! How often who has failed, by address: guessing costs a signature check each time, and nobody's site does it often.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::sources::prefix;

/// How long failures count.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);

/// Most sources that are remembered; beyond, the one that began to fail first is forgotten.
const SOURCES_MAX: usize = 4_096;

/// The failures of late.
#[derive(Debug)]
pub(crate) struct Failures {
    /// Most failures of one source within [`WINDOW`]; whoever has failed so often is not listened to until it ends.
    max: u32,
    sources: Mutex<HashMap<IpAddr, Window>>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    since: Instant,
    failures: u32,
}

impl Failures {
    /// None yet, of which a source may have so many.
    pub(crate) fn new(max: u32) -> Self {
        Self { max, sources: Mutex::default() }
    }

    /// Whether `source` is listened to.
    pub(crate) fn may_try(&self, source: IpAddr, now: Instant) -> bool {
        let sources = self.lock();
        let window = sources.get(&prefix(source)).filter(|window| window.holds(now));
        window.is_none_or(|window| window.failures < self.max)
    }

    /// What the source has that has failed most.
    pub(crate) fn most(&self, now: Instant) -> usize {
        let sources = self.lock();
        let most = sources.values().filter(|window| window.holds(now)).map(|window| window.failures).max();
        most.unwrap_or_default() as usize
    }

    /// Notes that `source` has failed.
    pub(crate) fn failed(&self, source: IpAddr, now: Instant) {
        let mut sources = self.lock();
        let source = prefix(source);
        if !sources.contains_key(&source) && sources.len() >= SOURCES_MAX {
            sources.retain(|_, window| window.holds(now));
            let first = sources.iter().min_by_key(|(_, window)| window.since).map(|(source, _)| *source);
            if let Some(first) = first.filter(|_| sources.len() >= SOURCES_MAX) {
                sources.remove(&first);
            }
        }
        let new = Window { since: now, failures: 0 };
        let window = sources.entry(source).or_insert(new);
        if !window.holds(now) {
            *window = new;
        }
        window.failures = window.failures.saturating_add(1);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Window>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Window {
    fn holds(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURES_MAX: u32 = 20;

    #[test]
    fn who_failed_too_often_is_not_listened_to_for_a_while_and_others_are() {
        let (failures, now) = (Failures::new(FAILURES_MAX), Instant::now());
        let (guesser, neighbour) = ("2001:db8::1".parse().unwrap(), "2001:db8:0:1::1".parse().unwrap());
        for _ in 0..FAILURES_MAX {
            assert!(failures.may_try(guesser, now));
            failures.failed(guesser, now);
        }
        assert!(!failures.may_try(guesser, now));
        assert!(!failures.may_try("2001:db8::2".parse().unwrap(), now), "the same network");
        assert!(failures.may_try(neighbour, now));
        assert!(failures.may_try(guesser, now + WINDOW));
        failures.failed(guesser, now + WINDOW);
        assert!(failures.may_try(guesser, now + WINDOW));
    }

    #[test]
    fn no_more_sources_than_the_limit_are_remembered() {
        let (failures, now) = (Failures::new(FAILURES_MAX), Instant::now());
        for n in 0..=SOURCES_MAX {
            let source = IpAddr::from(u32::try_from(n).unwrap().to_be_bytes());
            failures.failed(source, now + Duration::from_millis(n as u64));
        }
        assert_eq!(failures.lock().len(), SOURCES_MAX);
        assert!(!failures.lock().contains_key(&IpAddr::from([0, 0, 0, 0])));
    }
}
