//! Paces the requests of a flow that wants more seats than it may have: their starts are spread over the time
//! for which it holds a seat. Pure.
//!
//! Requests that start together end together, and so do those that take their seats: bursts of hundreds of
//! requests, again and again, that delay everybody else. Spread over a request's duration, their ends are
//! spread as well, and their successors need no more pacing. The cost is a part of one round.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// Most time between two starts of a paced flow: ten times the processor time of a small request in both
/// daemons.
pub const SPACING_MAX: Duration = Duration::from_millis(2);

/// The part of a request's duration over which the starts of all seats of a flow are spread. Less than 1, so
/// that no seat is idle in the long run.
const SPREAD: f64 = 0.75;

/// A flow is paced for this long after one of its requests had to wait.
const PACED_FOR: Duration = Duration::from_secs(10);

/// The weight of the newest duration in the moving mean is one of this many parts.
const MEAN_OF: u32 = 8;

/// The pacing of all flows that hold seats.
#[derive(Debug, Default)]
pub(super) struct Pacing(HashMap<u64, FlowPacing>);

#[derive(Debug)]
struct FlowPacing {
    /// The moving mean of the time for which a request holds a seat; `None` before the first has ended.
    hold: Option<Duration>,
    /// The earliest start of the next request, if one had to wait recently.
    next: Instant,
    /// The last time that a request had to wait.
    waited: Option<Instant>,
}

impl Pacing {
    /// Notes that a request of `flow` waits for a seat, while the flow holds `held` seats.
    pub(super) fn on_wait(&mut self, flow: u64, held: usize, now: Instant) {
        // A flow without seats waits for others, and its entry would never be removed.
        if held > 0 {
            self.entry(flow, now).waited = Some(now);
        }
    }

    /// The start time, now or later, of a request of `flow` that takes the last of its `held` seats.
    pub(super) fn start_at(&mut self, flow: u64, held: usize, now: Instant) -> Instant {
        let Some(pace) = self.0.get_mut(&flow) else { return now };
        if pace.waited.is_none_or(|waited| now.saturating_duration_since(waited) > PACED_FOR) {
            return now;
        }
        let start = pace.next.max(now);
        let held = u32::try_from(held).unwrap_or(u32::MAX).max(1);
        pace.next = start + (pace.hold.unwrap_or_default().mul_f64(SPREAD) / held).min(SPACING_MAX);
        start
    }

    /// Notes that a request of `flow` held its seat for `hold`, and leaves the flow `held` others; with none
    /// it is forgotten.
    pub(super) fn on_end(&mut self, flow: u64, hold: Duration, held: usize, now: Instant) {
        if held == 0 {
            self.0.remove(&flow);
            return;
        }
        let pace = self.entry(flow, now);
        pace.hold = Some(pace.hold.map_or(hold, |mean| (mean * (MEAN_OF - 1) + hold) / MEAN_OF));
    }

    fn entry(&mut self, flow: u64, now: Instant) -> &mut FlowPacing {
        self.0.entry(flow).or_insert(FlowPacing { hold: None, next: now, waited: None })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FLOW: u64 = 7;
    const OTHER: u64 = 8;
    const SECOND: Duration = Duration::from_secs(1);

    /// The pacing after one request of [`FLOW`] that took `hold`, while another had to wait.
    fn after(hold: Duration, now: Instant) -> Pacing {
        let mut pacing = Pacing::default();
        pacing.on_end(FLOW, hold, 1, now);
        pacing.on_wait(FLOW, 1, now);
        pacing
    }

    /// The delays of as many starts as a flow holds seats.
    fn begin(pacing: &mut Pacing, flow: u64, held: usize, now: Instant) -> Vec<Duration> {
        (0..held).map(|_| pacing.start_at(flow, held, now) - now).collect()
    }

    proptest! {
        #[test]
        fn starts_are_spread_evenly_over_three_quarters_of_the_duration(
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
    fn requests_that_ended_together_do_not_start_together() {
        let now = Instant::now();
        let begin = begin(&mut after(SECOND, now), FLOW, 400, now);
        assert_eq!(begin[399].as_millis(), 748, "{begin:?}");
    }

    #[test]
    fn only_a_flow_that_waited_recently_is_paced_without_backlog() {
        let now = Instant::now();
        let mut pacing = after(SECOND, now);
        pacing.on_end(OTHER, SECOND, 1, now);
        assert_eq!(begin(&mut pacing, OTHER, 3, now), [Duration::ZERO; 3]);

        let late = now + PACED_FOR;
        assert_eq!(begin(&mut pacing, FLOW, 3, late), [Duration::ZERO, SPACING_MAX, 2 * SPACING_MAX]);
        let later = late + Duration::from_millis(1);
        assert_eq!(begin(&mut pacing, FLOW, 3, later), [Duration::ZERO; 3]);
    }

    #[test]
    fn the_mean_follows_durations_and_a_flow_without_seats_is_removed() {
        let now = Instant::now();
        let mut pacing = after(SECOND, now);
        let spacing = |pacing: &mut Pacing| begin(pacing, FLOW, 2, now + SECOND)[1];
        assert_eq!(spacing(&mut after(SECOND, now)), SPACING_MAX);
        for _ in 0..100 {
            pacing.on_end(FLOW, Duration::from_millis(1), 1, now);
        }
        let quick = spacing(&mut pacing);
        assert!(quick > Duration::from_micros(370) && quick < Duration::from_micros(380), "{quick:?}");
        pacing.on_end(FLOW, SECOND, 0, now);
        pacing.on_wait(OTHER, 0, now);
        assert!(pacing.0.is_empty());
    }
}
