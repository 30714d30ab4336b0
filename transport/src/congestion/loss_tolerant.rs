//! The controller that ships: a model of the path decides, and loss only shows that the model is wrong.
//!
//! After BBR (draft-ietf-ccwg-bbr, "the draft" below): the window follows bandwidth × round trip, both
//! measured, and every few rounds it probes for a little more. It differs from the draft where edge links
//! differ from the internet at large, or where the carrier offers less than a TCP stack:
//!
//! * **The window is the only lever**, because quinn's pacer runs at 1.25 × window / round trip and so never binds before
//!   the window does. The draft lets two bandwidth-delay products be in flight and keeps the queue short by its pace;
//!   here the window itself is one product, and more only to match the queue of others.
//! * **Loss below [`LOSS_EXCESSIVE`] changes nothing**; the draft backs off at 2 %.
//! * **A bandwidth that fell is believed within a few round trips** ([`BandwidthDrop`]), not after the filter's whole length.

use std::time::{Duration, Instant};

use super::aggregation::Aggregation;
use super::bandwidth::{Bandwidth, product};
use super::bandwidth_drop::BandwidthDrop;
use super::control::CongestionControl;
use super::delivery::Delivery;
use super::min_send_rate::{self, MinSendRate};
use super::probing::{self, CruiseInterval};
use super::rng::Rng;
use super::round_trip::{ROUND_TRIP_MIN, RoundTrip};

/// Packets that may be in flight before the first measurement (RFC 9002, section 7.2).
const INITIAL_PACKETS: u64 = 10;

/// The draft's `BBRMinPipeCwnd`: with fewer, an acknowledgement for every second packet and one loss stop the
/// flow.
const MIN_PACKETS: u64 = 4;

/// Packets beyond the product, so that acknowledgements for every second packet and a sender that wants room
/// for a whole packet do not leave the path idle.
const SPARE_PACKETS: u64 = 3;

/// Doubles what is in flight each round (the draft's `BBRStartupCwndGain`).
const STARTUP_GAIN: f64 = 2.0;

/// The draft's `BBRStartup` plateau: three rounds in which the bandwidth grew by less than a quarter. One is
/// enough where everything has waited throughout it for half a round trip, because that is the queue which
/// more would only lengthen.
const PLATEAU_ROUNDS: u8 = 3;
const PLATEAU_GROWTH: f64 = 1.25;

/// BBRv1's gain after a probe (the draft has 0.9): drains the queue of the probe and of other flows of ours,
/// and so shows the part of the queue that belongs to others.
const DOWN_GAIN: f64 = 0.75;

/// Rounds between two probes, drawn at random, so that flows do not probe in step. With the probe's own it is
/// BBRv1's cycle.
const CRUISE_ROUNDS_MIN: u64 = 5;
const CRUISE_ROUNDS_SPAN: u64 = 4;

/// The draft's `BBRProbeRTTCwndGain` and `ProbeRTTDuration`: half a window for a fifth of a second, and only
/// where the shortest round trip has not been seen for some seconds.
const PROBE_RTT_GAIN: f64 = 0.5;
const PROBE_RTT_FOR: Duration = Duration::from_millis(200);

/// Others' queue is matched up to this many times the shortest round trip: one product of ours queued beside
/// theirs, as the draft's window of two products allows.
const STANDING_MAX: u32 = 2;

/// Twice the random loss that we promise to tolerate. More of it is the path's answer to too much.
const LOSS_EXCESSIVE: f64 = 0.2;
/// Fewer lost packets in a round than this are chance (the draft's `BBRStartupFullLossCnt`, and two more).
const LOSS_EXCESSIVE_PACKETS: u64 = 8;

/// Answer to a router's mark, until the next probe (RFC 8511: 0.85 for ECN).
const MARKED_GAIN: f64 = 0.85;

/// A controller that keeps about one bandwidth-delay product in flight, whatever is lost.
#[derive(Debug, Clone)]
pub(crate) struct LossTolerant {
    rng: Rng,
    packet_bytes: u64,
    in_flight: u64,
    delivery: Delivery,
    bandwidth: Bandwidth,
    round_trip: RoundTrip,
    aggregation: Aggregation,
    round: Round,
    bandwidth_drop: BandwidthDrop,
    phase: Phase,
    /// Routers marked packets since the last probe.
    marked: bool,
    /// The window after an outage, until it has grown to the model's target.
    ramp: Option<u64>,
    window: u64,
    min_send_rate: MinSendRate,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Doubles the window until the bandwidth no longer grows.
    Startup {
        best: u64,
        plateau: u8,
    },
    /// Drains the queue that startup has built.
    Drain,
    Cruise {
        rounds_left: u64,
        interval: CruiseInterval,
    },
    /// Probes for more bandwidth. `before` is the bandwidth at the end of the last round.
    Up {
        step: usize,
        rounds: u8,
        before: u64,
    },
    Down,
    /// Probes for the shortest round trip. `until` is set once little is in flight.
    ProbeRtt {
        until: Option<Instant>,
    },
}

