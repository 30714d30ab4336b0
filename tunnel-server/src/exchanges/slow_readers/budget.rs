//! Which of the exchanges that wait for their callers are too many.

use std::collections::HashMap;
use std::time::Duration;

/// An exchange whose caller has taken nothing for so long is slow. A caller on a slow link takes something more often:
/// its kernel tells of a third of its socket's buffer at a time.
pub(super) const SLOW_AFTER: Duration = Duration::from_secs(5);

/// Where `OVERLOAD_FACTOR` times the budget waits at once, for so long already.
pub(super) const SLOW_AFTER_OVERLOADED: Duration = Duration::from_secs(1);
const _: () = assert!(SLOW_AFTER_OVERLOADED.as_millis() < SLOW_AFTER.as_millis());

/// Many callers who all begin not to read hold more than the budget before patience ends, but no more than this many
/// times as much for longer than [`SLOW_AFTER_OVERLOADED`].
const OVERLOAD_FACTOR: usize = 2;

/// How many slow exchanges are borne.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    pub(super) per_tunnel: usize,
    pub(super) in_all: usize,
}

/// An exchange that waits for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WaitingReader {
    pub(super) exchange: u64,
    pub(super) tunnel: u64,
    pub(super) waited: Duration,
}

/// How many wait on a tunnel, or on all of them.
#[derive(Debug, Default, Clone, Copy)]
struct ReaderCount {
    waiting: usize,
    slow: usize,
}

/// What is to be ended so that the rest keeps within the budget: those first that have waited longest. All in `waiting`
/// have waited for [`SLOW_AFTER_OVERLOADED`] at least.
pub(super) fn excess(mut waiting: Vec<WaitingReader>, budget: Budget) -> Vec<WaitingReader> {
    let mut all = ReaderCount::default();
    let mut tunnels: HashMap<u64, ReaderCount> = HashMap::new();
    for one in &waiting {
        all.add(one);
        tunnels.entry(one.tunnel).or_default().add(one);
    }
    waiting.sort_unstable_by_key(|one| std::cmp::Reverse(one.waited));
    waiting.retain(|one| {
        let Some(tunnel) = tunnels.get_mut(&one.tunnel) else { return false };
        let is_excess = tunnel.exceeds(budget.per_tunnel) || all.exceeds(budget.in_all);
        if is_excess {
            tunnel.take(one);
            all.take(one);
        }
        is_excess
    });
    waiting
}

impl WaitingReader {
    pub(super) fn is_slow(&self) -> bool {
        self.waited >= SLOW_AFTER
    }
}

impl ReaderCount {
    fn add(&mut self, one: &WaitingReader) {
        self.waiting += 1;
        self.slow += usize::from(one.is_slow());
    }

    fn take(&mut self, one: &WaitingReader) {
        self.waiting -= 1;
        self.slow -= usize::from(one.is_slow());
    }

    fn exceeds(&self, budget: usize) -> bool {
        self.slow > budget || self.waiting > OVERLOAD_FACTOR * budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget { per_tunnel: 3, in_all: 5 };

    #[test]
    fn within_the_budget_nobody_is_ended_however_long_it_waits() {
        assert_eq!(ended(&[(1, 9_000), (1, 8_000), (1, 1_000_000)]), [0_u64; 0]);
    }

    #[test]
    fn past_it_those_who_waited_longest_are_ended_and_the_newest_stay() {
        assert_eq!(ended(&[(1, 6_000), (1, 9_000), (1, 5_000), (1, 8_000), (1, 7_000)]), [1, 3]);
    }

    #[test]
    fn who_took_something_within_the_patience_is_not_stalled() {
        assert_eq!(ended(&[(1, 6_000), (1, 7_000), (1, 4_999), (1, 4_999), (1, 5_000)]), [0_u64; 0]);
    }

    #[test]
    fn beyond_twice_the_budget_patience_is_shorter() {
        let seven: Vec<_> = (0..7).map(|extra| (1, 1_000 + extra)).collect();
        assert_eq!(ended(&seven[..6]), [0_u64; 0]);
        assert_eq!(ended(&seven), [6]);
    }

    #[test]
    fn another_tunnels_exchanges_are_not_counted() {
        assert_eq!(ended(&[(1, 9_000), (1, 9_000), (1, 9_000), (2, 6_000), (2, 6_000)]), [0_u64; 0]);
    }

    #[test]
    fn all_tunnels_together_have_a_budget_too() {
        let six = [(1, 6_000), (2, 9_000), (3, 6_000), (4, 6_000), (5, 6_000), (6, 6_000)];
        assert_eq!(ended(&six), [1]);
    }

    /// The exchanges, numbered as they stand, that are ended.
    fn ended(waits: &[(u64, u64)]) -> Vec<u64> {
        let waiting = waits.iter().zip(0..).map(|((tunnel, waited), exchange)| WaitingReader {
            exchange,
            tunnel: *tunnel,
            waited: Duration::from_millis(*waited),
        });
        excess(waiting.collect(), BUDGET).iter().map(|one| one.exchange).collect()
    }
}
