//! Selects the slow readers to end: those beyond the budget that have waited longest. Pure.

use std::collections::HashMap;
use std::time::Duration;

use crate::registry::TunnelNumber;

/// A caller that has read nothing for this long is a slow reader. A caller on a slow link reads more often:
/// its kernel acknowledges a third of its socket's buffer at a time.
pub(super) const SLOW_AFTER: Duration = Duration::from_secs(5);

/// The shorter time that counts while more than [`OVERLOAD_FACTOR`] times the budget waits.
pub(super) const SLOW_AFTER_OVERLOADED: Duration = Duration::from_secs(1);
const _: () = assert!(SLOW_AFTER_OVERLOADED.as_millis() < SLOW_AFTER.as_millis());

/// Many callers that stop reading at once can exceed the budget before [`SLOW_AFTER`] has passed. They hold
/// no more than this many times the budget for longer than [`SLOW_AFTER_OVERLOADED`].
const OVERLOAD_FACTOR: usize = 2;

/// The number of slow readers that are allowed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    pub(super) per_tunnel: usize,
    pub(super) in_all: usize,
}

/// An exchange that waits for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WaitingReader {
    pub(super) exchange: u64,
    pub(super) tunnel: TunnelNumber,
    pub(super) waited: Duration,
}

/// Number of waiting exchanges on one tunnel, or on all tunnels.
#[derive(Debug, Default, Clone, Copy)]
struct ReaderCount {
    waiting: usize,
    slow: usize,
}

/// The exchanges to end so that the rest fits the budget: those that have waited longest come first. All of
/// `waiting` have waited for at least [`SLOW_AFTER_OVERLOADED`].
pub(super) fn excess(mut waiting: Vec<WaitingReader>, budget: Budget) -> Vec<WaitingReader> {
    let mut all = ReaderCount::default();
    let mut tunnels: HashMap<TunnelNumber, ReaderCount> = HashMap::new();
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
    fn within_the_budget_no_exchange_is_ended_however_long_it_waits() {
        assert_eq!(ended(&[(1, 9_000), (1, 8_000), (1, 1_000_000)]), [0_u64; 0]);
    }

    #[test]
    fn beyond_the_budget_the_longest_waits_end_and_the_newest_stay() {
        assert_eq!(ended(&[(1, 6_000), (1, 9_000), (1, 5_000), (1, 8_000), (1, 7_000)]), [1, 3]);
    }

    #[test]
    fn a_caller_that_has_read_within_slow_after_is_no_slow_reader() {
        assert_eq!(ended(&[(1, 6_000), (1, 7_000), (1, 4_999), (1, 4_999), (1, 5_000)]), [0_u64; 0]);
    }

    #[test]
    fn beyond_twice_the_budget_the_time_is_shorter() {
        let seven: Vec<_> = (0..7).map(|extra| (1, 1_000 + extra)).collect();
        assert_eq!(ended(&seven[..6]), [0_u64; 0]);
        assert_eq!(ended(&seven), [6]);
    }

    #[test]
    fn the_exchanges_of_another_tunnel_do_not_count() {
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
            tunnel: TunnelNumber::new(*tunnel),
            waited: Duration::from_millis(*waited),
        });
        excess(waiting.collect(), BUDGET).iter().map(|one| one.exchange).collect()
    }
}
