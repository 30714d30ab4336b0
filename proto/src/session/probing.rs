//! Decides when a session sends probes: extra heartbeats while the peer does not answer.
//!
//! The first probe that crosses a path which is back again makes everything flow.

use std::time::{Duration, Instant};

use super::heartbeat::HEARTBEAT_ACTIVE;

/// Interval of probes: a path that is back is noticed a quarter of a second later at most.
pub const PROBE_EVERY: Duration = Duration::from_millis(250);

/// Interval of probes after [`PROBE_FAST_FOR`] on a tunnel that carries no stream.
pub const PROBE_EVERY_IDLE: Duration = Duration::from_millis(500);

/// An idle tunnel probes fast for this long. Most outages are over by then.
pub const PROBE_FAST_FOR: Duration = Duration::from_secs(60);

/// Least time between two heartbeats that are sent at once because the peer was heard on a path that had
/// seemed dark.
pub(super) const ANSWER_EVERY_MIN: Duration = Duration::from_millis(50);

const _: () = assert!(PROBE_EVERY.as_millis() < HEARTBEAT_ACTIVE.as_millis());
const _: () = assert!(PROBE_EVERY_IDLE.as_millis() < HEARTBEAT_ACTIVE.as_millis());

/// The time of the next probe, while something that was sent has been waiting for its answer since
/// `unanswered_since`.
pub(super) fn next_probe_at(
    unanswered_since: Instant,
    last_heartbeat_at: Instant,
    round_trip: Duration,
    is_idle: bool,
) -> Instant {
    let dark_for = last_heartbeat_at.saturating_duration_since(unanswered_since);
    let every = if is_idle && dark_for >= PROBE_FAST_FOR { PROBE_EVERY_IDLE } else { PROBE_EVERY };
    (unanswered_since + answer_expected(round_trip)).max(last_heartbeat_at + every)
}

/// The time that an answer may take before the path counts as dark. A path that is merely slow does not.
pub(super) fn answer_expected(round_trip: Duration) -> Duration {
    (round_trip * 2).clamp(PROBE_EVERY, HEARTBEAT_ACTIVE)
}
