//! Limits of the API server's client: connections, waiting requests, and timeouts.

use std::time::Duration;

use proto::deadlines::{self, API_SERVER_HEAD_MAX};

/// Most connections at a time, those for upgrades included.
pub const CONNECTIONS_MAX: usize = 1024;

/// Most requests that wait for a connection.
pub const WAITING_MAX: usize = 4096;

/// Timeouts of the API server's client.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Longest time for TCP and TLS together.
    pub connect: Duration,
    /// Longest time from the last byte of the request's body that was taken to the answer's head.
    pub head: Duration,
    /// Time after which an unused connection is closed.
    pub idle: Duration,
    /// Time after which the credential's files are read again.
    pub recheck: Duration,
}

/// The deadline for the head of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerDeadline {
    /// The default of the agent, [`Timeouts::head`].
    Default,
    /// This time, as the server has asked for.
    Within(Duration),
    /// None, because Kubernetes gives the request none: its answer may take any time, as long as the caller
    /// waits. A dead connection is noticed by its pings.
    LongRunning,
}

impl AnswerDeadline {
    /// The deadline that a stream's first frame sets.
    #[must_use]
    pub fn new(long_running: bool, seconds: u32) -> Self {
        match deadlines::from_seconds(seconds) {
            _ if long_running => Self::LongRunning,
            Some(deadline) => Self::Within(deadline),
            None => Self::Default,
        }
    }

    /// Returns true if the answer may take any time.
    #[must_use]
    pub fn is_long_running(self) -> bool {
        self == Self::LongRunning
    }

    /// The longest time, with `head` as the default. `None` if there is no limit.
    #[must_use]
    pub fn limit(self, head: Duration) -> Option<Duration> {
        match self {
            Self::Default => Some(head),
            Self::Within(deadline) => Some(deadline),
            Self::LongRunning => None,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            head: API_SERVER_HEAD_MAX,
            idle: Duration::from_secs(60),
            recheck: Duration::from_secs(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_sets_the_deadline_of_its_answer_unless_it_may_take_any_time() {
        let (second, head) = (Duration::from_secs(1), Duration::from_secs(75));
        for (long_running, seconds, limit) in [
            (false, 0, Some(head)),
            (false, 300, Some(second * 300)),
            (false, 3600, Some(second * 3600)),
            // Beyond what a server may ask for.
            (false, 3601, Some(head)),
            (true, 300, None),
            (true, 0, None),
        ] {
            assert_eq!(AnswerDeadline::new(long_running, seconds).limit(head), limit, "{seconds}");
        }
    }
}
