//! Which carriers are dialed when, and which tunnel to a server is kept: the decisions about one address.
//!
//! A state machine without I/O. Its shell tells it what happened, then takes out what is to be done (`poll_step`) until
//! there is nothing, and comes again at `poll_timeout`.
//!
//! The better carrier is dialed whenever none of its tunnels works, the lesser one a head start later, and the first to be
//! greeted serves. A tunnel that turned silent is kept: its streams wait for its return. Once the better carrier has held
//! for a while, tunnels of the lesser one are drained; what runs on them ends there.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proto::session::Health;
use transport::Carrier;

use super::patience::{HELD_MIN, Patience, Setback};

/// How long the better carrier is alone in the race: where it works, it has won by then.
const HEAD_START: Duration = Duration::from_secs(1);

/// How long the better carrier is left alone after a dial in vain while a lesser one serves: at least the first, at most
/// both together.
const AGAIN_MIN: Duration = Duration::from_secs(10);
const AGAIN_MORE: Duration = Duration::from_secs(20);

/// After so long an address whose server is reached another way is dialed again, whatever is known of that way.
const REST_MAX: Duration = Duration::from_secs(300);

/// Most tunnels to one address: one that serves, and those that end what runs on them.
pub(super) const TUNNELS_MAX: usize = 4;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Begin a dial by this carrier. None is under way.
    Dial(Carrier),
    /// Drop the dial by this carrier that is under way.
    Abandon(Carrier),
    /// Begin nothing new on this tunnel, and let it end when it is empty.
    Drain(u64),
    /// End this tunnel now.
    Close(u64),
}

/// How an address stands; the greater is the better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// There is no tunnel on which anything new could come.
    Away,
    /// Nothing is heard, and what runs is held.
    Silent,
    /// A lesser carrier serves.
    Lesser,
    /// The best carrier serves.
    Serves,
}

/// The state of one address.
#[derive(Debug)]
pub(super) struct Race {
    /// The carriers to choose from, the best first.
    lanes: Vec<Lane>,
    /// In the order in which they were greeted.
    tunnels: Vec<Entry>,
    greeted: u64,
    /// Since when no tunnel of the best carrier is sure to work.
    began: Option<Instant>,
    /// The server is reached another way until then.
    rests_until: Option<Instant>,
    /// The address is one of the server's no more, or the agent stops.
    over: bool,
    steps: VecDeque<Step>,
}

/// How a tunnel ended, as far as the next dial is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Because its server was restarted, which is there again therefore.
    Restarted,
    /// Because the server prefers a later process with the same certificate. Whoever came back at once would be the later one, and
    /// both would take the cluster from one another for ever.
    Replaced,
    /// For any other reason.
    Otherwise,
}

#[derive(Debug)]
struct Lane {
    carrier: Carrier,
    patience: Patience,
    dialing: bool,
    /// Not before this, where the server is not reached.
    soon: Instant,
    /// Not before this, where a lesser carrier serves meanwhile.
    later: Instant,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    carrier: Carrier,
    greeted: Instant,
    health: Health,
    /// Since when it is `Live`, if it is.
    live_since: Instant,
    /// Something was heard on it that was sent after its greeting, so packets pass both ways.
    sure: bool,
    /// It drains, whoever asked for that.
    leaves: bool,
    /// It was to be closed.
    is_closed: bool,
}

impl Race {
    /// A race between these carriers, the best first, that begins `now`.
    pub(super) fn new(now: Instant, carriers: &[Carrier]) -> Self {
        let lane = |carrier: &Carrier| Lane {
            carrier: *carrier,
            patience: Patience::default(),
            dialing: false,
            soon: now,
            later: now,
        };
        let mut race = Self {
            lanes: carriers.iter().map(lane).collect(),
            tunnels: Vec::new(),
            greeted: 0,
            began: None,
            rests_until: None,
            over: false,
            steps: VecDeque::new(),
        };
        race.settle(now);
        race
    }

    /// A dial by `carrier` came to a tunnel, whose number is returned.
    pub(super) fn greeted(&mut self, now: Instant, carrier: Carrier) -> u64 {
        let number = self.enter(now, carrier, false);
        self.settle(now);
        number
    }

    /// A dial by `carrier` came to nothing. `random` is any number, evenly distributed, here and below.
    pub(super) fn failed(
        &mut self,
        now: Instant,
        carrier: Carrier,
        setback: Setback,
        random: u64,
    ) -> Duration {
        let lane = self.lane(carrier);
        lane.dialing = false;
        let wait = lane.patience.after(setback, random);
        lane.wait(now, wait, random);
        if matches!(setback, Setback::Told(_)) {
            // The server has said so itself, whatever carried it.
            self.none_before(now + wait);
        }
        self.settle(now);
        wait
    }

