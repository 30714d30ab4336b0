//! The shortest recent round trip to a peer, a measure of its distance that is independent of load.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Number of answers that are kept. There is one for each heartbeat: 8 to 24 s.
const ANSWERS: usize = 8;

/// The round trips of the last [`ANSWERS`] answers. Beyond the propagation delay, each includes the load of
/// machines and queues at that moment.
///
/// A smoothed estimate keeps that load the longer the fewer answers there are: a tunnel whose first answer
/// was late would be passed over for as long as it gets no request.
#[derive(Default)]
pub(crate) struct MinRtt(Mutex<VecDeque<Duration>>);

impl MinRtt {
    /// Adds the round trip of an answer.
    pub(crate) fn record(&self, round_trip: Duration) {
        let mut answers = self.answers();
        if answers.len() == ANSWERS {
            answers.pop_front();
        }
        answers.push_back(round_trip);
    }

    /// The shortest round trip; `None` before the first answer.
    pub(crate) fn get(&self) -> Option<Duration> {
        self.answers().iter().min().copied()
    }

    fn answers(&self) -> MutexGuard<'_, VecDeque<Duration>> {
        // A panic under the lock leaves complete entries behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_answer_that_was_late_counts_until_there_is_another() {
        let min_rtt = MinRtt::default();
        assert_eq!(min_rtt.get(), None);

        min_rtt.record(Duration::from_millis(80));
        assert_eq!(min_rtt.get(), Some(Duration::from_millis(80)));

        min_rtt.record(Duration::from_millis(1));
        assert_eq!(min_rtt.get(), Some(Duration::from_millis(1)));
    }

    #[test]
    fn a_longer_path_counts_once_no_earlier_answer_is_left() {
        let min_rtt = MinRtt::default();
        min_rtt.record(Duration::from_millis(1));

        (1..ANSWERS).for_each(|_| min_rtt.record(Duration::from_millis(40)));
        assert_eq!(min_rtt.get(), Some(Duration::from_millis(1)));

        min_rtt.record(Duration::from_millis(40));
        assert_eq!(min_rtt.get(), Some(Duration::from_millis(40)));
    }
}
