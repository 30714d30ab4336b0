//! When those begin whose flow wants more seats than it may have: one after the other, over the time for which it holds one. Pure.
//!
//! What began together ends together, and what takes its seats would begin together in turn: the work of hundreds of requests
//! at once, again and again, and behind it everybody else's. Spread over the time that a request takes, they end as they
//! began, and the next find their seats one after the other by themselves: what is lost is a part of one round.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// Time between two of a flow that has to wait, at most: ten times the processor's that a small request takes of both daemons.
pub const SPACING_MAX: Duration = Duration::from_millis(2);

/// The part of the time for which a seat is held over which those begin who take all of a flow's seats. Less than all of it, so
/// that no seat is idle in the long run.
const SPREAD: f64 = 0.75;

/// A flow of which none had to wait for so long begins when it comes.
const PACED_FOR: Duration = Duration::from_secs(10);

/// The mean moves by one of so many parts at each request.
const MEAN_OF: u32 = 8;

/// The paces of flows that hold seats.
#[derive(Debug, Default)]
pub(super) struct Paces(HashMap<u64, Pace>);

#[derive(Debug)]
struct Pace {
    /// For how long a request holds a seat, the mean of the last ones; none has ended yet.
    hold: Option<Duration>,
    /// When the next may begin, if one had to wait of late.
    next: Instant,
    /// When one last had to.
    waited: Option<Instant>,
}

impl Paces {
    /// One of `flow` has to wait for a seat, while it holds so many.
    pub(super) fn waits(&mut self, flow: u64, held: usize, now: Instant) {
        // Who has none waits for others', and would never be forgotten.
        if held > 0 {
            self.of(flow, now).waited = Some(now);
        }
    }

    /// When one of `flow` begins that now holds the last of its `held` seats: now or later.
    pub(super) fn begins(&mut self, flow: u64, held: usize, now: Instant) -> Instant {
        let Some(pace) = self.0.get_mut(&flow) else { return now };
        if pace.waited.is_none_or(|waited| now.saturating_duration_since(waited) > PACED_FOR) {
            return now;
        }
        let begins = pace.next.max(now);
        let held = u32::try_from(held).unwrap_or(u32::MAX).max(1);
        pace.next = begins + (pace.hold.unwrap_or_default().mul_f64(SPREAD) / held).min(SPACING_MAX);
        begins
    }

    /// One of `flow` has held its seat for so long, which leaves it `held` others: with none it is forgotten.
    pub(super) fn ended(&mut self, flow: u64, hold: Duration, held: usize, now: Instant) {
        if held == 0 {
            self.0.remove(&flow);
            return;
        }
        let pace = self.of(flow, now);
        pace.hold = Some(pace.hold.map_or(hold, |mean| (mean * (MEAN_OF - 1) + hold) / MEAN_OF));
    }

    fn of(&mut self, flow: u64, now: Instant) -> &mut Pace {
        self.0.entry(flow).or_insert(Pace { hold: None, next: now, waited: None })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FLOW: u64 = 7;
    const OTHER: u64 = 8;
    const SECOND: Duration = Duration::from_secs(1);

    /// Of one request of [`FLOW`] that took so long; another had to wait.
    fn after(hold: Duration, now: Instant) -> Paces {
        let mut paces = Paces::default();
        paces.ended(FLOW, hold, 1, now);
        paces.waits(FLOW, 1, now);
        paces
    }

    /// When as many begin as a flow holds.
    fn begin(paces: &mut Paces, flow: u64, held: usize, now: Instant) -> Vec<Duration> {
        (0..held).map(|_| paces.begins(flow, held, now) - now).collect()
    }

    proptest! {
        #[test]
        fn as_many_as_a_flow_holds_begin_one_after_the_other_before_three_quarters_of_their_time_are_over(
            hold in 0_u64..10_000_000, held in 1_usize..10_000
        ) {
            let (hold, now) = (Duration::from_micros(hold), Instant::now());

            let begin = begin(&mut after(hold, now), FLOW, held, now);

            prop_assert_eq!(begin[0], Duration::ZERO, "the first at once");
            let spaces: Vec<Duration> = begin.windows(2).map(|two| two[1] - two[0]).collect();
            prop_assert!(spaces.windows(2).all(|two| two[0] == two[1]), "evenly");
            prop_assert!(spaces.iter().all(|space| *space <= SPACING_MAX));
            prop_assert!(begin[held - 1] <= hold.mul_f64(SPREAD));
        }
    }

    #[test]
    fn four_hundred_that_ended_together_after_a_second_do_not_begin_together() {
        let now = Instant::now();
        let begin = begin(&mut after(SECOND, now), FLOW, 400, now);
        assert_eq!(begin[399].as_millis(), 748, "{begin:?}");
    }

    #[test]
    fn only_a_flow_that_had_to_wait_of_late_has_a_pace_and_what_lies_behind_is_not_added_up() {
        let now = Instant::now();
        let mut paces = after(SECOND, now);
        paces.ended(OTHER, SECOND, 1, now);
        assert_eq!(begin(&mut paces, OTHER, 3, now), [Duration::ZERO; 3]);

        let late = now + PACED_FOR;
        assert_eq!(begin(&mut paces, FLOW, 3, late), [Duration::ZERO, SPACING_MAX, 2 * SPACING_MAX]);
        let later = late + Duration::from_millis(1);
        assert_eq!(begin(&mut paces, FLOW, 3, later), [Duration::ZERO; 3]);
    }

    #[test]
    fn the_mean_follows_what_requests_take_and_a_flow_without_seats_is_forgotten() {
        let now = Instant::now();
        let mut paces = after(SECOND, now);
        let spacing = |paces: &mut Paces| begin(paces, FLOW, 2, now + SECOND)[1];
        assert_eq!(spacing(&mut after(SECOND, now)), SPACING_MAX);
        for _ in 0..100 {
            paces.ended(FLOW, Duration::from_millis(1), 1, now);
        }
        let quick = spacing(&mut paces);
        assert!(quick > Duration::from_micros(370) && quick < Duration::from_micros(380), "{quick:?}");
        paces.ended(FLOW, SECOND, 0, now);
        paces.waits(OTHER, 0, now);
        assert!(paces.0.is_empty());
    }
}