/// A packet's round: from its departure to its acknowledgement.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    ends_at: u64,
    began_at: u64,
    lost: u64,
    /// True if a sample showed the path's pace and not the application's.
    path_limited: bool,
}

impl LossTolerant {
    /// A controller of a path on which packets have `packet_bytes`. The `seed` decides when it probes.
    pub(crate) fn new(packet_bytes: u16, seed: u64) -> Self {
        let packet_bytes = u64::from(packet_bytes);
        Self {
            rng: Rng::new(seed),
            packet_bytes,
            in_flight: 0,
            delivery: Delivery::default(),
            bandwidth: Bandwidth::default(),
            round_trip: RoundTrip::default(),
            aggregation: Aggregation::default(),
            round: Round::default(),
            bandwidth_drop: BandwidthDrop::default(),
            phase: Phase::Startup { best: 0, plateau: 0 },
            marked: false,
            ramp: None,
            window: INITIAL_PACKETS * packet_bytes,
            min_send_rate: MinSendRate::default(),
        }
    }

    /// Bytes that may be in flight before the first measurement.
    pub(crate) fn initial_window(&self) -> u64 {
        INITIAL_PACKETS * self.packet_bytes
    }

    fn end_round(&mut self, now: Instant) {
        let delivered = self.delivery.delivered() - self.round.began_at;
        let lost = self.round.lost;
        let excessive = lost >= LOSS_EXCESSIVE_PACKETS * self.packet_bytes
            && lost as f64 > LOSS_EXCESSIVE * (lost + delivered) as f64;
        let path_limited = self.round.path_limited;

        self.phase = match self.phase {
            Phase::Startup { best, plateau } => self.end_startup_round(best, plateau, excessive),
            Phase::Cruise { rounds_left: 0, interval } => {
                let carried = interval.carried(now, self.delivery.delivered());
                self.begin_up(probing::first_step(carried, self.bandwidth.get()))
            }
            Phase::Cruise { rounds_left, interval } => {
                Phase::Cruise { rounds_left: rounds_left - 1, interval }
            }
            Phase::Up { step, rounds, before } => self.end_up_round(step, rounds, before, excessive),
            Phase::Drain | Phase::Down | Phase::ProbeRtt { .. } => self.phase,
        };
        // In other phases the rate differs on purpose, so loss says nothing about the bandwidth.
        if excessive && matches!(self.phase, Phase::Cruise { .. }) {
            self.bandwidth.replace(self.bandwidth.this_round());
        }
        if path_limited {
            self.bandwidth.next_round();
            self.aggregation.next_round();
        }
        self.round_trip.next_round();
        self.round = Round {
            ends_at: self.delivery.delivered() + self.in_flight,
            began_at: self.delivery.delivered(),
            ..Round::default()
        };
    }

    fn end_startup_round(&self, best: u64, plateau: u8, excessive: bool) -> Phase {
        let bandwidth = self.bandwidth.get();
        if excessive {
            return Phase::Drain;
        }
        if !self.round.path_limited {
            return self.phase;
        }
        if bandwidth as f64 >= best as f64 * PLATEAU_GROWTH {
            return Phase::Startup { best: bandwidth, plateau: 0 };
        }
        let is_queued = self.round_trip.queued_now() > self.round_trip.shortest().unwrap_or_default() / 2;
        match plateau + 1 {
            PLATEAU_ROUNDS => Phase::Drain,
            _ if is_queued => Phase::Drain,
            plateau => Phase::Startup { best, plateau },
        }
    }

    fn begin_up(&mut self, step: usize) -> Phase {
        self.marked = false;
        self.round_trip.next_cycle();
        Phase::Up { step, rounds: 0, before: self.bandwidth.get() }
    }

