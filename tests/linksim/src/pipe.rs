//! One direction of a link as pure state: drops, changes and delays packets.
//!
//! It moves no packets itself: time comes in as an argument, chance from a seed.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use serde::Serialize;

use crate::impairment::Impairment;
use crate::packet::{self, UDP};
use crate::rng::SeededRng;
use crate::schedule::Dark;

/// Most bytes that a direction holds, delayed or waiting for their turn: 1 s of 1 Gbit/s. More is dropped.
pub const DELAYED_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Counters of the packets of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Packets that came in at the near end.
    pub packets_in: u64,
    /// Bytes of IP that came in.
    pub bytes_in: u64,
    /// Packets that came out, second copies included.
    pub packets_out: u64,
    /// Bytes of IP that came out.
    pub bytes_out: u64,
    /// Dropped while the direction was dark.
    pub dropped_dark: u64,
    /// Dropped by chance, each by itself.
    pub dropped_loss: u64,
    /// Dropped by chance in a bad spell.
    pub dropped_burst: u64,
    /// Dropped because the queue was full.
    pub dropped_queue: u64,
    /// Dropped because they exceeded the MTU.
    pub dropped_mtu: u64,
    /// UDP packets that exceeded the UDP MTU.
    pub dropped_udp: u64,
    /// Dropped because the NAT has no mapping.
    pub dropped_nat: u64,
    /// Refused by the device at the other end.
    pub dropped_device: u64,
    /// Packets that came out twice.
    pub duplicated: u64,
    /// Packets that were held back while others overtook them.
    pub reordered: u64,
    /// Packets with a flipped bit.
    pub corrupted: u64,
}

/// One direction of a link.
///
/// The contract: [`Self::admit`] takes a packet in; [`Self::release`] is asked until it has none; then
/// nothing is due before [`Self::next_release`]. Time is what has passed since the link's start, and never
/// runs backwards.
#[derive(Debug)]
pub struct Pipe {
    impairment: Impairment,
    darks: Vec<Dark>,
    is_down: bool,
    rng: SeededRng,
    in_bad_spell: bool,
    /// The time at which the last admitted bit will have left the queue.
    free_at: Duration,
    /// The time at which the last packet in order comes out.
    last_due: Duration,
    delayed: BinaryHeap<DelayedPacket>,
    delayed_bytes: usize,
    admitted: u64,
    /// Counters of everything that happened so far.
    pub counters: Counters,
}

#[derive(Debug)]
struct DelayedPacket {
    due: Duration,
    number: u64,
    packet: Vec<u8>,
}

impl Pipe {
    /// A direction with these impairments that is dark at these times.
    pub fn new(impairment: Impairment, darks: Vec<Dark>, seed: u64) -> Self {
        Self {
            impairment,
            darks,
            is_down: false,
            rng: SeededRng::new(seed),
            in_bad_spell: false,
            free_at: Duration::ZERO,
            last_due: Duration::ZERO,
            delayed: BinaryHeap::new(),
            delayed_bytes: 0,
            admitted: 0,
            counters: Counters::default(),
        }
    }

    /// The impairments that apply now.
    pub fn impairment(&self) -> &Impairment {
        &self.impairment
    }

    /// Changes the impairments of packets that come in from now on.
    pub fn set_impairment(&mut self, impairment: Impairment) {
        self.impairment = impairment;
    }

    /// Makes the direction dark until the next call, or leaves it to its schedule again.
    pub fn set_down(&mut self, is_down: bool) {
        self.is_down = is_down;
    }

    /// Returns true if nothing passes at this time.
    pub fn is_dark(&self, now: Duration) -> bool {
        self.is_down || self.darks.iter().any(|dark| dark.is_at(now))
    }

    /// Takes a packet in, at this time.
    pub fn admit(&mut self, now: Duration, mut packet: Vec<u8>) {
        self.counters.packets_in += 1;
        self.counters.bytes_in += packet.len() as u64;
        if self.is_dropped(now, &packet) {
            return;
        }
        if self.chance(self.impairment.corrupt) {
            packet::flip(&mut packet, self.rng.next_u64());
            self.counters.corrupted += 1;
        }
        if self.chance(self.impairment.corrupt_hidden)
            && packet::flip_hidden(&mut packet, self.rng.next_u64())
        {
            self.counters.corrupted += 1;
        }
        let Some(departs) = self.departure(now, packet.len()) else {
            self.counters.dropped_queue += 1;
            return;
        };
        let due = self.arrival(departs);
        if self.chance(self.impairment.duplicate) {
            self.counters.duplicated += 1;
            self.delay(due, packet.clone());
        }
        self.delay(due, packet);
    }

