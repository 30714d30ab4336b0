//! Decides whether full-size packets pass: a path may carry heartbeats and lose all data (RFC 8899, section
//! 4.3).
//!
//! Heartbeats are small. Where a path's MTU falls below QUIC's smallest packet of data, 1,200 bytes, they
//! still pass, and the tunnel carries nothing else. So some heartbeats are *full-size probes*: as large as
//! such a packet, and not sent again when they are lost. Each side probes its own direction, and says in its
//! heartbeats if that direction loses them.

use std::time::{Duration, Instant};

use super::heartbeat::HEARTBEAT_ACTIVE;
use super::probing::{PROBE_EVERY, answer_expected};
use super::{Health, Session};
use crate::wire::Heartbeat;

/// Interval of full-size probes on a live tunnel while no data shows that full-size packets pass: 0.7 kbit/s
/// each way.
pub const FULL_SIZE_EVERY: Duration = Duration::from_secs(15);

/// Least interval of full-size probes on a suspect tunnel whose heartbeats are answered.
pub const FULL_SIZE_EVERY_SUSPECT: Duration = HEARTBEAT_ACTIVE;

/// Full-size packets that are not acknowledged for this time do not pass; for longer, where four round trips
/// are longer. Several probes fit into it.
pub const FULL_SIZE_ANSWER_MAX: Duration = Duration::from_millis(1500);

const _: () = assert!(PROBE_EVERY.as_millis() * 4 < FULL_SIZE_ANSWER_MAX.as_millis());

/// The full-size packets of both directions, as far as this side knows.
#[derive(Debug)]
pub(super) struct FullSize {
    /// The time of the oldest probe without an answer.
    unanswered_since: Option<Instant>,
    /// The time of the last probe.
    sent_at: Option<Instant>,
    /// The time at which the latest full-size packet was sent that the peer has received.
    answered_at: Instant,
    /// The time at which the last probe of the peer arrived.
    heard_at: Instant,
    /// The time since which the tunnel is suspect, if it is.
    suspect_since: Option<Instant>,
    /// The peer says that full-size packets are lost on the way to this side.
    peer_loses: bool,
    /// This side's last heartbeat said the same of its own.
    said_lost: bool,
    /// The next heartbeat is to be a probe.
    is_asked: bool,
}

impl Session {
    /// Requires from now on that full-size packets pass, for a carrier of datagrams.
    pub fn require_full_size(&mut self, now: Instant) {
        self.full_size = Some(FullSize::new(now));
    }

    /// Returns true if a heartbeat that is sent now is to be a full-size probe. `data_since` is the time of
    /// the oldest full-size packet of data that awaits its answer.
    #[must_use]
    pub fn full_size_due(&self, now: Instant, data_since: Option<Instant>) -> bool {
        let Some(full_size) = &self.full_size else { return false };
        // In the dark a probe shows no more than a small heartbeat, and costs more.
        let is_dark = self.health == Health::Suspect && self.unanswered_since.is_some();
        !is_dark && full_size.is_due(now, data_since, answer_expected(self.round_trip))
    }

    /// Notes that a full-size probe was sent now.
    pub fn full_size_sent(&mut self, now: Instant) {
        if let Some(full_size) = &mut self.full_size {
            full_size.sent(now);
        }
    }

    /// Notes that the peer has received a full-size packet that was sent at `sent`: a probe, or data.
    pub fn full_size_answered(&mut self, now: Instant, sent: Instant) {
        let answer_max = self.full_size_answer_max();
        let Some(full_size) = &mut self.full_size else { return };
        if full_size.answered(sent) {
            let takes_back = full_size.is_to_be_taken_back(now, answer_max);
            self.heard(now);
            if takes_back {
                self.send_heartbeat(now);
            }
        }
    }

    /// Notes that a full-size probe of the peer has arrived.
    pub fn full_size_heard(&mut self, now: Instant) {
        if let Some(full_size) = &mut self.full_size {
            full_size.heard(now);
            self.heard(now);
        }
    }

    /// Returns true while it is not known whether the latest full-size probe has passed.
    #[must_use]
    pub fn full_size_awaited(&self) -> bool {
        self.full_size.as_ref().is_some_and(FullSize::is_awaited)
    }

    /// The last time at which the tunnel turned from suspect to live; `None` if it never was suspect.
    #[must_use]
    pub fn flapped_at(&self) -> Option<Instant> {
        self.flapped_at
    }

    /// The time within which a full-size packet is answered: an idle tunnel has as much time as for a heartbeat,
    /// so that a peer without processor time for a moment is not suspect.
    pub(super) fn full_size_answer_max(&self) -> Duration {
        FULL_SIZE_ANSWER_MAX.max(self.round_trip * 4).max(self.answer_timeout())
    }

    pub(super) fn full_size_passes(&self, now: Instant) -> bool {
        self.full_size.as_ref().is_none_or(|full_size| full_size.passes(now, self.full_size_answer_max()))
    }

