//! Deadlines of each hop for the head of a response.
//!
//! The hop that is farther from the caller gives up first, so that the hop beside a silent peer is the one
//! that names it. The deadlines apply to requests that Kubernetes itself gives a deadline, and count from the
//! last byte of the request that was taken.

use std::time::Duration;

/// Deadline of an agent for its API server, unless the stream has another. An API server itself gives an
/// ordinary request 60 s (`--request-timeout`).
pub const API_SERVER_HEAD_MAX: Duration = Duration::from_secs(75);

/// Deadline of a gateway for an agent, unless the cluster or the request has another.
pub const AGENT_HEAD_MAX: Duration = Duration::from_secs(90);

/// Longest deadline that a cluster's configuration or a request's own timeout can set.
pub const ANSWER_LIMIT_MAX: Duration = Duration::from_secs(3600);

/// Time by which each hop waits longer than the one behind it, so that the one behind it can say why.
const HOP_MARGIN: Duration = AGENT_HEAD_MAX.saturating_sub(API_SERVER_HEAD_MAX);

const _: () = assert!(API_SERVER_HEAD_MAX.as_secs() < AGENT_HEAD_MAX.as_secs());
const _: () = assert!(AGENT_HEAD_MAX.as_secs() < ANSWER_LIMIT_MAX.as_secs());

/// Deadline of an agent for its API server: the cluster's `configured` one, or a longer one if the API server
/// may take the request's `own` timeout. At most [`ANSWER_LIMIT_MAX`].
#[must_use]
pub fn api_server_deadline(configured: Duration, own: Option<Duration>) -> Duration {
    let own = own.map_or(Duration::ZERO, |own| own.saturating_add(HOP_MARGIN));
    configured.max(own).min(ANSWER_LIMIT_MAX)
}

/// Deadline of a gateway for an agent that gives its API server `api_server`.
#[must_use]
pub fn agent_deadline(api_server: Duration) -> Duration {
    api_server + HOP_MARGIN
}

/// The deadline that a stream's first frame sets. `None` if it sets none, or one that is too long.
#[must_use]
pub fn from_seconds(seconds: u32) -> Option<Duration> {
    let deadline = Duration::from_secs(u64::from(seconds));
    (seconds > 0 && deadline <= ANSWER_LIMIT_MAX).then_some(deadline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requests_own_timeout_raises_its_deadline_and_never_lowers_it() {
        let seconds = Duration::from_secs;
        for (configured, own, deadline) in [
            (75, None, 75),
            (300, None, 300),
            (75, Some(5), 75),
            (75, Some(60), 75),
            (75, Some(61), 76),
            (75, Some(300), 315),
            (400, Some(300), 400),
            (75, Some(3586), 3600),
            (75, Some(u64::MAX), 3600),
            (3600, Some(3600), 3600),
        ] {
            assert_eq!(
                api_server_deadline(seconds(configured), own.map(seconds)),
                seconds(deadline),
                "{own:?}"
            );
        }
        assert_eq!(agent_deadline(API_SERVER_HEAD_MAX), AGENT_HEAD_MAX);
    }

    #[test]
    fn a_deadline_of_a_stream_is_at_most_an_hour() {
        assert_eq!(from_seconds(0), None);
        assert_eq!(from_seconds(1), Some(Duration::from_secs(1)));
        assert_eq!(from_seconds(3600), Some(ANSWER_LIMIT_MAX));
        assert_eq!(from_seconds(3601), None);
    }
}
