//! How far away a peer is, whatever one answer of it took.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// So many answers are looked back on. There is one for each heartbeat: 8 to 24 s.
const ANSWERS: usize = 8;

const UNKNOWN: u64 = u64::MAX;

/// The least that one of the last [`ANSWERS`] answers took. What an answer takes beyond the way there and back is what the
/// machines and queues between were busy with at that moment, and a smoothed estimate holds on to it the longer the fewer
/// answers there are: a tunnel whose first answer was late would be passed over for as long as it is asked nothing.
pub(crate) struct Distance {
    answers: Mutex<VecDeque<Duration>>,
    least_micros: AtomicU64,
}

impl Distance {
    pub(crate) fn new() -> Self {
        Self { answers: Mutex::default(), least_micros: AtomicU64::new(UNKNOWN) }
    }

    /// Notes what an answer took.
    pub(crate) fn answered(&self, round_trip: Duration) {
        // Whatever panicked under it left single answers behind.
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() == ANSWERS {
            answers.pop_front();
        }
        answers.push_back(round_trip);
        let least =
            answers.iter().min().map_or(UNKNOWN, |least| u64::try_from(least.as_micros()).unwrap_or(UNKNOWN));
        self.least_micros.store(least, Ordering::Relaxed);
    }

    /// `None` before the first answer.
    pub(crate) fn least(&self) -> Option<Duration> {
        let micros = self.least_micros.load(Ordering::Relaxed);
        (micros != UNKNOWN).then(|| Duration::from_micros(micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_answer_that_was_late_counts_until_there_is_another() {
        let distance = Distance::new();
        assert_eq!(distance.least(), None);

        distance.answered(Duration::from_millis(80));
        assert_eq!(distance.least(), Some(Duration::from_millis(80)));

        distance.answered(Duration::from_millis(1));
        assert_eq!(distance.least(), Some(Duration::from_millis(1)));
    }

    #[test]
    fn a_path_that_became_longer_is_so_long_once_no_answer_is_left_of_before() {
        let distance = Distance::new();
        distance.answered(Duration::from_millis(1));

        (1..ANSWERS).for_each(|_| distance.answered(Duration::from_millis(40)));
        assert_eq!(distance.least(), Some(Duration::from_millis(1)));

        distance.answered(Duration::from_millis(40));
        assert_eq!(distance.least(), Some(Duration::from_millis(40)));
    }
}
