//! A sender that behaves as quinn's: its order of calls, its pacer, its loss detection and its probe
//! timeouts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::super::control::CongestionControl;
use super::pacer::Pacer;

/// Size of a packet on the wire: quinn's first size, and a common one for tunnels within tunnels.
pub(super) const PACKET_BYTES: u64 = 1200;

/// quinn's `MAX_TRANSMIT_SEGMENTS`: packets of one system call, which count as sent at one time.
const BATCH_PACKETS: u64 = 10;
/// RFC 9002, sections 6.1.1, 6.1.2 and 7.6.1.
const PACKET_THRESHOLD: u64 = 3;
const TIME_THRESHOLD: f64 = 9.0 / 8.0;
const DARK_TIMEOUTS: u32 = 3;
const ACK_DELAY_MAX: Duration = Duration::from_millis(25);
/// Interval at which a tunnel that hears nothing sends a packet, whatever its window.
const PROBE_EVERY: Duration = Duration::from_millis(250);

pub(super) struct Sender {
    pub(super) control: Box<dyn CongestionControl>,
    pacer: Pacer,
    sent: BTreeMap<u64, Sent>,
    next_number: u64,
    largest_acked: Option<u64>,
    in_flight: u64,
    smoothed: Option<Duration>,
    latest: Duration,
    variance: Duration,
    timeouts: u32,
    probes: u8,
    pub(super) app_limited: bool,
    /// Bytes that the application has given and that were not sent; a bulk transfer never runs out.
    pub(super) backlog: u64,
    /// The times at which the small requests were made that wait for a packet.
    pub(super) small: Vec<Instant>,
    last_heard: Instant,
    last_eliciting: Instant,
    pacing_at: Option<Instant>,
}

struct Sent {
    at: Instant,
    small: Vec<Instant>,
}

/// A packet on its way.
pub(super) struct Packet {
    pub(super) number: u64,
    pub(super) small: Vec<Instant>,
}

impl Sender {
    pub(super) fn new(control: Box<dyn CongestionControl>, now: Instant) -> Self {
        let assumed = Duration::from_millis(333);
        let pacer = Pacer::new(now, assumed, control.window(now), PACKET_BYTES);
        Self {
            control,
            pacer,
            sent: BTreeMap::new(),
            next_number: 0,
            largest_acked: None,
            in_flight: 0,
            smoothed: None,
            latest: assumed,
            variance: assumed / 2,
            timeouts: 0,
            probes: 0,
            app_limited: true,
            backlog: 0,
            small: Vec::new(),
            last_heard: now,
            last_eliciting: now,
            pacing_at: None,
        }
    }

    /// Takes the packets that may leave now.
    pub(super) fn poll(&mut self, now: Instant) -> Vec<Packet> {
        self.pacing_at = None;
        let mut leaving = Vec::new();
        loop {
            let mut batch = 0;
            let mut blocked = false;
            while batch < BATCH_PACKETS && (self.backlog > 0 || self.probes > 0) {
                if self.probes == 0 {
                    let window = self.control.window(now);
                    if self.in_flight + PACKET_BYTES >= window {
                        blocked = true;
                        break;
                    }
                    if let Some(at) = self.pacer.blocks(now, self.round_trip(), window, PACKET_BYTES) {
                        self.pacing_at = Some(at);
                        blocked = true;
                        break;
                    }
                }
                self.probes = self.probes.saturating_sub(1);
                leaving.push(self.send_one(now));
                batch += 1;
            }
            if batch == 0 {
                self.app_limited = !blocked;
                return leaving;
            }
            self.control.sent(now, batch * PACKET_BYTES);
        }
    }

    fn send_one(&mut self, now: Instant) -> Packet {
        let number = self.next_number;
        self.next_number += 1;
        let small = std::mem::take(&mut self.small);
        self.sent.insert(number, Sent { at: now, small: small.clone() });
        self.in_flight += PACKET_BYTES;
        self.pacer.sent(PACKET_BYTES);
        self.backlog = self.backlog.saturating_sub(PACKET_BYTES);
        self.last_eliciting = now;
        Packet { number, small }
    }

