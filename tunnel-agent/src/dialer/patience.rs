//! How long to wait before the next dial, by what became of the last one.

use std::time::Duration;

use proto::Backoff;

/// Waits after a dial that nobody answered. An attempt asks again after 1 s and ends after 3 s, so with this cap a server
/// that is back is asked within 3 s.
const UNANSWERED_BASE: Duration = Duration::from_millis(100);
const UNANSWERED_CAP: Duration = Duration::from_secs(1);

/// Waits after a tunnel that did not hold, and where a server is there and takes nobody: it is not to be dialed by a
/// thousand agents twice a second each.
const CROWDED_BASE: Duration = Duration::from_millis(200);
const CROWDED_CAP: Duration = Duration::from_secs(5);

/// Waits after a refusal that will not change by itself: a certificate, a version, a name.
const REFUSED_CAP: Duration = Duration::from_secs(60);

/// The longest that a server may ask an agent to stay away.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// A tunnel that held so long was a good one: the next dial begins at once.
pub(super) const HELD_MIN: Duration = Duration::from_secs(10);

/// What became of a dial that came to no tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setback {
    /// Nobody answered, or the way was broken.
    Unanswered,
    /// The server is there and takes nobody now.
    Crowded,
    /// The same, and it said for how long.
    Told(Duration),
    /// The same dial would fail the same way until somebody changes something.
    Refused,
}

/// What one carrier to one address has been through.
#[derive(Debug, Clone)]
pub(super) struct Patience {
    unanswered: Backoff,
    crowded: Backoff,
    refused: Backoff,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            unanswered: Backoff::new(UNANSWERED_BASE, UNANSWERED_CAP),
            crowded: Backoff::new(CROWDED_BASE, CROWDED_CAP),
            refused: Backoff::new(REFUSED_CAP, REFUSED_CAP),
        }
    }
}

impl Patience {
    /// The wait after a dial in vain; `random` is any number, evenly distributed.
    pub(super) fn after(&mut self, setback: Setback, random: u64) -> Duration {
        match setback {
            Setback::Unanswered => self.unanswered.next(random),
            Setback::Crowded => self.crowded.next(random),
            // Up to half as long again, so that all whom one server told the same do not come at one instant.
            Setback::Told(wait) => {
                let wait = wait.min(RETRY_AFTER_MAX);
                wait + Backoff::new(wait / 2, wait / 2).next(random)
            }
            Setback::Refused => self.refused.next_after_refusal(random),
        }
    }

    /// The wait after a tunnel that held so long.
    ///
    /// Only a tunnel that held is a success: in TLS 1.3 a handshake succeeds at the dialing side before the other has
    /// judged its certificate, and a server may greet and fall over.
    pub(super) fn after_tunnel(&mut self, held: Duration, random: u64) -> Duration {
        if held < HELD_MIN {
            return self.crowded.next(random);
        }
        *self = Self::default();
        self.unanswered.next(random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_that_held_makes_the_next_dial_begin_at_once() {
        let mut patience = weary();
        assert!(patience.after_tunnel(HELD_MIN, u64::MAX) <= UNANSWERED_BASE);
        assert!(patience.after(Setback::Crowded, u64::MAX) <= CROWDED_BASE);
    }

    #[test]
    fn a_tunnel_that_did_not_hold_changes_nothing() {
        let mut patience = weary();
        let short = HELD_MIN - Duration::from_millis(1);
        assert_eq!(patience.after_tunnel(short, u64::MAX), CROWDED_CAP);
        assert_eq!(patience.after(Setback::Unanswered, u64::MAX), UNANSWERED_CAP);
    }

    #[test]
    fn a_refusal_waits_at_least_half_of_the_longest_from_the_first_time_on() {
        assert!(Patience::default().after(Setback::Refused, 0) >= REFUSED_CAP / 2);
        assert!(Patience::default().after(Setback::Refused, u64::MAX) <= REFUSED_CAP);
    }

    #[test]
    fn what_is_asked_for_is_waited_and_no_server_silences_an_agent() {
        let asked = Duration::from_secs(7);
        let wait = |random| Patience::default().after(Setback::Told(asked), random);
        assert_eq!(wait(0), asked);
        assert_eq!(wait(u64::MAX), asked * 3 / 2);
        let longest = Patience::default().after(Setback::Told(Duration::MAX), u64::MAX);
        assert_eq!(longest, RETRY_AFTER_MAX * 3 / 2);
    }

    /// One that has had every setback often.
    fn weary() -> Patience {
        let mut patience = Patience::default();
        for _ in 0..20 {
            patience.after(Setback::Unanswered, u64::MAX);
            patience.after(Setback::Crowded, u64::MAX);
        }
        patience
    }
}
