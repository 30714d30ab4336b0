//! What a session says more often than its heartbeats, because it gets no answer: probes, of which the first that crosses a
//! path that is back makes everything flow.

use std::time::{Duration, Instant};

use super::{HEARTBEAT_ACTIVE, Health, Session};

/// How often a side speaks that gets no answer: a path that is back is noticed a quarter of a second later at most.
pub const PROBE_EVERY: Duration = Duration::from_millis(250);

/// The same after [`PROBE_FAST_FOR`] on a tunnel that carries no stream.
pub const PROBE_EVERY_IDLE: Duration = Duration::from_millis(500);

/// Most outages are over by then.
pub const PROBE_FAST_FOR: Duration = Duration::from_secs(60);

/// A word of the peer that comes while ours get no answer is a sign that the path is back, which is answered at once, but
/// not more often than this.
const SPEAK_BACK_EVERY: Duration = Duration::from_millis(50);

const _: () = assert!(PROBE_EVERY.as_millis() < HEARTBEAT_ACTIVE.as_millis());
const _: () = assert!(PROBE_EVERY_IDLE.as_millis() < HEARTBEAT_ACTIVE.as_millis());

impl Session {
    /// When this side speaks next: at its pace, or sooner where it gets no answer.
    pub(super) fn speaks_at(&self) -> Instant {
        let next = self.spoke_at + self.pace();
        let Some(since) = self.unanswered_since else {
            return next;
        };
        let dark_for = self.spoke_at.saturating_duration_since(since);
        let every =
            if self.streams_open == 0 && dark_for >= PROBE_FAST_FOR { PROBE_EVERY_IDLE } else { PROBE_EVERY };
        next.min((since + self.answer_expected()).max(self.spoke_at + every))
    }

    /// Speaks at once, because something was heard on a path that had seemed dark.
    pub(super) fn speak_back(&mut self, now: Instant) {
        let is_dark = self.unanswered_since.is_some_and(|since| now >= since + self.answer_expected());
        if is_dark && self.health != Health::Lost && now >= self.spoke_at + SPEAK_BACK_EVERY {
            self.speak(now);
        }
    }

    /// How long an answer may take before the path is taken to be dark. A slow path is none.
    fn answer_expected(&self) -> Duration {
        (self.round_trip * 2).clamp(PROBE_EVERY, HEARTBEAT_ACTIVE)
    }
}
