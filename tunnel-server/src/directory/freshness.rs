//! The age of this server's memory of the records that many servers share, and what it may still do at that age.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The age from which nothing is changed any more, and no unknown cluster is let in.
pub const BEHIND_AFTER: Duration = Duration::from_secs(2);

/// The time after the limit of staleness after which what still runs is ended.
pub const ENDED_AFTER_STALE: Duration = Duration::from_secs(300);

/// The freshness of a server's memory. Later ones are worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Freshness {
    /// Every change of the last [`BEHIND_AFTER`] or longer ago is known.
    Fresh,
    /// Enrollment, renewal, changes and new clusters are refused. Everything else goes on.
    Behind,
    /// Nothing new is served, because revocations may be unknown. What runs goes on.
    Stale,
    /// Everything that still runs is ended.
    Outdated,
}

/// The age of a memory, which is proved again and again.
#[derive(Debug)]
pub(super) struct MemoryAge {
    created: Instant,
    /// The time up to which every change is known, in milliseconds after `created`.
    complete_at: AtomicU64,
    stale_limit: Duration,
    /// The reason why nothing more is followed.
    fault: OnceLock<String>,
}

impl MemoryAge {
    /// The age of a memory that is read now, and is stale at `stale_limit`.
    pub(super) fn new(stale_limit: Duration) -> Self {
        Self { created: Instant::now(), complete_at: AtomicU64::new(0), stale_limit, fault: OnceLock::new() }
    }

    /// The age at which the memory is stale.
    pub(super) fn stale_limit(&self) -> Duration {
        self.stale_limit
    }

    /// Notes that every change before `at` is known.
    pub(super) fn prove(&self, at: Instant) {
        let millis = at.saturating_duration_since(self.created).as_millis();
        self.complete_at.fetch_max(u64::try_from(millis).unwrap_or(u64::MAX), Ordering::AcqRel);
    }

    /// Notes that nothing more is followed, and why. The first reason stays.
    pub(super) fn set_fault(&self, why: String) {
        // Somebody else's reason is as good.
        let _ = self.fault.set(why);
    }

    /// The reason why nothing more is followed, if so.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }

    /// The time since which changes may be unknown.
    pub(super) fn age(&self) -> Duration {
        let complete_at = Duration::from_millis(self.complete_at.load(Ordering::Acquire));
        self.created.elapsed().saturating_sub(complete_at)
    }

    /// The freshness at this moment. A memory with a fault is behind at once.
    pub(super) fn freshness(&self) -> Freshness {
        let by_age = at_age(self.age(), self.stale_limit);
        if self.fault().is_some() { by_age.max(Freshness::Behind) } else { by_age }
    }
}

fn at_age(age: Duration, stale_limit: Duration) -> Freshness {
    if age >= stale_limit.saturating_add(ENDED_AFTER_STALE) {
        Freshness::Outdated
    } else if age >= stale_limit {
        Freshness::Stale
    } else if age >= BEHIND_AFTER {
        Freshness::Behind
    } else {
        Freshness::Fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn freshness_falls_with_age() {
        for (seconds, expected) in [
            (0, Freshness::Fresh),
            (1, Freshness::Fresh),
            (2, Freshness::Behind),
            (9, Freshness::Behind),
            (10, Freshness::Stale),
            (309, Freshness::Stale),
            (310, Freshness::Outdated),
        ] {
            assert_eq!(at_age(Duration::from_secs(seconds), LIMIT), expected, "{seconds} s");
        }
    }

    #[test]
    fn an_earlier_proof_makes_no_memory_older() {
        let memory = MemoryAge::new(LIMIT);
        let (now, hour) = (Instant::now(), Duration::from_secs(3600));
        memory.prove(now + hour);

        memory.prove(now);

        assert_eq!(memory.age(), Duration::ZERO);
        assert_eq!(memory.freshness(), Freshness::Fresh);
    }

    #[test]
    fn a_memory_that_follows_nothing_more_is_behind_at_once() {
        let memory = MemoryAge::new(LIMIT);
        memory.set_fault("a record cannot be read".to_owned());
        memory.set_fault("another reason".to_owned());
        memory.prove(Instant::now());

        assert_eq!(memory.freshness(), Freshness::Behind);
        assert_eq!(memory.fault(), Some("a record cannot be read"));
    }
}
