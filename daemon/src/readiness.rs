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

/// A part that works, and not as well as it should, for as long as this is held.
#[derive(Debug)]
#[must_use = "the part counts as well again when this is dropped"]
pub struct Degraded {
    readiness: Readiness,
    part: &'static str,
    why: &'static str,
}

/// A part stays listed after its last guard was dropped.
type Parts = BTreeMap<&'static str, Part>;

#[derive(Debug, Default)]
struct Part {
    /// How many guards hold it back.
    missing: usize,
    /// Why it is not as it should be, once for each guard.
    degraded: Vec<&'static str>,
}

impl Readiness {
    /// Nothing is missing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A part that must become ready first: not ready until the guard is dropped. Take all of them before the
    /// probes are bound, so that no moment of false readiness exists.
    pub fn handle(&self, part: &'static str) -> NotReady {
        self.parts().entry(part).or_default().missing += 1;
        NotReady { readiness: self.clone(), part }
    }

    /// A part that was ready and no longer is: not ready until the guard is dropped.
    pub fn lost(&self, part: &'static str) -> NotReady {
        self.handle(part)
    }

    /// A part that is ready and not as well as it should be, for a reason that is shown until the guard is dropped.
    pub fn degraded(&self, part: &'static str, why: &'static str) -> Degraded {
        self.parts().entry(part).or_default().degraded.push(why);
        Degraded { readiness: self.clone(), part, why }
    }

    /// Whether nothing is missing.
    pub fn is_ready(&self) -> bool {
        self.parts().values().all(|part| part.missing == 0)
    }

    /// Whether everything is as well as it should be.
    pub fn is_well(&self) -> bool {
        self.parts().values().all(|part| part.missing == 0 && part.degraded.is_empty())
    }

    /// One line per part, `[+]gateway ok`, `[+]tunnel degraded: WHY` or `[-]tunnel not ready`, in the order of their
    /// names.
    pub fn report(&self) -> String {
        let mut report = String::new();
        for (name, part) in self.parts().iter() {
            let line = match part.degraded.last() {
                _ if part.missing > 0 => format!("[-]{name} not ready"),
                Some(why) => format!("[+]{name} degraded: {why}"),
                None => format!("[+]{name} ok"),
            };
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
        if let Some(part) = self.readiness.parts().get_mut(self.part) {
            part.missing -= 1;
        }
    }
}

impl Drop for Degraded {
    fn drop(&mut self) {
        if let Some(part) = self.readiness.parts().get_mut(self.part)
            && let Some(index) = part.degraded.iter().position(|why| *why == self.why)
        {
            part.degraded.remove(index);
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

    #[test]
    fn a_degraded_part_is_ready_and_says_why_until_the_guard_is_dropped() {
        let readiness = Readiness::new();
        let degraded = readiness.degraded("tunnel", "on HTTP/2");
        assert!(readiness.is_ready() && !readiness.is_well());
        assert_eq!(readiness.report(), "[+]tunnel degraded: on HTTP/2\n");
        drop(readiness.lost("tunnel"));

        drop(degraded);
        assert!(readiness.is_well());
        assert_eq!(readiness.report(), "[+]tunnel ok\n");
    }
}
