//! The number of control frames that a peer may send: a burst, and then so many a second.

use std::time::Instant;

use super::frame_limits::{
    FRAMES_BURST_MAX, FRAMES_PER_SECOND_MAX, PEER_FRAMES_BURST_MAX, PEER_FRAMES_PER_SECOND_MAX,
};
use super::protocol::Protocol;

/// Counts the frames of one peer against the limits of its protocol.
#[derive(Debug, Clone)]
pub struct FrameAllowance {
    protocol: Protocol,
    /// The time at which frames were last earned.
    since: Instant,
    left: u32,
}

impl FrameAllowance {
    /// An allowance for an agent's tunnel that begins now, with a full burst.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self::of(Protocol::Agent, now)
    }

    /// The same for either protocol.
    #[must_use]
    pub fn of(protocol: Protocol, now: Instant) -> Self {
        let (_, burst) = limits(protocol);
        Self { protocol, since: now, left: burst }
    }

    /// Counts `frames` more. Returns false if the peer has sent more than it may.
    #[must_use]
    pub fn take(&mut self, now: Instant, frames: u32) -> bool {
        let seconds = now.saturating_duration_since(self.since).as_secs();
        if seconds > 0 {
            let (per_second, burst) = limits(self.protocol);
            let earned = u32::try_from(seconds).unwrap_or(u32::MAX).saturating_mul(per_second);
            self.since = now;
            self.left = self.left.saturating_add(earned).min(burst);
        }
        let left = self.left.checked_sub(frames);
        self.left = left.unwrap_or(0);
        left.is_some()
    }
}

/// The frames of a second, and those of a burst.
fn limits(protocol: Protocol) -> (u32, u32) {
    match protocol {
        Protocol::Agent => (FRAMES_PER_SECOND_MAX, FRAMES_BURST_MAX),
        Protocol::Peer => (PEER_FRAMES_PER_SECOND_MAX, PEER_FRAMES_BURST_MAX),
    }
}
