//! Measures the path's delivery rate at each acknowledgement.
//!
//! draft-ietf-ccwg-bbr, section 4.1 (delivery rate samples): the bytes that were delivered between a packet's
//! departure and its acknowledgement, over the longer of the two times that sending and acknowledging it
//! took. A carrier that reports only the time at which an acknowledged packet was sent is enough, because a
//! departure is found again by that time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most departures remembered. A round trip holds about [`DEPARTURES_PER_ROUND_TRIP`], so this is four of
/// them.
const DEPARTURES_MAX: usize = 1024;

/// Room for departures that an idle connection keeps.
const DEPARTURES_IDLE: usize = 4;

/// Departures closer together than this part of a round trip count as one.
const DEPARTURES_PER_ROUND_TRIP: u32 = 256;

/// After this many round trips without any delivery the path is measured afresh, as if it had been idle.
const SILENT_ROUND_TRIPS: u32 = 2;

/// Counts delivered bytes, and the times to which they belong.
#[derive(Debug, Clone, Default)]
pub(super) struct Delivery {
    delivered: u64,
    delivered_at: Option<Instant>,
    /// The departure of the packet that was acknowledged last.
    first_sent: Option<Instant>,
    /// Up to this count of delivered bytes, samples may show the application's pace instead of the path's.
    limited_until: u64,
    departures: VecDeque<Departure>,
    newest: Option<Departure>,
}

/// The counters at the time when packets left.
#[derive(Debug, Clone, Copy)]
struct Departure {
    at: Instant,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    app_limited: bool,
}

/// One measurement of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// Bytes a second; none where the times are too short to tell.
    pub(super) rate: Option<u64>,
    /// The application, not the path, may have set this pace.
    pub(super) app_limited: bool,
    /// From the newest acknowledged packet's departure to its acknowledgement.
    pub(super) round_trip: Duration,
    /// Bytes that had been delivered when that packet left.
    pub(super) delivered_before: u64,
}

impl Delivery {
    /// All bytes delivered so far.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Packets leave; `in_flight` bytes are under way before them, and a round trip takes about `round_trip`.
    pub(super) fn sent(&mut self, now: Instant, in_flight: u64, round_trip: Duration) {
        let silent = self.delivered_at.is_none_or(|at| now - at > round_trip * SILENT_ROUND_TRIPS);
        if in_flight == 0 || silent {
            self.first_sent = Some(now);
            self.delivered_at = Some(now);
        }
        let apart = round_trip / DEPARTURES_PER_ROUND_TRIP;
        if self.departures.back().is_some_and(|last| now.saturating_duration_since(last.at) < apart) {
            return;
        }
        if self.departures.len() == DEPARTURES_MAX {
            self.departures.pop_front();
        }
        self.departures.push_back(Departure {
            at: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at.unwrap_or(now),
            first_sent: self.first_sent.unwrap_or(now),
            app_limited: self.limited_until > self.delivered,
        });
    }

    /// `bytes` that left at `sent` were acknowledged.
    pub(super) fn acked(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.delivered += bytes;
        self.delivered_at = Some(now);
        if self.newest.is_some_and(|newest| newest.at >= sent) {
            return;
        }
        let known = self.departures.partition_point(|departure| departure.at <= sent);
        if let Some(departure) = known.checked_sub(1).and_then(|index| self.departures.get(index)) {
            // The time of the packet itself, which may have left a little after the departure it was counted
            // with.
            self.newest = Some(Departure { at: sent, ..*departure });
        }
    }

    /// The application has nothing to send while `in_flight` bytes are under way.
    pub(super) fn app_limited(&mut self, in_flight: u64) {
        self.limited_until = self.delivered + in_flight.max(1);
    }

    /// The measurement of the packets acknowledged since the last call. `shortest` is the shortest round trip
    /// known: a rate over less time than that would be that of a burst of acknowledgements.
    pub(super) fn sample(&mut self, now: Instant, shortest: Option<Duration>) -> Option<Sample> {
        let newest = self.newest.take()?;
        // Earlier packets are missing only by loss or reordering, and give no measurement any more.
        let stale = self.departures.partition_point(|departure| departure.at <= newest.at);
        self.departures.drain(..stale.saturating_sub(1));
        if self.departures.len() == 1 && self.departures.capacity() > DEPARTURES_IDLE {
            // An idle connection releases the memory of a busy time.
            self.departures.shrink_to(DEPARTURES_IDLE);
        }
        self.first_sent = Some(newest.at);

        let sending = newest.at.saturating_duration_since(newest.first_sent);
        let acking = now.saturating_duration_since(newest.delivered_at);
        let interval = sending.max(acking);
        let long_enough = !interval.is_zero() && shortest.is_none_or(|shortest| interval >= shortest);
        Some(Sample {
            rate: long_enough.then(|| per_second(self.delivered - newest.delivered, interval)),
            app_limited: newest.app_limited,
            round_trip: now.saturating_duration_since(newest.at),
            delivered_before: newest.delivered,
        })
    }
}

/// A rate in bytes a second.
pub(super) fn per_second(bytes: u64, interval: Duration) -> u64 {
    let nanos = interval.as_nanos().max(1);
    u64::try_from(u128::from(bytes) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
}
