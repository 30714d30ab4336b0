//! One direction of a link: a bottleneck with a bounded queue, then a delay, and losses on the way.

use std::time::Duration;

use super::super::rng::Rng;

/// The properties of a link. Times count from the beginning of the simulation.
#[derive(Debug, Clone)]
pub(in super::super) struct LinkSpec {
    /// Bytes a second, each from a time on; the first from the beginning.
    pub(in super::super) rates: Vec<(Duration, u64)>,
    /// The propagation delay, one way.
    pub(in super::super) delay: Duration,
    /// Added to the delay of each packet, up to this much, without reordering.
    pub(in super::super) jitter: Duration,
    /// Size of the queue; more is dropped.
    pub(in super::super) queue_bytes: u64,
    pub(in super::super) loss: Loss,
    /// Nothing passes from the first time until the second.
    pub(in super::super) dark: Option<(Duration, Duration)>,
    /// Packets that wait for this time are marked (ECN); all, if it is zero.
    pub(in super::super) marks_after: Option<Duration>,
    /// Acknowledgements come back in bunches, this far apart.
    pub(in super::super) acks_every: Duration,
}

/// The pattern of losses, beside those of the full queue.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Loss {
    /// This part of the packets, each by its own chance.
    Random(f64),
    /// Gilbert and Elliott: every packet of a bad time is lost with `lost`; a bad time begins and ends with a
    /// packet by these chances.
    Bursts { begins: f64, ends: f64, lost: f64 },
}

/// A link in operation, with the state of its queue.
pub(super) struct Link {
    pub(super) spec: LinkSpec,
    rng: Rng,
    /// The time at which the last packet of the queue will have left it.
    busy_until: Duration,
    last_arrival: Duration,
    bad: bool,
    /// The times at which a packet found the queue full.
    pub(super) overflows: Vec<Duration>,
}

impl Link {
    pub(super) fn new(spec: LinkSpec, seed: u64) -> Self {
        Self {
            spec,
            rng: Rng::new(seed),
            busy_until: Duration::ZERO,
            last_arrival: Duration::ZERO,
            bad: false,
            overflows: Vec::new(),
        }
    }

    /// The time that a packet that comes now waits in the queue.
    pub(super) fn waits(&self, now: Duration) -> Duration {
        self.busy_until.saturating_sub(now)
    }

    /// The time at which a packet that enters now arrives at the other end, and whether it was marked; `None`
    /// if it is lost.
    pub(super) fn enter(&mut self, now: Duration, bytes: u64) -> Option<(Duration, bool)> {
        if self.spec.dark.is_some_and(|(from, until)| (from..until).contains(&now)) {
            return None;
        }
        let rate =
            self.spec.rates.iter().rev().find(|(from, _)| *from <= now).map_or(u64::MAX, |(_, rate)| *rate);
        let queued = self.waits(now).as_secs_f64() * rate as f64;
        if queued + bytes as f64 > self.spec.queue_bytes as f64 + 1.0 {
            self.overflows.push(now);
            return None;
        }
        let marked = self.spec.marks_after.is_some_and(|after| self.waits(now) >= after);
        self.busy_until = self.busy_until.max(now) + Duration::from_secs_f64(bytes as f64 / rate as f64);
        if self.loses() {
            return None;
        }
        let jitter = self.spec.jitter.mul_f64(self.rng.chance());
        self.last_arrival = self.last_arrival.max(self.busy_until + self.spec.delay + jitter);
        Some((self.last_arrival, marked))
    }

    /// A rate changed: what is queued now leaves at the new one.
    pub(super) fn rate_changed(&mut self, now: Duration, from: u64, to: u64) {
        let waits = self.waits(now).mul_f64(from as f64 / to as f64);
        self.busy_until = now + waits;
    }

    fn loses(&mut self) -> bool {
        match self.spec.loss {
            Loss::Random(part) => self.rng.chance() < part,
            Loss::Bursts { begins, ends, lost } => {
                let turns = if self.bad { ends } else { begins };
                if self.rng.chance() < turns {
                    self.bad = !self.bad;
                }
                self.bad && self.rng.chance() < lost
            }
        }
    }
}
