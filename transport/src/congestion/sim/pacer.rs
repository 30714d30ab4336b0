//! quinn's pacer (quinn-proto 0.11, `connection/pacing.rs`): a bucket that refills at 1.25 × window / round
//! trip.

use std::time::{Duration, Instant};

const BURST_INTERVAL: Duration = Duration::from_millis(2);
const BURST_PACKETS: std::ops::RangeInclusive<u64> = 10..=256;

pub(super) struct Pacer {
    tokens: u64,
    capacity: u64,
    window: u64,
    at: Instant,
}

impl Pacer {
    pub(super) fn new(now: Instant, round_trip: Duration, window: u64, packet_bytes: u64) -> Self {
        let capacity = capacity(round_trip, window, packet_bytes);
        Self { tokens: capacity, capacity, window, at: now }
    }

    pub(super) fn sent(&mut self, bytes: u64) {
        self.tokens = self.tokens.saturating_sub(bytes);
    }

    /// The time at which to ask again; `None` if a packet may leave now.
    pub(super) fn blocks(
        &mut self,
        now: Instant,
        round_trip: Duration,
        window: u64,
        bytes: u64,
    ) -> Option<Instant> {
        if window != self.window {
            self.window = window;
            self.capacity = capacity(round_trip, window, bytes);
            self.tokens = self.tokens.min(self.capacity);
        }
        if self.tokens >= bytes {
            return None;
        }
        let elapsed = (now - self.at).as_secs_f64() / round_trip.as_secs_f64();
        let refill = (window as f64 * 1.25 * elapsed) as u64;
        self.tokens = (self.tokens + refill).min(self.capacity);
        self.at = now;
        if self.tokens >= bytes {
            return None;
        }
        let missing = bytes.max(self.capacity) - self.tokens;
        Some(now + round_trip.mul_f64(missing as f64 / window as f64 * 0.8))
    }
}

fn capacity(round_trip: Duration, window: u64, packet_bytes: u64) -> u64 {
    let burst = (window as f64 * BURST_INTERVAL.as_secs_f64() / round_trip.as_secs_f64()) as u64;
    burst.clamp(BURST_PACKETS.start() * packet_bytes, BURST_PACKETS.end() * packet_bytes)
}
