//! Counts events by key within a time window, for a bounded number of keys.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The number of events of each key since its window began.
#[derive(Debug)]
pub(crate) struct WindowedCounts<K> {
    /// The length of a window; older events do not count.
    window: Duration,
    /// Most keys that are remembered. Beyond this number the key whose window began first is forgotten.
    capacity: usize,
    windows: Mutex<HashMap<K, Window>>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    since: Instant,
    count: u32,
}

impl<K: Eq + Hash + Clone> WindowedCounts<K> {
    /// Creates an empty set of counts.
    pub(crate) fn new(window: Duration, capacity: usize) -> Self {
        Self { window, capacity, windows: Mutex::default() }
    }

    /// The number of events of `key` within its window.
    pub(crate) fn count(&self, key: &K, now: Instant) -> u32 {
        let windows = self.lock();
        windows.get(key).filter(|window| self.is_current(window, now)).map_or(0, |window| window.count)
    }

    /// The number of events of the key that has most.
    pub(crate) fn max(&self, now: Instant) -> u32 {
        let windows = self.lock();
        windows
            .values()
            .filter(|window| self.is_current(window, now))
            .map(|window| window.count)
            .max()
            .unwrap_or(0)
    }

    /// Counts one more event of `key`.
    pub(crate) fn add(&self, key: K, now: Instant) {
        let mut windows = self.lock();
        if !windows.contains_key(&key) && windows.len() >= self.capacity {
            windows.retain(|_, window| self.is_current(window, now));
            let first = windows.iter().min_by_key(|(_, window)| window.since).map(|(key, _)| key.clone());
            if let Some(first) = first.filter(|_| windows.len() >= self.capacity) {
                windows.remove(&first);
            }
        }
        let new = Window { since: now, count: 0 };
        let window = windows.entry(key).or_insert(new);
        if !self.is_current(window, now) {
            *window = new;
        }
        window.count = window.count.saturating_add(1);
    }

    fn is_current(&self, window: &Window, now: Instant) -> bool {
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
    fn events_count_by_key_within_their_window() {
        let (counts, now) = (WindowedCounts::new(WINDOW, 8), Instant::now());
        for _ in 0..3 {
            counts.add('a', now);
        }
        counts.add('b', now + WINDOW / 2);

        assert_eq!([counts.count(&'a', now), counts.count(&'b', now), counts.count(&'c', now)], [3, 1, 0]);
        assert_eq!(counts.max(now), 3);
        assert_eq!([counts.count(&'a', now + WINDOW), counts.max(now + WINDOW)], [0, 1]);
        counts.add('a', now + WINDOW);
        assert_eq!(counts.count(&'a', now + WINDOW), 1, "another window begins with it");
    }

    #[test]
    fn beyond_the_capacity_the_oldest_window_is_forgotten() {
        let (counts, now) = (WindowedCounts::new(WINDOW, 8), Instant::now());
        for n in 0..=8_u64 {
            counts.add(n, now + Duration::from_secs(n));
        }
        let later = now + Duration::from_secs(9);
        assert_eq!(counts.lock().len(), 8);
        assert_eq!([counts.count(&0, later), counts.count(&1, later), counts.count(&8, later)], [0, 1, 1]);
        counts.add(8, later);
        assert_eq!(counts.count(&1, later), 1, "a remembered key displaces no other");
    }
}
