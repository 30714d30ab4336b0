//! Lets a packet leave now and then although the window is full, because acknowledgements leave with it.
//!
//! RFC 9002, section 7, exempts acknowledgements from congestion control. quinn sends none while data waits
//! for its window (`quinn_proto`, `Connection::poll_transmit`), and where both directions carry bulk, data
//! always waits. Each side then gets no acknowledgement until the other's window opens, which it does only by
//! the acknowledgements of this side. So both would stand still and burst in turns, and everything else would
//! wait behind the bursts.

use std::time::{Duration, Instant};

/// One packet leaves for this many that the path carries in the same time, or that a round trip of startup
/// has room for. That is hardly a queue on any path, and hardly a bunch for the other side.
pub(super) const ONE_OF: u32 = 16;

/// Bytes in flight may exceed the window by this part of it. More means that nothing is acknowledged because
/// the path is dark.
const BEYOND_PART: u64 = 2;

/// Tracks the time at which the last packet left.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MinSendRate {
    sent: Option<Instant>,
}

impl MinSendRate {
    /// Notes that packets leave now.
    pub(super) fn sent(&mut self, now: Instant) {
        self.sent = Some(now);
    }

    /// The window to report to quinn. It has room for one more packet where the window is full and no packet
    /// has left for the time that `every` returns. `every` is called only then, because quinn asks for the
    /// window at each packet.
    pub(super) fn raised_window(
        &self,
        now: Instant,
        every: impl FnOnce() -> Option<Duration>,
        window: u64,
        in_flight: u64,
        packet_bytes: u64,
    ) -> u64 {
        let is_full = in_flight + packet_bytes >= window && in_flight < window + window / BEYOND_PART;
        let is_due = || {
            let known = self.sent.zip(every());
            known.is_some_and(|(sent, every)| now.saturating_duration_since(sent) >= every)
        };
        // Room for two, because quinn asks for more room than one packet fills. It asks again for the next
        // packet of a batch, and `in_flight` does not count the batch until all of it has left: the second
        // packet finds no room.
        if is_full && is_due() { in_flight + 2 * packet_bytes } else { window }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u64 = 1200;
    const WINDOW: u64 = 100 * PACKET;
    const EVERY: Duration = Duration::from_millis(2);

    /// Returns true if quinn would let a packet go, of which `batch` bytes are made and not yet counted.
    fn passes(min_send_rate: &MinSendRate, now: Instant, in_flight: u64, batch: u64) -> bool {
        in_flight + batch + PACKET
            < min_send_rate.raised_window(now, || Some(EVERY), WINDOW, in_flight, PACKET)
    }

    #[test]
    fn one_packet_passes_a_full_window_where_none_has_left_for_a_while() {
        let start = Instant::now();
        let mut min_send_rate = MinSendRate::default();
        min_send_rate.sent(start);
        assert!(!passes(&min_send_rate, start + EVERY / 2, WINDOW, 0), "too early");
        assert!(passes(&min_send_rate, start + EVERY, WINDOW, 0));
        assert!(!passes(&min_send_rate, start + EVERY, WINDOW, PACKET), "one, and not a batch");
        min_send_rate.sent(start + EVERY);
        assert!(!passes(&min_send_rate, start + EVERY, WINDOW + PACKET, 0), "and then none for a while");
        assert!(passes(&min_send_rate, start + EVERY * 2, WINDOW + PACKET, 0));
    }

    #[test]
    fn a_window_with_room_is_not_raised() {
        let start = Instant::now();
        let mut min_send_rate = MinSendRate::default();
        min_send_rate.sent(start);
        assert_eq!(
            min_send_rate.raised_window(start + EVERY, || Some(EVERY), WINDOW, WINDOW / 2, PACKET),
            WINDOW
        );
    }

    #[test]
    fn into_the_dark_go_no_more_than_half_of_a_window_beyond_it() {
        let (start, mut min_send_rate, mut in_flight) = (Instant::now(), MinSendRate::default(), WINDOW);
        min_send_rate.sent(start);
        for turn in 1..1000 {
            let now = start + EVERY * turn;
            if passes(&min_send_rate, now, in_flight, 0) {
                min_send_rate.sent(now);
                in_flight += PACKET;
            }
        }
        assert_eq!(in_flight, WINDOW + WINDOW / 2);
    }
}
