//! Reports to the agent's readiness whether any server is reached, and how well.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use daemon::{Degraded, NotReady, Readiness};

use super::carrier_choice::Reachability;

/// The name of this part in the readiness report.
const PART: &str = "tunnel";

/// The reachability of all addresses together. Clones share it.
#[derive(Clone)]
pub(super) struct DialerReadiness(Arc<Mutex<ReadinessState>>);

struct ReadinessState {
    readiness: Readiness,
    /// The reachability of each address, by the number of its supervisor.
    addresses: Vec<(u64, Reachability)>,
    reported: Reported,
}

/// The state that was reported last. It lasts until it is dropped.
enum Reported {
    NotReady(#[expect(dead_code, reason = "it counts until it is dropped")] NotReady),
    Degraded(&'static str, #[expect(dead_code, reason = "it counts until it is dropped")] Degraded),
    Ready,
}

/// The reachability of one address, which counts until this is dropped.
pub(super) struct AddressReadiness {
    all: DialerReadiness,
    number: u64,
}

impl DialerReadiness {
    /// No server is reached yet.
    pub(super) fn new(readiness: Readiness) -> Self {
        let reported = Reported::NotReady(readiness.lost(PART));
        Self(Arc::new(Mutex::new(ReadinessState { readiness, addresses: Vec::new(), reported })))
    }

    /// Adds an address. The number of its supervisor names it.
    pub(super) fn address(&self, number: u64) -> AddressReadiness {
        AddressReadiness { all: self.clone(), number }
    }

    fn state(&self) -> MutexGuard<'_, ReadinessState> {
        // The report is made anew from all addresses each time, so a poisoned lock does no harm.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadinessState {
    fn report(&mut self) {
        let best = self
            .addresses
            .iter()
            .map(|(_, reachability)| *reachability)
            .max()
            .unwrap_or(Reachability::Unreachable);
        match (best, &self.reported) {
            (Reachability::Unreachable, Reported::NotReady(_))
            | (Reachability::Preferred, Reported::Ready) => {}
            (Reachability::Unreachable, Reported::Degraded(..) | Reported::Ready) => {
                self.reported = Reported::NotReady(self.readiness.lost(PART));
            }
            (Reachability::Preferred, Reported::Degraded(..) | Reported::NotReady(_)) => {
                self.reported = Reported::Ready
            }
            (Reachability::Silent, _) => self.degrade("every server is silent"),
            (Reachability::Fallback, _) => {
                self.degrade("on HTTP/2 over TCP, because UDP to the server does not pass")
            }
        }
    }

    fn degrade(&mut self, why: &'static str) {
        if !matches!(&self.reported, Reported::Degraded(reported, _) if *reported == why) {
            self.reported = Reported::Degraded(why, self.readiness.degraded(PART, why));
        }
    }
}

impl AddressReadiness {
    /// The reachability of this address has changed.
    pub(super) fn set(&self, reachability: Reachability) {
        let mut state = self.all.state();
        state.addresses.retain(|(number, _)| *number != self.number);
        state.addresses.push((self.number, reachability));
        state.report();
    }
}

impl Drop for AddressReadiness {
    fn drop(&mut self) {
        let mut state = self.all.state();
        state.addresses.retain(|(number, _)| *number != self.number);
        state.report();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_is_as_ready_as_its_best_address() {
        let readiness = Readiness::new();
        let readiness_of_all = DialerReadiness::new(readiness.clone());
        assert_eq!(readiness.report(), "[-]tunnel not ready\n");

        let (one, other) = (readiness_of_all.address(1), readiness_of_all.address(2));
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
