//! Logs a failure that repeats less and less often.

use std::time::{Duration, Instant};

/// The same message is logged again after this time. Each further time is twice as long, up to the longest.
const REPEAT_AFTER: Duration = Duration::from_secs(60);

/// The longest time between two logs of the same message. A site may be dark for days, and its disk is small.
const REPEAT_AFTER_MAX: Duration = Duration::from_secs(16 * 60);

/// The message that was logged last, its time, and the time until it is logged again.
#[derive(Debug, Default)]
pub(super) struct LogThrottle(Option<(String, Instant, Duration)>);

impl LogThrottle {
    /// Returns true if this message is to be logged as a warning now. If so, it counts as logged.
    pub(super) fn should_log(&mut self, now: Instant, message: &str) -> bool {
        let next = match &self.0 {
            Some((logged, at, after)) if logged == message => {
                if now.saturating_duration_since(*at) < *after {
                    return false;
                }
                (*after * 2).min(REPEAT_AFTER_MAX)
            }
            Some(_) | None => REPEAT_AFTER,
        };
        self.0 = Some((message.to_owned(), now, next));
        true
    }

    /// The failure is over: the same message is logged at once if it comes again.
    pub(super) fn reset(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_logged_less_and_less_often_and_anew_after_a_reset() {
        let (mut throttle, now) = (LogThrottle::default(), Instant::now());
        assert!(throttle.should_log(now, "no answer"));
        assert!(!throttle.should_log(now + REPEAT_AFTER / 2, "no answer"));
        assert!(throttle.should_log(now + REPEAT_AFTER / 2, "no address"));
        assert!(!throttle.should_log(now + REPEAT_AFTER, "no address"));
        throttle.reset();
        let logged =
            (0..24 * 60).filter(|minute| throttle.should_log(now + REPEAT_AFTER * *minute, "no address"));
        // Minutes 0, 1, 3, 7, 15, and then one in 16.
        assert_eq!(logged.take(7).collect::<Vec<_>>(), [0, 1, 3, 7, 15, 31, 47]);
        throttle.reset();
        assert!(throttle.should_log(now + REPEAT_AFTER * 48, "no address"));
    }
}