    /// Ends a round of a probe. Packets of its first round are acknowledged in its second, so only then there
    /// is a result.
    fn end_up_round(&self, step: usize, rounds: u8, before: u64, excessive: bool) -> Phase {
        if rounds == 0 && !excessive {
            return Phase::Up { step, rounds: 1, before };
        }
        let bandwidth = self.bandwidth.get();
        let grown = bandwidth as f64 >= before as f64 * (1.0 + (probing::gain(step) - 1.0) / 2.0);
        if grown && !excessive && self.round.path_limited {
            Phase::Up { step: step + 1, rounds: 1, before: bandwidth }
        } else {
            Phase::Down
        }
    }

    /// Ends phases that last until little enough is in flight.
    fn follow_in_flight(&mut self, now: Instant, round_ended: bool) {
        let drained = self.in_flight <= self.target();
        match self.phase {
            Phase::Drain | Phase::Down if drained => {
                let rounds_left = CRUISE_ROUNDS_MIN + self.rng.below(CRUISE_ROUNDS_SPAN);
                let interval = CruiseInterval::begin(now, self.delivery.delivered());
                self.phase = Phase::Cruise { rounds_left, interval };
            }
            Phase::ProbeRtt { until: None } if drained => {
                self.phase = Phase::ProbeRtt { until: Some(now + PROBE_RTT_FOR) };
            }
            Phase::ProbeRtt { until: Some(until) } if now >= until && round_ended => {
                self.phase = self.begin_up(probing::UNKNOWN)
            }
            Phase::Startup { .. }
            | Phase::Drain
            | Phase::Cruise { .. }
            | Phase::Up { .. }
            | Phase::Down
            | Phase::ProbeRtt { .. } => {}
        }
    }

    fn gain(&self) -> f64 {
        match self.phase {
            Phase::Startup { .. } => STARTUP_GAIN,
            Phase::Up { step, .. } => probing::gain(step),
            Phase::Cruise { .. } if self.marked => MARKED_GAIN,
            Phase::Drain | Phase::Cruise { .. } => 1.0,
            Phase::Down => DOWN_GAIN,
            Phase::ProbeRtt { .. } => PROBE_RTT_GAIN,
        }
    }

    /// The model's window, in bytes.
    fn target(&self) -> u64 {
        let bandwidth = self.bandwidth.get();
        let Some(shortest) = self.round_trip.shortest().filter(|_| bandwidth > 0) else {
            return self.initial_window();
        };
        let shortest = shortest.max(ROUND_TRIP_MIN);
        let spare = SPARE_PACKETS * self.packet_bytes;
        let (round_trip, spare) = match self.phase {
            Phase::Startup { .. } | Phase::Cruise { .. } | Phase::Up { .. } => {
                (self.shared_round_trip(shortest), spare.max(self.excess(bandwidth, shortest)))
            }
            // The queue of others shows only once ours is drained.
            Phase::Drain | Phase::Down => (shortest, spare),
            Phase::ProbeRtt { .. } => (shortest, 0),
        };
        let target = (self.gain() * product(bandwidth, round_trip) as f64) as u64 + spare;
        let most = product(bandwidth, shortest * STANDING_MAX) + SPARE_PACKETS * self.packet_bytes;
        let target = target.min(most);
        let starting = matches!(self.phase, Phase::Startup { .. });
        let least = if starting { self.initial_window() } else { MIN_PACKETS * self.packet_bytes };
        target.max(least)
    }

    /// Bytes in flight beyond the product because acknowledgements come in bunches. They keep the path busy
    /// between the bunches.
    ///
    /// A queue does that as well, whichever flow built it, so it is subtracted. Otherwise two flows in
    /// opposite directions would take each other's queue for bunches, and add to it.
    fn excess(&self, bandwidth: u64, shortest: Duration) -> u64 {
        let excess = self.aggregation.excess().min(product(bandwidth, shortest));
        let probing = match self.phase {
            Phase::Up { step, .. } => (probing::gain(step) - 1.0) * product(bandwidth, shortest) as f64,
            Phase::Startup { .. }
            | Phase::Drain
            | Phase::Cruise { .. }
            | Phase::Down
            | Phase::ProbeRtt { .. } => 0.0,
        };
        excess.saturating_sub(product(bandwidth, self.round_trip.queued())).saturating_sub(probing as u64)
    }

    /// The shortest round trip plus the queue that other flows keep.
    fn shared_round_trip(&self, shortest: Duration) -> Duration {
        // Our own remaining queue while we drain does not count as others'.
        let standing = self.round_trip.standing().unwrap_or(shortest).saturating_sub(self.spare_time());
        standing.clamp(shortest, shortest * STANDING_MAX)
    }

