//! Backoff between dials of one carrier, by the outcome of the last dial.

use std::time::Duration;

use proto::Backoff;

/// Waits after a dial without an answer. An attempt retransmits after 1 s and ends after 3 s, so with this
/// cap a server that is up again is asked within 3 s.
const UNANSWERED_BASE: Duration = Duration::from_millis(100);
const UNANSWERED_CAP: Duration = Duration::from_secs(1);

/// Waits after a tunnel that did not last, and after an overloaded server: a thousand agents must not dial it
/// twice a second each.
const OVERLOADED_BASE: Duration = Duration::from_millis(200);
const OVERLOADED_CAP: Duration = Duration::from_secs(5);

/// Waits after a refusal that lasts until somebody acts: a certificate, a version, a name.
const REFUSED_CAP: Duration = Duration::from_secs(60);

/// Longest wait that a server may ask an agent for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// A tunnel that lasted so long was stable: the next dial begins at once.
pub(super) const STABLE_AFTER: Duration = Duration::from_secs(10);

/// A tunnel that turned from suspect to live must stay live for this long before a healthy tunnel is drained
/// for it. Some paths carry its heartbeats and little else, or only at times.
pub(super) const STEADY_AFTER: Duration = Duration::from_secs(120);

const _: () = assert!(STEADY_AFTER.as_secs() > STABLE_AFTER.as_secs());

/// The kind of a failed dial, which decides how long to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DialFailure {
    /// Nobody answered, or the network was broken.
    Unanswered,
    /// The server is up and accepts no tunnels now.
    Overloaded,
    /// The same, and the server said for how long.
    RetryAfter(Duration),
    /// The same dial would fail the same way until somebody changes something.
    Refused,
}

/// The backoff of one carrier to one address.
#[derive(Debug, Clone)]
pub(super) struct DialBackoff {
    unanswered: Backoff,
    overloaded: Backoff,
    refused: Backoff,
}

impl Default for DialBackoff {
    fn default() -> Self {
        Self {
            unanswered: Backoff::new(UNANSWERED_BASE, UNANSWERED_CAP),
            overloaded: Backoff::new(OVERLOADED_BASE, OVERLOADED_CAP),
            refused: Backoff::new(REFUSED_CAP, REFUSED_CAP),
        }
    }
}

impl DialBackoff {
    /// The wait after a failed dial. `random` is evenly distributed.
    pub(super) fn after_failure(&mut self, failure: DialFailure, random: u64) -> Duration {
        match failure {
            DialFailure::Unanswered => self.unanswered.next(random),
            DialFailure::Overloaded => self.overloaded.next(random),
            // Up to half as long again, so that agents of one server do not come back at one instant.
            DialFailure::RetryAfter(wait) => {
                let wait = wait.min(RETRY_AFTER_MAX);
                wait + Backoff::new(wait / 2, wait / 2).next(random)
            }
            DialFailure::Refused => self.refused.next_after_refusal(random),
        }
    }

    /// The wait after a tunnel that lasted so long.
    ///
    /// Only a stable tunnel is a success. In TLS 1.3 a handshake succeeds at the dialing side before the
    /// server has verified its certificate, and a server may greet and then crash.
    pub(super) fn after_tunnel(&mut self, lasted: Duration, random: u64) -> Duration {
        if lasted < STABLE_AFTER {
            return self.overloaded.next(random);
        }
        *self = Self::default();
        self.unanswered.next(random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_stable_tunnel_the_next_dial_begins_at_once() {
        let mut backoff = exhausted();
        assert!(backoff.after_tunnel(STABLE_AFTER, u64::MAX) <= UNANSWERED_BASE);
        assert!(backoff.after_failure(DialFailure::Overloaded, u64::MAX) <= OVERLOADED_BASE);
    }

    #[test]
    fn a_tunnel_that_did_not_last_resets_no_backoff() {
        let mut backoff = exhausted();
        let short = STABLE_AFTER - Duration::from_millis(1);
        assert_eq!(backoff.after_tunnel(short, u64::MAX), OVERLOADED_CAP);
        assert_eq!(backoff.after_failure(DialFailure::Unanswered, u64::MAX), UNANSWERED_CAP);
    }

    #[test]
    fn a_refusal_waits_at_least_half_of_the_longest_from_the_first_time_on() {
        assert!(DialBackoff::default().after_failure(DialFailure::Refused, 0) >= REFUSED_CAP / 2);
        assert!(DialBackoff::default().after_failure(DialFailure::Refused, u64::MAX) <= REFUSED_CAP);
    }

    #[test]
    fn a_retry_after_is_respected_up_to_its_limit() {
        let asked = Duration::from_secs(7);
        let wait = |random| DialBackoff::default().after_failure(DialFailure::RetryAfter(asked), random);
        assert_eq!(wait(0), asked);
        assert_eq!(wait(u64::MAX), asked * 3 / 2);
        let longest = DialBackoff::default().after_failure(DialFailure::RetryAfter(Duration::MAX), u64::MAX);
        assert_eq!(longest, RETRY_AFTER_MAX * 3 / 2);
    }

    /// A backoff that has reached its longest waits.
    fn exhausted() -> DialBackoff {
        let mut backoff = DialBackoff::default();
        for _ in 0..20 {
            backoff.after_failure(DialFailure::Unanswered, u64::MAX);
            backoff.after_failure(DialFailure::Overloaded, u64::MAX);
        }
        backoff
    }
}
