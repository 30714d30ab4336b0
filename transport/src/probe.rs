//! Lets a probe pass a full congestion window, and reports when the peer has received it.
//!
//! After an outage QUIC waits: its probe timeout has doubled at each silence, and the packets in flight fill
//! the window, so that nothing may be sent whose acknowledgement would show that the path is back. So each
//! tunnel's congestion controller is wrapped: an *allowance* raises its window by two packets until they are
//! sent. The first probe that is acknowledged makes QUIC declare the rest lost and send it again.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics};
use tokio::sync::Notify;

pub(crate) use rtt_repair::RttRepair;

use full_size::{AckedFullSize, FullSizePackets};

mod full_size;
mod rtt_repair;

/// Packets of an allowance: the probe, and one more, because quinn asks whether another full packet would
/// still fit behind.
const ALLOWANCE_PACKETS: u64 = 2;

/// Most pings whose answer is awaited: those of a second while the RTT is repaired, or of four seconds in an
/// outage.
const PINGS_MAX: usize = 16;

/// An allowance of this many bytes switches quinn's pacer off (`quinn_proto`, `Pacer::delay`): the pacer
/// divides by a round trip that may be as long as the outage was.
const UNPACED_BYTES: u64 = 1 << 33;

/// The probes of one tunnel: shared by its driver and by every controller that its connection makes, one for
/// each path.
#[derive(Clone)]
pub(crate) struct Probe(Arc<ProbeState>);

/// Makes the wrapped controllers of one tunnel.
pub(crate) struct ProbingFactory {
    inner: Arc<dyn ControllerFactory + Send + Sync>,
    probe: Probe,
}

/// The acknowledgement of a ping: its time, and the ping's round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) at: Instant,
    pub(crate) round_trip: Duration,
}

struct ProbeState {
    /// The factor by which quinn's pacer is corrected; see `RttRepair`.
    pace_factor: AtomicU64,
    /// Bytes that may still be sent beyond the window.
    allowance_bytes: AtomicU64,
    /// Bytes in flight as the controller sees them: a little too many where packets hold nothing but
    /// acknowledgements.
    in_flight_bytes: AtomicU64,
    packet_bytes: AtomicU64,
    pings: Mutex<Pings>,
    full_size: Mutex<FullSizePackets>,
    answered: Notify,
}

/// Pings that await their answer.
#[derive(Default)]
struct Pings {
    /// True if the next packet carries a ping.
    is_next: bool,
    /// Packet numbers of pings, with the times of sending. In an outage only the latest are kept: earlier
    /// ones will not be answered.
    unanswered: VecDeque<(u64, Instant)>,
    answer: Option<Answer>,
}

/// A controller of one path, whose window an allowance raises.
struct ProbingController {
    inner: Box<dyn Controller>,
    probe: Probe,
    /// The packets of the ACK frame that quinn handles now.
    acked: AckedFullSize,
}

impl Probe {
    pub(crate) fn new() -> Self {
        Self(Arc::new(ProbeState {
            pace_factor: AtomicU64::new(1),
            allowance_bytes: AtomicU64::new(0),
            in_flight_bytes: AtomicU64::new(0),
            packet_bytes: AtomicU64::new(0),
            pings: Mutex::default(),
            full_size: Mutex::default(),
            answered: Notify::new(),
        }))
    }

    /// A factory whose controllers share this probe's allowance.
    pub(crate) fn factory(&self, inner: Arc<dyn ControllerFactory + Send + Sync>) -> ProbingFactory {
        ProbingFactory { inner, probe: self.clone() }
    }

    /// Lets the next packet pass whatever the window, and awaits its acknowledgement. Must be called *before*
    /// the connection gets the bytes to send, because that wakes it.
    pub(crate) fn allow_probe(&self) {
        let packets = ALLOWANCE_PACKETS * self.0.packet_bytes.load(Ordering::Relaxed);
        // An unused allowance means that the pacer, or an error of our count, has blocked the probe.
        let unused = self.0.allowance_bytes.load(Ordering::Relaxed) >= packets;
        let bytes = if unused { UNPACED_BYTES } else { packets };
        self.0.allowance_bytes.store(bytes, Ordering::Relaxed);
        self.pings().is_next = true;
    }

    /// Awaits the acknowledgement of a full-size packet that is sent from now on.
    pub(crate) fn expect_full_size(&self, now: Instant) {
        self.full_size().expect(now);
    }

    /// The time at which the latest full-size packet was sent that the peer has received.
    pub(crate) fn full_size_arrived(&self) -> Option<Instant> {
        self.full_size().arrived()
    }

    /// The time of the oldest full-size packet since the last that was acknowledged.
    pub(crate) fn full_size_unanswered_since(&self) -> Option<Instant> {
        self.full_size().unanswered_since()
    }

    /// Corrects quinn's pacer by this factor from now on; a factor of one corrects nothing.
    pub(crate) fn correct_pace(&self, factor: u64) {
        self.0.pace_factor.store(factor, Ordering::Relaxed);
    }