    /// Turns a live tunnel suspect. The peer is told, because it may not see the reason.
    pub(super) fn suspect(&mut self, now: Instant) {
        if self.health != Health::Live {
            return;
        }
        self.change_health(Health::Suspect);
        if let Some(full_size) = &mut self.full_size {
            full_size.suspected(now);
            self.send_heartbeat(now);
        }
    }

    /// Turns a suspect tunnel live.
    pub(super) fn trust(&mut self, now: Instant) {
        if self.health != Health::Suspect {
            return;
        }
        self.flapped_at = Some(now);
        self.full_size.iter_mut().for_each(FullSize::trusted);
        self.change_health(Health::Live);
    }
}

impl FullSize {
    /// Begins with a path that has just carried a handshake, whose first packets are full-size both ways. The
    /// first heartbeat is a probe.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            unanswered_since: None,
            sent_at: None,
            answered_at: now,
            heard_at: now,
            suspect_since: None,
            peer_loses: false,
            said_lost: false,
            is_asked: true,
        }
    }

    pub(super) fn unanswered_since(&self) -> Option<Instant> {
        self.unanswered_since
    }

    /// Returns true if it is not known yet whether the latest probe has passed.
    pub(super) fn is_awaited(&self) -> bool {
        self.unanswered_since.is_some() || self.is_asked
    }

    /// Returns true if full-size packets pass in both directions, as far as this side knows. Of a suspect
    /// tunnel it must know that by packets which are younger than the suspicion.
    pub(super) fn passes(&self, now: Instant, answer_max: Duration) -> bool {
        let is_proven =
            self.suspect_since.is_none_or(|since| self.answered_at >= since && self.heard_at >= since);
        is_proven && !self.peer_loses && !self.is_lost(now, answer_max)
    }

    /// The time at which a probe without an answer counts as lost, and with it all data.
    pub(super) fn lost_at(&self, answer_max: Duration) -> Option<Instant> {
        self.unanswered_since.map(|since| since + answer_max)
    }

    /// Returns true if a heartbeat that is sent now is to be a probe. `data_since` is the time of the oldest
    /// full-size packet of data without an answer, `expected` the time that an answer may take.
    pub(super) fn is_due(&self, now: Instant, data_since: Option<Instant>, expected: Duration) -> bool {
        if self.suspect_since.is_some() {
            return self.is_asked || self.sent_at.is_none_or(|at| now >= at + FULL_SIZE_EVERY_SUSPECT);
        }
        let confirmed_at = self.sent_at.map_or(self.answered_at, |at| at.max(self.answered_at));
        self.is_asked
            || self.unanswered_since.is_some()
            || now >= confirmed_at + FULL_SIZE_EVERY
            || data_since.is_some_and(|since| now >= since + expected)
    }

    pub(super) fn sent(&mut self, now: Instant) {
        self.unanswered_since.get_or_insert(now);
        self.sent_at = Some(now);
        self.is_asked = false;
    }

    /// Notes that the peer has received a full-size packet that was sent at `sent`; true if that is news.
    pub(super) fn answered(&mut self, sent: Instant) -> bool {
        if sent <= self.answered_at {
            return false;
        }
        self.answered_at = sent;
        self.unanswered_since.take_if(|since| sent >= *since);
        true
    }

    pub(super) fn heard(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// Makes the next heartbeat a probe.
    pub(super) fn ask(&mut self) {
        self.is_asked = true;
    }

    /// Takes the peer's word; true if it asks for a probe, and the last one was not just sent.
    pub(super) fn peer_said(&mut self, now: Instant, heartbeat: &Heartbeat) -> bool {
        self.peer_loses = heartbeat.full_size_lost;
        let is_due = self.sent_at.is_none_or(|at| now >= at + PROBE_EVERY);
        self.is_asked |= heartbeat.full_size_wanted && is_due;
        heartbeat.full_size_wanted && is_due
    }

    /// Adds this side's word to a heartbeat.
    pub(super) fn say(&mut self, now: Instant, answer_max: Duration, heartbeat: &mut Heartbeat) {
        self.said_lost = self.is_lost(now, answer_max);
        heartbeat.full_size_lost = self.said_lost;
        heartbeat.full_size_wanted = self.suspect_since.is_some_and(|since| self.heard_at < since);
    }

    /// Returns true if the peer was told that full-size packets are lost, and they no longer are.
    pub(super) fn is_to_be_taken_back(&self, now: Instant, answer_max: Duration) -> bool {
        self.said_lost && !self.is_lost(now, answer_max)
    }

    pub(super) fn suspected(&mut self, now: Instant) {
        self.suspect_since.get_or_insert(now);
    }

    pub(super) fn trusted(&mut self) {
        self.suspect_since = None;
    }

    fn is_lost(&self, now: Instant, answer_max: Duration) -> bool {
        self.lost_at(answer_max).is_some_and(|at| now >= at)
    }
}