    /// A dial by `carrier` found a server that is reached by another address. The tunnel, whose number is returned, is
    /// being drained.
    pub(super) fn found_double(&mut self, now: Instant, carrier: Carrier) -> u64 {
        self.rests_until = Some(now + REST_MAX);
        let number = self.enter(now, carrier, true);
        self.settle(now);
        number
    }

    /// The server is reached by another address since a tunnel was silent that serves again: what serves here is drained,
    /// what is silent still is kept.
    pub(super) fn gives_way(&mut self, now: Instant) {
        self.rests_until = Some(now + REST_MAX);
        for entry in self.tunnels.iter_mut().filter(|entry| entry.serves()) {
            entry.leaves = true;
            self.steps.push_back(Step::Drain(entry.number));
        }
        self.settle(now);
    }

    /// The other way to the server that was found may be gone.
    pub(super) fn rested(&mut self, now: Instant) {
        self.rests_until = None;
        self.settle(now);
    }

    /// How a tunnel does.
    pub(super) fn observed(&mut self, now: Instant, number: u64, health: Health, drains: bool) {
        if let Some(entry) = self.tunnels.iter_mut().find(|entry| entry.number == number) {
            if entry.health != Health::Live && health == Health::Live {
                // Who was silent and is heard again is heard on the way as it is now.
                (entry.live_since, entry.sure) = (now, true);
            }
            entry.health = health;
            entry.leaves |= drains;
        }
        self.settle(now);
    }

    /// Something was heard on a tunnel that was sent after its greeting.
    pub(super) fn heard(&mut self, now: Instant, number: u64) {
        if let Some(entry) = self.tunnels.iter_mut().find(|entry| entry.number == number) {
            entry.sure = true;
        }
        self.settle(now);
    }

    /// A tunnel has ended in this way.
    pub(super) fn ended(&mut self, now: Instant, number: u64, ending: Ending, random: u64) {
        let Some(index) = self.tunnels.iter().position(|entry| entry.number == number) else { return };
        let entry = self.tunnels.remove(index);
        let (lane, held) = (self.lane(entry.carrier), now.saturating_duration_since(entry.greeted));
        let wait = match ending {
            Ending::Replaced => lane.patience.after(Setback::Refused, random),
            Ending::Restarted | Ending::Otherwise => lane.patience.after_tunnel(held, random),
        };
        lane.wait(now, wait, random);
        match ending {
            // What was dialed while the server was away would ask again late.
            Ending::Restarted => self.abandon_all(),
            // By whatever carrier it comes.
            Ending::Replaced => self.none_before(now + wait),
            Ending::Otherwise => {}
        }
        self.settle(now);
    }

    /// Begins nothing new from now on.
    pub(super) fn stop(&mut self, now: Instant) {
        self.over = true;
        self.settle(now);
    }

    /// The address is the server's, as far as is known.
    pub(super) fn resume(&mut self, now: Instant) {
        self.over = false;
        self.settle(now);
    }

    /// Whether nothing is left and nothing will come.
    pub(super) fn is_over(&self) -> bool {
        self.over && self.tunnels.is_empty()
    }