    /// Takes out the next packet that is due.
    pub fn release(&mut self, now: Duration) -> Option<Vec<u8>> {
        while self.delayed.peek().is_some_and(|packet| packet.due <= now) {
            let DelayedPacket { packet, .. } = self.delayed.pop()?;
            self.delayed_bytes -= packet.len();
            // Packets under way when the link went dark are lost.
            if self.is_dark(now) {
                self.counters.dropped_dark += 1;
                continue;
            }
            self.counters.packets_out += 1;
            self.counters.bytes_out += packet.len() as u64;
            return Some(packet);
        }
        None
    }

    /// The time at which the next packet is due.
    pub fn next_release(&self) -> Option<Duration> {
        self.delayed.peek().map(|packet| packet.due)
    }

    fn is_dropped(&mut self, now: Duration, packet: &[u8]) -> bool {
        let is_over = |limit: Option<usize>| limit.is_some_and(|limit| packet.len() > limit);
        let dropped = if self.is_dark(now) {
            &mut self.counters.dropped_dark
        } else if is_over(self.impairment.mtu) {
            &mut self.counters.dropped_mtu
        } else if is_over(self.impairment.udp_mtu) && packet::protocol(packet) == Some(UDP) {
            &mut self.counters.dropped_udp
        } else if self.is_lost_in_a_burst() {
            &mut self.counters.dropped_burst
        } else if self.chance(self.impairment.loss) {
            &mut self.counters.dropped_loss
        } else {
            return false;
        };
        *dropped += 1;
        true
    }

    fn is_lost_in_a_burst(&mut self) -> bool {
        let Some(burst) = self.impairment.burst else {
            self.in_bad_spell = false;
            return false;
        };
        let turns = if self.in_bad_spell { burst.ends } else { burst.begins };
        self.in_bad_spell ^= self.chance(turns);
        self.in_bad_spell && self.chance(burst.loss)
    }

    /// The time at which the packet's last bit has left the queue; `None` if the queue is full.
    fn departure(&mut self, now: Duration, bytes: usize) -> Option<Duration> {
        if self.delayed_bytes + bytes > DELAYED_BYTES_MAX {
            return None;
        }
        let Some(rate) = self.impairment.rate else { return Some(now) };
        let waiting = self.free_at.saturating_sub(now).as_secs_f64() * rate as f64 / 8.0;
        // Nothing waits behind what is just being sent, so that a queue shorter than a packet lets packets
        // through.
        if waiting > 0.0 && waiting as usize + bytes > self.impairment.queue_bytes {
            return None;
        }
        self.free_at = self.free_at.max(now) + Duration::from_secs_f64(bytes as f64 * 8.0 / rate as f64);
        Some(self.free_at)
    }

    /// The time at which a packet comes out that left the queue at `departs`.
    fn arrival(&mut self, departs: Duration) -> Duration {
        let Impairment { delay, jitter, reorder, .. } = self.impairment;
        let mut due = departs + delay;
        if !jitter.is_zero() {
            due = (due + jitter.mul_f64(2.0 * self.rng.next_f64())).saturating_sub(jitter).max(departs);
        }
        if let Some(reorder) = reorder
            && self.chance(reorder.share)
        {
            self.counters.reordered += 1;
            return due + reorder.by;
        }
        self.last_due = self.last_due.max(due);
        self.last_due
    }

    fn delay(&mut self, due: Duration, packet: Vec<u8>) {
        self.delayed_bytes += packet.len();
        self.delayed.push(DelayedPacket { due, number: self.admitted, packet });
        self.admitted += 1;
    }

    // A share of zero or one draws no number, so that switching one impairment on does not change the outcome
    // of others.
    fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && (share >= 1.0 || self.rng.next_f64() < share)
    }
}

// The heap's greatest is the one that is due first.
impl Ord for DelayedPacket {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl PartialOrd for DelayedPacket {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for DelayedPacket {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for DelayedPacket {}

#[cfg(test)]
mod tests;
