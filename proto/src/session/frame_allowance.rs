//! The number of control frames that a peer may send: a burst, and then so many a second.

use std::time::Instant;

/// Most control frames that a peer may send in a second, in the long run.
pub const FRAMES_PER_SECOND_MAX: u32 = 100;

/// Most control frames that may arrive at once: the heartbeats of a whole outage wait in the stream and come
/// together when the link returns.
pub const FRAMES_BURST_MAX: u32 = 1000;

/// Counts the frames of one peer against [`FRAMES_BURST_MAX`] and [`FRAMES_PER_SECOND_MAX`].
#[derive(Debug, Clone)]
pub struct FrameAllowance {
    /// The time at which frames were last earned.
    since: Instant,
    left: u32,
}

impl FrameAllowance {
    /// An allowance that begins now, with a full burst.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { since: now, left: FRAMES_BURST_MAX }
    }

    /// Counts `frames` more. Returns false if the peer has sent more than it may.
    #[must_use]
    pub fn take(&mut self, now: Instant, frames: u32) -> bool {
        let seconds = now.saturating_duration_since(self.since).as_secs();
        if seconds > 0 {
            let earned = u32::try_from(seconds).unwrap_or(u32::MAX).saturating_mul(FRAMES_PER_SECOND_MAX);
            self.since = now;
            self.left = self.left.saturating_add(earned).min(FRAMES_BURST_MAX);
        }
        let left = self.left.checked_sub(frames);
        self.left = left.unwrap_or(0);
        left.is_some()
    }
}