    /// The answer to a ping, once.
    pub(crate) fn take_answer(&self) -> Option<Answer> {
        self.pings().answer.take()
    }

    /// Resolves when there is an answer to take. Cancel-safe.
    pub(crate) async fn answered(&self) {
        self.0.answered.notified().await;
    }

    fn pings(&self) -> MutexGuard<'_, Pings> {
        // A panic under the lock leaves valid state behind.
        self.0.pings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn full_size(&self) -> MutexGuard<'_, FullSizePackets> {
        // A panic under the lock leaves valid state behind.
        self.0.full_size.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sent(&self, now: Instant, bytes: u64, packet: u64) {
        self.full_size().sent(now, bytes);
        self.0.in_flight_bytes.fetch_add(bytes, Ordering::Relaxed);
        let allowance = self.0.allowance_bytes.load(Ordering::Relaxed);
        if allowance > 0 {
            let left = if allowance == UNPACED_BYTES { 0 } else { allowance.saturating_sub(bytes) };
            self.0.allowance_bytes.store(left, Ordering::Relaxed);
        }
        let mut pings = self.pings();
        if std::mem::take(&mut pings.is_next) {
            if pings.unanswered.len() >= PINGS_MAX {
                pings.unanswered.pop_front();
            }
            pings.unanswered.push_back((packet, now));
        }
    }

    fn acknowledged(&self, now: Instant, in_flight: u64, largest: Option<u64>) {
        self.0.in_flight_bytes.store(in_flight, Ordering::Relaxed);
        let Some(largest) = largest else {
            return;
        };
        let mut pings = self.pings();
        let mut answered = None;
        while let Some((_, sent)) = pings.unanswered.pop_front_if(|(packet, _)| *packet <= largest) {
            // The latest ping measures the path; earlier ones may have been lost.
            answered = Some(sent);
        }
        if let Some(sent) = answered {
            pings.answer = Some(Answer { at: now, round_trip: now.saturating_duration_since(sent) });
            self.0.allowance_bytes.store(0, Ordering::Relaxed);
            self.0.answered.notify_one();
        }
    }

    fn lost(&self, bytes: u64) {
        let in_flight = self.0.in_flight_bytes.load(Ordering::Relaxed);
        self.0.in_flight_bytes.store(in_flight.saturating_sub(bytes), Ordering::Relaxed);
    }

    /// The controller's `window`, raised as quinn shall see it. quinn asks twice for each packet: whether one
    /// more may be in flight, and how long the pacer has to wait, which sends a window in each round trip.
    fn raised_window(&self, window: u64) -> u64 {
        let (allowance, factor) =
            (self.0.allowance_bytes.load(Ordering::Relaxed), self.0.pace_factor.load(Ordering::Relaxed));
        if allowance == 0 && factor == 1 {
            return window;
        }
        let in_flight = self.0.in_flight_bytes.load(Ordering::Relaxed);
        // Room for two packets: room for one alone may come from the minimum send rate on a full window.
        let there_is_room = in_flight + 2 * self.0.packet_bytes.load(Ordering::Relaxed) < window;
        let paced = if there_is_room { window.saturating_mul(factor) } else { window };
        if allowance == 0 { paced } else { paced.max(in_flight.saturating_add(allowance)) }
    }
}

impl ControllerFactory for ProbingFactory {
    fn build(self: Arc<Self>, now: Instant, packet_bytes: u16) -> Box<dyn Controller> {
        // A new path begins with nothing in flight.
        self.probe.0.in_flight_bytes.store(0, Ordering::Relaxed);
        self.probe.0.packet_bytes.store(packet_bytes.into(), Ordering::Relaxed);
        let inner = Arc::clone(&self.inner).build(now, packet_bytes);
        Box::new(ProbingController { inner, probe: self.probe.clone(), acked: AckedFullSize::default() })
    }
}

impl Controller for ProbingController {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.probe.sent(now, bytes, last_packet_number);
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &quinn_proto::RttEstimator,
    ) {
        self.acked.add(sent, bytes);
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        if self.acked.take().is_some_and(|sent| self.probe.full_size().acknowledged(sent)) {
            self.probe.0.answered.notify_one();
        }
        self.probe.acknowledged(now, in_flight, largest);
        self.inner.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent: bool, lost_bytes: u64) {
        self.probe.lost(lost_bytes);
        self.inner.on_congestion_event(now, sent, is_persistent, lost_bytes);
    }

    fn on_mtu_update(&mut self, packet_bytes: u16) {
        self.probe.0.packet_bytes.store(packet_bytes.into(), Ordering::Relaxed);
        self.inner.on_mtu_update(packet_bytes);
    }

    fn window(&self) -> u64 {
        self.probe.raised_window(self.inner.window())
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        // The path of a peer whose port alone has changed, with nothing in flight on it yet.
        self.probe.0.in_flight_bytes.store(0, Ordering::Relaxed);
        let (inner, probe) = (self.inner.clone_box(), self.probe.clone());
        Box::new(Self { inner, probe, acked: AckedFullSize::default() })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self.inner.into_any()
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Probe")
    }
}

#[cfg(test)]
mod tests;
