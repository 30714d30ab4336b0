//! A CUBIC flow (RFC 9438), the most common kind, which takes each loss for congestion.

use std::time::{Duration, Instant};

use super::super::control::CongestionControl;
use super::sender::PACKET_BYTES;

/// RFC 9438, section 5: `C`, in packets a second cubed, and `beta`.
const C: f64 = 0.4;
const BETA: f64 = 0.7;

/// The state of CUBIC; windows count packets.
pub(in super::super) struct Cubic {
    window: f64,
    threshold: f64,
    largest: f64,
    epoch: Option<Instant>,
    /// The window that Reno would have.
    reno: f64,
    round_trip: Duration,
    /// Losses of packets that left before this belong to the last one.
    recovering_since: Option<Instant>,
    newest_sent: Option<Instant>,
}

impl Cubic {
    pub(in super::super) fn new() -> Self {
        Self {
            window: 10.0,
            threshold: f64::MAX,
            largest: 0.0,
            epoch: None,
            reno: 0.0,
            round_trip: Duration::from_millis(100),
            recovering_since: None,
            newest_sent: None,
        }
    }
}

impl CongestionControl for Cubic {
    fn sent(&mut self, _now: Instant, _bytes: u64) {}

    fn acked(&mut self, now: Instant, sent: Instant, _bytes: u64) {
        self.newest_sent = self.newest_sent.max(Some(sent));
        self.round_trip = now - sent;
        if self.recovering_since.is_some_and(|since| sent <= since) {
            return;
        }
        if self.window < self.threshold {
            self.window += 1.0;
            return;
        }
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.reno = self.window;
            now
        });
        let k = ((self.largest - self.window.min(self.largest)).max(self.largest * (1.0 - BETA)) / C).cbrt();
        let t = (now + self.round_trip - epoch).as_secs_f64();
        let target = (C * (t - k).powi(3) + self.largest).clamp(self.window, self.window * 1.5);
        self.reno += 3.0 * (1.0 - BETA) / (1.0 + BETA) / self.window;
        self.window = (self.window + (target - self.window) / self.window).max(self.reno);
    }

    fn acks_end(&mut self, _now: Instant, _in_flight: u64, _app_limited: bool) {}

    fn lost(&mut self, now: Instant, _bytes: u64) {
        // Reduces the window once for each round trip.
        if self.recovering_since.is_some_and(|since| self.newest_sent.is_none_or(|newest| newest <= since)) {
            return;
        }
        self.recovering_since = Some(now);
        self.largest =
            if self.window < self.largest { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = (self.window * BETA).max(2.0);
        self.threshold = self.window;
        self.epoch = None;
    }

    fn marked(&mut self, now: Instant) {
        self.lost(now, 0);
    }

    fn persistent_congestion(&mut self, _now: Instant) {
        self.window = 2.0;
        self.epoch = None;
    }

    fn packet_bytes(&mut self, _bytes: u16) {}

    fn window(&self, _now: Instant) -> u64 {
        (self.window * PACKET_BYTES as f64) as u64
    }

    fn pacing_rate(&self) -> Option<u64> {
        None
    }
}
