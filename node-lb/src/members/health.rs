//! The health of an API server, as its answers to probes and the failures of dials show it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::grade::{Grade, ProbeOutcome};
use super::state::{Changes, Member, Members, ROUND_TRIPS};

/// Misses one after another after which an API server is down.
const MISSES_MAX: u8 = 2;

impl Members {
    /// Takes over the outcome of a probe that began at `began`.
    pub fn probed(&mut self, address: SocketAddr, outcome: ProbeOutcome, began: Instant) -> Changes {
        let others_ready = self.others_ready(address);
        let others_answered = self.others_answered(address);
        let Some(member) = self.get_mut(address) else { return Changes::default() };
        let before = member.grade;
        let mut changes = Changes::default();
        match outcome {
            ProbeOutcome::Answered { is_ready, round_trip } => {
                member.answered(is_ready, round_trip, began);
                let returns = matches!(before, Grade::Down | Grade::Unproven);
                changes.joined = (is_ready && returns && others_ready > 0).then_some(others_ready);
                changes.cut = self.cut_those_silent_since(began);
            }
            ProbeOutcome::Missed => member.missed(began, &mut changes),
            ProbeOutcome::Unreachable => member.down(began, true),
            ProbeOutcome::Refused => member.down(began, false),
            ProbeOutcome::Foreign => {
                member.grade = Grade::Unproven;
                member.to_be_cut = false;
                // Whatever is there now, bytes for the API server are not for it.
                changes.cut.push(address);
            }
        }
        let Some(member) = self.get_mut(address) else { return changes };
        if member.to_be_cut
            && member.missed_since.is_some_and(|since| others_answered.is_some_and(|at| at >= since))
        {
            member.to_be_cut = false;
            changes.cut.push(address);
        }
        changes.grade = (before != member.grade).then_some((before, member.grade));
        changes.probe_others |= member.to_be_cut && changes.grade.is_some();
        changes
    }

    fn others_ready(&self, address: SocketAddr) -> usize {
        self.list.iter().filter(|other| other.address != address && other.grade == Grade::Ready).count()
    }

    /// The begin of the last probe that another API server has answered.
    fn others_answered(&self, address: SocketAddr) -> Option<Instant> {
        let others = self.list.iter().filter(|other| other.address != address);
        others.filter_map(|other| other.answered_since).max()
    }

    /// An API server has answered a probe that began then. So the fault of those that are silent since before
    /// is theirs, and their connections end. Without such an answer the fault may be here.
    fn cut_those_silent_since(&mut self, began: Instant) -> Vec<SocketAddr> {
        let silent = self
            .list
            .iter_mut()
            .filter(|member| member.to_be_cut && member.missed_since.is_some_and(|since| since <= began));
        silent
            .map(|member| {
                member.to_be_cut = false;
                member.address
            })
            .collect()
    }
}

impl Member {
    fn answered(&mut self, is_ready: bool, round_trip: Duration, began: Instant) {
        self.grade = if is_ready { Grade::Ready } else { Grade::Alive };
        self.misses = 0;
        self.missed_since = None;
        self.to_be_cut = false;
        self.answered_since = Some(began);
        if self.round_trips.len() == ROUND_TRIPS {
            self.round_trips.remove(0);
        }
        self.round_trips.push(round_trip);
    }

    fn missed(&mut self, began: Instant, changes: &mut Changes) {
        self.missed_since.get_or_insert(began);
        self.misses = self.misses.saturating_add(1);
        if self.misses < MISSES_MAX {
            changes.probe_again = true;
            changes.probe_others = true;
        } else if self.traffic.has_received_since(began) {
            // A busy API server may be late for a probe while it serves requests.
            self.misses = MISSES_MAX - 1;
            self.missed_since = Some(began);
        } else {
            self.down(began, true);
        }
    }

    /// The API server does not answer. `may_be_cut` says that its connections may be dead without a sign.
    fn down(&mut self, began: Instant, may_be_cut: bool) {
        // One without a certificate has no connections but those of a handover, and it stays what it is.
        if self.grade == Grade::Unproven && self.traffic.connections() == 0 {
            return;
        }
        let since = *self.missed_since.get_or_insert(began);
        self.misses = MISSES_MAX;
        if self.grade != Grade::Down {
            self.to_be_cut = may_be_cut && !self.traffic.has_received_since(since.max(began));
        }
        if self.grade != Grade::Unproven {
            self.grade = Grade::Down;
        }
    }
}
