//! The lease of this server's entry, and how long it lasts for sure by this server's own clock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd::Lease;
use tokio::sync::watch;

/// The entry is removed when its server was silent for this long.
pub const REGISTRATION_TTL: Duration = Duration::from_secs(10);

/// The time before the end of its lease from which a server no longer relies on it. What was sent just before arrives in it.
pub const LEASE_MARGIN: Duration = Duration::from_secs(2);

/// The lease of this server, which the registration keeps alive; none while it is not registered.
pub(super) type OwnLeaseState = Arc<watch::Sender<Option<OwnLease>>>;

/// A lease that etcd has kept alive at least once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OwnLease<L = Lease> {
    lease: L,
    good_until: Instant,
}

impl<L: Copy + PartialEq> OwnLease<L> {
    /// A lease whose last successful keep-alive, or whose grant, began at `began`.
    pub(super) fn kept(lease: L, began: Instant) -> Self {
        Self { lease, good_until: began + (REGISTRATION_TTL - LEASE_MARGIN) }
    }

    pub(super) fn lease(self) -> L {
        self.lease
    }

    /// The time until which the lease can be relied on; `None` if that is over at `now`.
    pub(super) fn good_until(self, now: Instant) -> Option<Instant> {
        (now < self.good_until).then_some(self.good_until)
    }

    /// The same for a key that is bound to the lease `bound`.
    pub(super) fn holds(self, bound: L, now: Instant) -> Option<Instant> {
        if self.lease == bound { self.good_until(now) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: i64 = 1;
    const SECOND: i64 = 2;

    /// The process may have been stopped meanwhile.
    #[test]
    fn a_lease_is_relied_on_until_shortly_before_it_may_end() {
        let began = Instant::now();
        let own = OwnLease::kept(FIRST, began);
        let last = began + (REGISTRATION_TTL - LEASE_MARGIN);

        for (now, expected) in [
            (began, Some(last)),
            (last - Duration::from_millis(1), Some(last)),
            (last, None),
            (began + REGISTRATION_TTL, None),
            (began + Duration::from_secs(30), None),
        ] {
            assert_eq!(own.good_until(now), expected, "{:?}", now - began);
            assert_eq!(own.holds(FIRST, now), expected, "{:?}", now - began);
        }
    }

    #[test]
    fn a_later_sign_of_life_prolongs_the_same_lease() {
        let began = Instant::now();
        let later = began + Duration::from_secs(3);

        let own = OwnLease::kept(FIRST, later);

        let after_the_first = began + REGISTRATION_TTL;
        assert!(own.holds(FIRST, after_the_first).is_some());
    }

    /// etcd has removed the key with the lease before, and another server may have it by now.
    #[test]
    fn a_key_of_an_earlier_lease_is_held_no_more() {
        let now = Instant::now();
        let own = OwnLease::kept(SECOND, now);

        assert_eq!(own.holds(FIRST, now), None);
        assert!(own.holds(SECOND, now).is_some());
    }
}
