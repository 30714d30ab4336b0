//! Readiness of the process: it is ready once every guard that says otherwise was dropped.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The readiness of the process, by parts. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<Parts>>);

/// Keeps the process unready until it is dropped.
#[derive(Debug)]
#[must_use = "the process becomes ready when this is dropped"]
pub struct NotReady {
    readiness: Readiness,
    part: &'static str,
    why: Option<Cow<'static, str>>,
}

/// Marks a part as degraded, but ready, until it is dropped.
#[derive(Debug)]
#[must_use = "the part counts as well again when this is dropped"]
pub struct Degraded {
    readiness: Readiness,
    part: &'static str,
    why: Cow<'static, str>,
}

/// All parts by name. A part stays listed after its last guard was dropped.
type Parts = BTreeMap<&'static str, Part>;

#[derive(Debug, Default)]
struct Part {
    /// The number of guards that keep it unready.
    missing: usize,
    /// The reasons of those that gave one.
    lost: Vec<Cow<'static, str>>,
    /// The reasons of degradation, one for each guard.
    degraded: Vec<Cow<'static, str>>,
}

impl Readiness {
    /// A readiness without any parts, which is ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a part that must become ready first: the process is unready until the guard is dropped. Take all
    /// guards before the probes are bound, so that no probe sees a false readiness.
    pub fn handle(&self, part: &'static str) -> NotReady {
        self.parts().entry(part).or_default().missing += 1;
        NotReady { readiness: self.clone(), part, why: None }
    }

    /// Marks a part that was ready as lost: the process is unready until the guard is dropped.
    pub fn lost(&self, part: &'static str) -> NotReady {
        self.handle(part)
    }

    /// The same with the reason `why`, which is reported until the guard is dropped.
    pub fn lost_because(&self, part: &'static str, why: impl Into<Cow<'static, str>>) -> NotReady {
        let why = why.into();
        let mut parts = self.parts();
        let entry = parts.entry(part).or_default();
        entry.missing += 1;
        entry.lost.push(why.clone());
        drop(parts);
        NotReady { readiness: self.clone(), part, why: Some(why) }
    }

    /// Marks a part as degraded, but ready. The reason `why` is reported until the guard is dropped.
    pub fn degraded(&self, part: &'static str, why: impl Into<Cow<'static, str>>) -> Degraded {
        let why = why.into();
        self.parts().entry(part).or_default().degraded.push(why.clone());
        Degraded { readiness: self.clone(), part, why }
    }

    /// Returns true if every part is ready.
    pub fn is_ready(&self) -> bool {
        self.parts().values().all(|part| part.missing == 0)
    }

    /// Returns true if every part is ready and none is degraded.
    pub fn is_healthy(&self) -> bool {
        self.parts().values().all(|part| part.missing == 0 && part.degraded.is_empty())
    }

    /// One line per part, `[+]gateway ok`, `[+]tunnel degraded: WHY`, `[-]tunnel not ready` or
    /// `[-]tunnel not ready: WHY`, ordered by name.
    pub fn report(&self) -> String {
        let mut report = String::new();
        for (name, part) in self.parts().iter() {
            let line = match (part.lost.last(), part.degraded.last()) {
                (Some(why), _) => format!("[-]{name} not ready: {why}"),
                (None, _) if part.missing > 0 => format!("[-]{name} not ready"),
                (None, Some(why)) => format!("[+]{name} degraded: {why}"),
                (None, None) => format!("[+]{name} ok"),
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
            if let Some(index) =
                self.why.as_ref().and_then(|why| part.lost.iter().position(|lost| lost == why))
            {
                part.lost.remove(index);
            }
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
        let second = readiness.lost_because("tunnel", "no link");
        drop(first);
        assert!(!readiness.is_ready());
        assert_eq!(readiness.report(), "[-]tunnel not ready: no link\n");

        drop(second);
        assert!(readiness.is_ready());
        assert_eq!(readiness.report(), "[+]tunnel ok\n");
    }

    #[test]
    fn a_degraded_part_is_ready_and_says_why_until_the_guard_is_dropped() {
        let readiness = Readiness::new();
        let degraded = readiness.degraded("tunnel", "on HTTP/2");
        assert!(readiness.is_ready() && !readiness.is_healthy());
        assert_eq!(readiness.report(), "[+]tunnel degraded: on HTTP/2\n");
        drop(readiness.lost("tunnel"));

        drop(degraded);
        assert!(readiness.is_healthy());
        assert_eq!(readiness.report(), "[+]tunnel ok\n");
    }
}
