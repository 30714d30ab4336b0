//! How often each of many has done something of late, of no more of them than are remembered.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What each has done since its window began.
#[derive(Debug)]
pub(crate) struct Tally<K> {
    /// How long what was done counts.
    window: Duration,
    /// Of how many it is remembered; beyond, the one whose window began first is forgotten.
    remembered: usize,
    windows: Mutex<HashMap<K, Window>>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    since: Instant,
    count: u32,
}

impl<K: Eq + Hash + Clone> Tally<K> {
    /// Nobody has done anything yet.
    pub(crate) fn new(window: Duration, remembered: usize) -> Self {
        Self { window, remembered, windows: Mutex::default() }
    }

    /// How often it has done it.
    pub(crate) fn of(&self, who: &K, now: Instant) -> u32 {
        let windows = self.lock();
        windows.get(who).filter(|window| self.holds(window, now)).map_or(0, |window| window.count)
    }

    /// How often the one has that did it most.
    pub(crate) fn most(&self, now: Instant) -> u32 {
        let windows = self.lock();
        windows
            .values()
            .filter(|window| self.holds(window, now))
            .map(|window| window.count)
            .max()
            .unwrap_or(0)
    }

    /// Notes that it has done it.
    pub(crate) fn add(&self, who: K, now: Instant) {
        let mut windows = self.lock();
        if !windows.contains_key(&who) && windows.len() >= self.remembered {
            windows.retain(|_, window| self.holds(window, now));
            let first = windows.iter().min_by_key(|(_, window)| window.since).map(|(who, _)| who.clone());
            if let Some(first) = first.filter(|_| windows.len() >= self.remembered) {
                windows.remove(&first);
            }
        }
        let new = Window { since: now, count: 0 };
        let window = windows.entry(who).or_insert(new);
        if !self.holds(window, now) {
            *window = new;
        }
        window.count = window.count.saturating_add(1);
    }

    fn holds(&self, window: &Window, now: Instant) -> bool {
        now.saturating_duration_since(window.since) < self.window
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Window>> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    #[test]
    fn what_was_done_counts_for_a_window_and_for_whoever_did_it() {
        let (tally, now) = (Tally::new(WINDOW, 8), Instant::now());
        for _ in 0..3 {
            tally.add('a', now);
        }
        tally.add('b', now + WINDOW / 2);

        assert_eq!([tally.of(&'a', now), tally.of(&'b', now), tally.of(&'c', now)], [3, 1, 0]);
        assert_eq!(tally.most(now), 3);
        assert_eq!([tally.of(&'a', now + WINDOW), tally.most(now + WINDOW)], [0, 1]);
        tally.add('a', now + WINDOW);
        assert_eq!(tally.of(&'a', now + WINDOW), 1, "another window begins with it");
    }

    #[test]
    fn no_more_are_remembered_than_may_be_and_who_began_first_is_forgotten() {
        let (tally, now) = (Tally::new(WINDOW, 8), Instant::now());
        for n in 0..=8_u64 {
            tally.add(n, now + Duration::from_secs(n));
        }
        let later = now + Duration::from_secs(9);
        assert_eq!(tally.lock().len(), 8);
        assert_eq!([tally.of(&0, later), tally.of(&1, later), tally.of(&8, later)], [0, 1, 1]);
        tally.add(8, later);
        assert_eq!(tally.of(&1, later), 1, "who is remembered takes nobody's place");
    }
}
