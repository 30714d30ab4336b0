//! Whether this process can do its work: ready when every reason not to be was dropped.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The reasons why this process is not ready. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<Parts>>);

/// A reason not to be ready; dropping it takes this one away.
#[derive(Debug)]
#[must_use = "the process becomes ready when this is dropped"]
pub struct NotReady {
    readiness: Readiness,
    part: &'static str,
}

/// How many guards hold each part back. A part stays listed after its last guard was dropped.
type Parts = BTreeMap<&'static str, usize>;

impl Readiness {
    /// Nothing is missing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A part that must become ready first: not ready until the guard is dropped. Take all of them before the
    /// probes are bound, so that no moment of false readiness exists.
    pub fn handle(&self, part: &'static str) -> NotReady {
        *self.parts().entry(part).or_default() += 1;
        NotReady { readiness: self.clone(), part }
    }

    /// A part that was ready and no longer is: not ready until the guard is dropped.
    pub fn lost(&self, part: &'static str) -> NotReady {
        self.handle(part)
    }

    /// Whether nothing is missing.
    pub fn is_ready(&self) -> bool {
        self.parts().values().all(|&guards| guards == 0)
    }

    /// One line per part, `[+]gateway ok` or `[-]tunnel not ready`, in the order of their names.
    pub fn report(&self) -> String {
        let mut report = String::new();
        for (part, &guards) in self.parts().iter() {
            let line = if guards == 0 { format!("[+]{part} ok") } else { format!("[-]{part} not ready") };
            // Writing to a String cannot fail.
            let _ = writeln!(report, "{line}");
        }
        report
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        // Counting cannot leave the map half-changed, so poison means nothing here.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for NotReady {
    fn drop(&mut self) {
        if let Some(guards) = self.readiness.parts().get_mut(self.part) {
            *guards -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_only_when_every_handle_was_dropped() {
        let readiness = Readiness::new();
        let gateway = readiness.handle("gateway");
        let tunnel = readiness.handle("tunnel");

        drop(gateway);
        assert!(!readiness.is_ready());
        assert_eq!(readiness.report(), "[+]gateway ok\n[-]tunnel not ready\n");

        drop(tunnel);
        assert!(readiness.is_ready());
    }

    #[test]
    fn a_lost_part_is_not_ready_until_its_last_guard_is_dropped() {
        let readiness = Readiness::new();
        drop(readiness.handle("tunnel"));

        let first = readiness.lost("tunnel");
        let second = readiness.lost("tunnel");
        drop(first);
        assert!(!readiness.is_ready());

        drop(second);
        assert!(readiness.is_ready());
    }
}
