//! Whether the agent reaches any server, for its readiness.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use daemon::{Degraded, NotReady, Readiness};

use super::happy_eyeballs::Reachability;

/// What readiness calls it.
const PART: &str = "tunnel";

/// How all addresses together stand. Clones are the same.
#[derive(Clone)]
pub(super) struct DialerReadiness(Arc<Mutex<State>>);

struct State {
    readiness: Readiness,
    /// One for each seat.
    standings: Vec<(u64, Reachability)>,
    shown: Shown,
}

/// What readiness is told now.
enum Shown {
    Away(#[expect(dead_code, reason = "held, and dropped in time")] NotReady),
    Degraded(&'static str, #[expect(dead_code, reason = "held, and dropped in time")] Degraded),
    Well,
}

/// One address. Dropped, it reaches nobody any more.
pub(super) struct Seat {
    presence: DialerReadiness,
    number: u64,
}

impl DialerReadiness {
    /// Nobody is reached yet.
    pub(super) fn new(readiness: Readiness) -> Self {
        let shown = Shown::Away(readiness.lost(PART));
        Self(Arc::new(Mutex::new(State { readiness, standings: Vec::new(), shown })))
    }

    /// Another address, whose number no other bears.
    pub(super) fn seat(&self, number: u64) -> Seat {
        Seat { presence: self.clone(), number }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What is shown is made anew from all standings each time, so poison means nothing here.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn show(&mut self) {
        let best = self.standings.iter().map(|(_, standing)| *standing).max().unwrap_or(Reachability::Unreachable);
        match (best, &self.shown) {
            (Reachability::Unreachable, Shown::Away(_)) | (Reachability::Preferred, Shown::Well) => {}
            (Reachability::Unreachable, Shown::Degraded(..) | Shown::Well) => {
                self.shown = Shown::Away(self.readiness.lost(PART));
            }
            (Reachability::Preferred, Shown::Degraded(..) | Shown::Away(_)) => self.shown = Shown::Well,
            (Reachability::Silent, _) => self.degrade("every server is silent"),
            (Reachability::Fallback, _) => {
                self.degrade("on HTTP/2 over TCP, because UDP to the server does not pass")
            }
        }
    }

    fn degrade(&mut self, why: &'static str) {
        if !matches!(&self.shown, Shown::Degraded(shown, _) if *shown == why) {
            self.shown = Shown::Degraded(why, self.readiness.degraded(PART, why));
        }
    }
}

impl Seat {
    /// How the address stands now.
    pub(super) fn set(&self, standing: Reachability) {
        let mut state = self.presence.state();
        state.standings.retain(|(number, _)| *number != self.number);
        state.standings.push((self.number, standing));
        state.show();
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.presence.state();
        state.standings.retain(|(number, _)| *number != self.number);
        state.show();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_all_addresses_says_whether_the_agent_is_ready() {
        let readiness = Readiness::new();
        let presence = DialerReadiness::new(readiness.clone());
        assert_eq!(readiness.report(), "[-]tunnel not ready\n");

        let (one, other) = (presence.seat(1), presence.seat(2));
        one.set(Reachability::Fallback);
        other.set(Reachability::Unreachable);
        assert!(readiness.is_ready());
        assert!(readiness.report().starts_with("[+]tunnel degraded: on HTTP/2"), "{}", readiness.report());

        other.set(Reachability::Preferred);
        assert_eq!(readiness.report(), "[+]tunnel ok\n");

        drop(other);
        one.set(Reachability::Silent);
        assert_eq!(readiness.report(), "[+]tunnel degraded: every server is silent\n");
        drop(one);
        assert!(!readiness.is_ready());
    }
}
