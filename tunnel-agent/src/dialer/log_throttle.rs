//! Logs a failure that repeats once, and then once a minute.

use std::time::{Duration, Instant};

/// The same message is logged again after this time.
const REPEAT_AFTER: Duration = Duration::from_secs(60);

/// The message that was logged last, and its time.
#[derive(Debug, Default)]
pub(super) struct LogThrottle(Option<(String, Instant)>);

impl LogThrottle {
    /// Returns true if this message is to be logged as a warning now. If so, it counts as logged.
    pub(super) fn should_log(&mut self, now: Instant, message: &str) -> bool {
        let is_due = self.0.as_ref().is_none_or(|(logged, at)| {
            logged != message || now.saturating_duration_since(*at) >= REPEAT_AFTER
        });
        if is_due {
            self.0 = Some((message.to_owned(), now));
        }
        is_due
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
    fn a_message_is_logged_once_then_once_a_minute_and_anew_after_a_reset() {
        let (mut throttle, now) = (LogThrottle::default(), Instant::now());
        assert!(throttle.should_log(now, "no answer"));
        assert!(!throttle.should_log(now + REPEAT_AFTER / 2, "no answer"));
        assert!(throttle.should_log(now + REPEAT_AFTER / 2, "no address"));
        assert!(!throttle.should_log(now + REPEAT_AFTER, "no address"));
        assert!(throttle.should_log(now + REPEAT_AFTER * 2, "no address"));
        throttle.reset();
        assert!(throttle.should_log(now + REPEAT_AFTER * 2, "no address"));
    }
}