    /// The time that the bottleneck takes for [`SPARE_PACKETS`].
    fn spare_time(&self) -> Duration {
        let bandwidth = self.bandwidth.get().max(1);
        Duration::from_secs_f64((SPARE_PACKETS * self.packet_bytes) as f64 / bandwidth as f64)
    }

    /// The interval at which a packet may leave whatever the window. While the bandwidth is unknown, because
    /// the application has sent little, the round trip alone decides.
    fn min_send_interval(&self) -> Option<Duration> {
        let shortest = self.round_trip.shortest()?;
        let carried = Duration::from_secs_f64(self.packet_bytes as f64 / self.bandwidth.get().max(1) as f64);
        let by_bandwidth = carried * min_send_rate::ONE_OF;
        match self.phase {
            Phase::Startup { .. } => Some(by_bandwidth.min(shortest / min_send_rate::ONE_OF)),
            Phase::Drain | Phase::Cruise { .. } | Phase::Up { .. } | Phase::Down | Phase::ProbeRtt { .. } => {
                Some(by_bandwidth)
            }
        }
    }

    fn update_window(&mut self) {
        let target = self.target();
        if self.ramp.is_some_and(|ramp| ramp >= target) {
            self.ramp = None;
        }
        self.window = self.ramp.unwrap_or(target);
    }
}

impl CongestionControl for LossTolerant {
    fn sent(&mut self, now: Instant, bytes: u64) {
        let round_trip = self.round_trip.latest().unwrap_or_default();
        self.delivery.sent(now, self.in_flight, round_trip);
        self.min_send_rate.sent(now);
        self.in_flight += bytes;
    }

    fn acked(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.delivery.acked(now, sent, bytes);
        self.aggregation.acked(now, bytes, self.bandwidth.get());
        if let Some(ramp) = &mut self.ramp {
            *ramp += bytes;
        }
    }

    fn acks_end(&mut self, now: Instant, in_flight: u64, app_limited: bool) {
        self.in_flight = in_flight;
        if app_limited {
            self.delivery.app_limited(in_flight);
        }
        let Some(sample) = self.delivery.sample(now, self.round_trip.shortest()) else {
            return self.update_window();
        };
        let probe_rtt = self.round_trip.measured(now, sample.round_trip, sample.app_limited);
        if let Some(rate) = sample.rate {
            // An application that paused can hide bandwidth but not invent it.
            if !sample.app_limited || rate > self.bandwidth.get() {
                self.bandwidth.measured(rate);
            }
        }
        self.round.path_limited |= !sample.app_limited;
        let bandwidth = self.bandwidth.get();
        if let Some(rate) =
            self.bandwidth_drop.detect(now, &sample, self.delivery.delivered(), &self.round_trip, bandwidth)
        {
            self.bandwidth.replace(rate);
            self.phase = Phase::Drain;
        }
        let round_ended = sample.delivered_before >= self.round.ends_at;
        if round_ended {
            self.end_round(now);
        }
        // While the application pauses, no queue of ours hides the shortest round trip.
        if probe_rtt && !sample.app_limited && !matches!(self.phase, Phase::Startup { .. }) {
            self.phase = Phase::ProbeRtt { until: None };
        }
        self.follow_in_flight(now, round_ended);
        self.update_window();
    }

    fn lost(&mut self, _now: Instant, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.round.lost += bytes;
    }

    fn marked(&mut self, _now: Instant) {
        self.marked = true;
        match self.phase {
            Phase::Startup { .. } => self.phase = Phase::Drain,
            Phase::Up { .. } => self.phase = Phase::Down,
            Phase::Drain | Phase::Cruise { .. } | Phase::Down | Phase::ProbeRtt { .. } => {}
        }
        self.update_window();
    }

    fn persistent_congestion(&mut self, _now: Instant) {
        // The model may no longer be valid. It is kept, and reached again by doubling.
        self.ramp = Some(self.initial_window());
        self.update_window();
    }

    fn packet_bytes(&mut self, bytes: u16) {
        self.packet_bytes = u64::from(bytes);
        self.update_window();
    }

    fn window(&self, now: Instant) -> u64 {
        self.min_send_rate.raised_window(
            now,
            || self.min_send_interval(),
            self.window,
            self.in_flight,
            self.packet_bytes,
        )
    }

    fn pacing_rate(&self) -> Option<u64> {
        let bandwidth = self.bandwidth.get();
        (bandwidth > 0).then(|| (bandwidth as f64 * self.gain()) as u64)
    }
}