    pub(super) fn acked(&mut self, now: Instant, numbers: &[u64], delay: Duration, marked: bool) {
        self.last_heard = now;
        let mut largest_sent = None;
        for number in numbers {
            let Some(sent) = self.sent.remove(number) else { continue };
            self.in_flight -= PACKET_BYTES;
            self.control.acked(now, sent.at, PACKET_BYTES);
            if self.largest_acked.is_none_or(|largest| *number > largest) {
                self.largest_acked = Some(*number);
                largest_sent = Some(sent.at);
            }
        }
        self.control.acks_end(now, self.in_flight, self.app_limited);
        if let Some(at) = largest_sent {
            self.measured(now - at, delay);
        }
        self.detect_loss(now);
        if marked {
            self.control.marked(now);
        }
        self.timeouts = 0;
    }

    fn measured(&mut self, round_trip: Duration, delay: Duration) {
        self.latest = round_trip;
        let adjusted = round_trip.saturating_sub(delay);
        match self.smoothed {
            None => {
                self.smoothed = Some(round_trip);
                self.variance = round_trip / 2;
            }
            Some(smoothed) => {
                self.variance = (self.variance * 3 + smoothed.abs_diff(adjusted)) / 4;
                self.smoothed = Some((smoothed * 7 + adjusted) / 8);
            }
        }
    }

    /// The next time at which [`timeout`](Self::timeout) has something to do.
    pub(super) fn wakes_at(&self) -> Instant {
        let probe = self.last_heard.max(self.last_eliciting) + PROBE_EVERY;
        let pto = self.last_eliciting + self.probe_timeout() * 2_u32.pow(self.timeouts.min(16));
        let eliciting = if self.sent.is_empty() { probe + PROBE_EVERY * 1_000_000 } else { pto.min(probe) };
        let lost = self.loss_time().unwrap_or(eliciting);
        eliciting.min(lost).min(self.pacing_at.unwrap_or(eliciting))
    }

    pub(super) fn timeout(&mut self, now: Instant) {
        if self.loss_time().is_some_and(|at| at <= now) {
            self.detect_loss(now);
        }
        if self.sent.is_empty() {
            return;
        }
        if now >= self.last_eliciting + self.probe_timeout() * 2_u32.pow(self.timeouts.min(16)) {
            self.timeouts += 1;
            self.probes = 2;
        } else if now >= self.last_heard.max(self.last_eliciting) + PROBE_EVERY {
            self.probes = 1;
        }
    }

    fn loss_delay(&self) -> Duration {
        self.round_trip().max(self.latest).mul_f64(TIME_THRESHOLD)
    }

    fn loss_time(&self) -> Option<Instant> {
        let largest = self.largest_acked?;
        let (number, first) = self.sent.first_key_value()?;
        (*number < largest).then(|| first.at + self.loss_delay())
    }

    fn detect_loss(&mut self, now: Instant) {
        let Some(largest) = self.largest_acked else { return };
        let too_old = self.loss_delay();
        let lost: Vec<u64> = self
            .sent
            .range(..largest)
            .filter(|(number, sent)| largest >= **number + PACKET_THRESHOLD || now - sent.at >= too_old)
            .map(|(number, _)| *number)
            .collect();
        let (Some(first), Some(last)) = (lost.first(), lost.last()) else { return };
        let spans = self.sent[last].at - self.sent[first].at;
        let unbroken = last - first + 1 == lost.len() as u64;
        for number in &lost {
            let Some(sent) = self.sent.remove(number) else { continue };
            self.small.extend(sent.small);
            self.in_flight -= PACKET_BYTES;
            self.backlog += PACKET_BYTES;
        }
        self.control.lost(now, lost.len() as u64 * PACKET_BYTES);
        if unbroken && spans > self.probe_timeout() * DARK_TIMEOUTS {
            self.control.persistent_congestion(now);
        }
    }

    fn round_trip(&self) -> Duration {
        self.smoothed.unwrap_or(self.latest)
    }

    fn probe_timeout(&self) -> Duration {
        self.round_trip() + (self.variance * 4).max(Duration::from_millis(1)) + ACK_DELAY_MAX
    }
}
