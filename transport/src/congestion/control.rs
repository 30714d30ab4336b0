//! The interface of a congestion controller: it gets packets and times, and returns a window.

use std::time::Instant;

/// Decides how many bytes may be in flight on one path. Time comes in only as an argument.
///
/// Order of calls at an acknowledgement: [`acked`](Self::acked) for each packet, [`acks_end`](Self::acks_end)
/// once, then [`lost`](Self::lost) for the packets that it showed to be missing. Losses may also come alone,
/// by a timer.
pub(crate) trait CongestionControl {
    /// `bytes` left, in one or more packets.
    fn sent(&mut self, now: Instant, bytes: u64);

    /// A packet of `bytes` that left at `sent` was acknowledged.
    fn acked(&mut self, now: Instant, sent: Instant, bytes: u64);

    /// All packets of one acknowledgement were named; `in_flight` bytes are still under way. `app_limited`
    /// says that the application had nothing more to send before it came.
    fn acks_end(&mut self, now: Instant, in_flight: u64, app_limited: bool);

    /// Packets of `bytes` in total are declared lost.
    fn lost(&mut self, now: Instant, bytes: u64);

    /// A router marked packets because its queue grows (ECN).
    fn marked(&mut self, now: Instant);

    /// Nothing at all came through for several probe timeouts (RFC 9002, section 7.6).
    fn persistent_congestion(&mut self, now: Instant);

    /// Packets may now have this many bytes.
    fn packet_bytes(&mut self, bytes: u16);

    /// The most bytes that may be in flight now. Never zero.
    fn window(&self, now: Instant) -> u64;

    /// The pace at which to send, in bytes a second, for a sender that can keep one; none before the first
    /// measurement.
    fn pacing_rate(&self) -> Option<u64>;
}