    /// Does what is due by `now`.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.settle(now);
    }

    /// When `handle_timeout` wants to be called next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.over {
            return None;
        }
        if let Some(until) = self.rests_until {
            return Some(until);
        }
        let dials = self.wanted().filter(|(lane, _)| !lane.dialing).map(|(_, due)| due);
        dials.chain(self.relieved_at()).min()
    }

    /// The next thing to do.
    pub(super) fn poll_step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// How the address stands.
    pub(super) fn standing(&self) -> Standing {
        let mut lanes = self.lanes.iter().map(|lane| self.works(lane.carrier));
        if lanes.next().unwrap_or_default() {
            Standing::Serves
        } else if lanes.any(|works| works) {
            Standing::Lesser
        } else if self.tunnels.iter().any(|entry| !entry.leaves) {
            Standing::Silent
        } else {
            Standing::Away
        }
    }

    fn enter(&mut self, now: Instant, carrier: Carrier, leaves: bool) -> u64 {
        self.lane(carrier).dialing = false;
        self.make_room();
        self.greeted += 1;
        self.tunnels.push(Entry {
            number: self.greeted,
            carrier,
            greeted: now,
            health: Health::Live,
            live_since: now,
            sure: false,
            leaves,
            is_closed: false,
        });
        self.greeted
    }

    fn settle(&mut self, now: Instant) {
        if self.rests_until.is_some_and(|until| until <= now) {
            self.rests_until = None;
        }
        if self.over || self.rests_until.is_some() {
            self.abandon_all();
            return;
        }
        if self.sure_one().is_some() {
            self.began = None;
            self.abandon_all();
            self.relieve(now);
            return;
        }
        self.began.get_or_insert(now);
        let due: Vec<Carrier> = self
            .wanted()
            .filter(|(lane, due)| !lane.dialing && *due <= now)
            .map(|(lane, _)| lane.carrier)
            .collect();
        for carrier in due {
            self.lane(carrier).dialing = true;
            self.steps.push_back(Step::Dial(carrier));
        }
    }

    /// The lanes whose carrier has no tunnel that works, and when each may be dialed.
    fn wanted(&self) -> impl Iterator<Item = (&Lane, Instant)> {
        let sure = self.sure_one().is_some();
        let lanes = self.lanes.iter().enumerate().filter(move |(_, lane)| !sure && !self.works(lane.carrier));
        lanes.map(|(rank, lane)| {
            let lesser_serves = self.lanes[rank + 1..].iter().any(|lesser| self.works(lesser.carrier));
            let due = if lesser_serves { lane.later } else { lane.soon };
            let start = self.began.map_or(due, |began| began + HEAD_START * rank as u32);
            (lane, due.max(start))
        })
    }

    /// Drains what the newest sure tunnel of the best carrier replaces: at once its predecessors, which are silent or were
    /// until now, and once it has held the tunnels of lesser carriers.
    fn relieve(&mut self, now: Instant) {
        let Some(kept) = self.sure_one() else { return };
        let (carrier, number, held) = (kept.carrier, kept.number, kept.live_since + HELD_MIN <= now);
        for entry in self.tunnels.iter_mut().filter(|entry| !entry.leaves) {
            let replaced = if entry.carrier == carrier { entry.number < number } else { held };
            if replaced {
                entry.leaves = true;
                self.steps.push_back(Step::Drain(entry.number));
            }
        }
    }

    /// When tunnels of lesser carriers are to be drained, if there are any.
    fn relieved_at(&self) -> Option<Instant> {
        let kept = self.sure_one()?;
        let any_lesser = self.tunnels.iter().any(|entry| entry.carrier != kept.carrier && !entry.leaves);
        any_lesser.then(|| kept.live_since + HELD_MIN)
    }

    /// The newest tunnel of the best carrier that is sure to work.
    fn sure_one(&self) -> Option<&Entry> {
        let best = self.lanes.first()?.carrier;
        self.tunnels.iter().rev().find(|entry| entry.carrier == best && entry.serves() && entry.sure)
    }

    fn works(&self, carrier: Carrier) -> bool {
        self.tunnels.iter().any(|entry| entry.carrier == carrier && entry.serves())
    }

    fn abandon_all(&mut self) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.dialing) {
            lane.dialing = false;
            self.steps.push_back(Step::Abandon(lane.carrier));
        }
    }

    /// Where there are too many tunnels, ends one that is of least use: of those that leave, else of all, the oldest.
    fn make_room(&mut self) {
        if self.tunnels.iter().filter(|entry| !entry.is_closed).count() < TUNNELS_MAX {
            return;
        }
        let any = || self.tunnels.iter().position(|entry| !entry.is_closed);
        let leaving = self.tunnels.iter().position(|entry| entry.leaves && !entry.is_closed);
        let Some(index) = leaving.or_else(any) else { return };
        let entry = &mut self.tunnels[index];
        // It stays here until its end is told.
        (entry.leaves, entry.is_closed) = (true, true);
        self.steps.push_back(Step::Close(entry.number));
    }

    /// No carrier is dialed before this.
    fn none_before(&mut self, due: Instant) {
        self.lanes.iter_mut().for_each(|lane| lane.not_before(due));
    }

    fn lane(&mut self, carrier: Carrier) -> &mut Lane {
        let index = self.lanes.iter().position(|lane| lane.carrier == carrier).unwrap_or_default();
        &mut self.lanes[index]
    }
}

impl Lane {
    fn wait(&mut self, now: Instant, wait: Duration, random: u64) {
        self.soon = now + wait;
        let more = AGAIN_MORE.mul_f64(random as f64 / u64::MAX as f64);
        self.later = now + wait.max(AGAIN_MIN + more);
    }

    fn not_before(&mut self, due: Instant) {
        (self.soon, self.later) = (self.soon.max(due), self.later.max(due));
    }
}

impl Entry {
    /// Whether new exchanges come on it.
    fn serves(&self) -> bool {
        !self.leaves && self.health == Health::Live
    }
}

#[cfg(test)]
mod tests;
