//! Says what goes wrong again and again in the log once, and then from time to time.

use std::time::{Duration, Instant};

/// The same words are said again after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What was complained of last.
#[derive(Debug, Default)]
pub(super) struct LogThrottle(Option<(String, Instant)>);

impl LogThrottle {
    /// Whether these words are worth a warning now.
    pub(super) fn is_news(&mut self, now: Instant, words: &str) -> bool {
        let stale = self
            .0
            .as_ref()
            .is_none_or(|(said, at)| said != words || now.saturating_duration_since(*at) >= AGAIN_AFTER);
        if stale {
            self.0 = Some((words.to_owned(), now));
        }
        stale
    }

    /// There is nothing to complain of any more.
    pub(super) fn settle(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_said_once_then_from_time_to_time_and_anew_after_better_times() {
        let (mut complaint, now) = (LogThrottle::default(), Instant::now());
        assert!(complaint.is_news(now, "no answer"));
        assert!(!complaint.is_news(now + AGAIN_AFTER / 2, "no answer"));
        assert!(complaint.is_news(now + AGAIN_AFTER / 2, "no address"));
        assert!(!complaint.is_news(now + AGAIN_AFTER, "no address"));
        assert!(complaint.is_news(now + AGAIN_AFTER * 2, "no address"));
        complaint.settle();
        assert!(complaint.is_news(now + AGAIN_AFTER * 2, "no address"));
    }
}
