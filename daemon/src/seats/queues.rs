//! Who is next. Pure.
//!
//! As Kubernetes' API Priority and Fairness does it (KEP-1040), each flow is dealt a hand of a few of many queues, by its hash:
//! whoever fills its own queues fills all of another's only by a chance of one in millions. Of its hand a request takes the
//! queue on which least goes on. Other than there, a free seat goes to the flow that holds the fewest, of those that stand first
//! in their queues, and of equals to the queue whose turn is longest ago: what is shared is seats, and nobody has to guess how
//! long a request will hold its own.
//!
//! A flow holds fewer than [`SHARE`] times as many seats as are free, as buffers of a switch are shared (Choudhury and Hahne,
//! "Dynamic queue length thresholds for shared-memory packet switches", 1998): the more come, the less each may, and whoever has
//! little finds a free one. To wait for one that somebody else holds costs as long as that one likes.

use std::array;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use super::SeatLimits;

/// Queues of one pool of seats; the default of a `PriorityLevelConfiguration`.
pub const QUEUES: usize = 64;

/// Queues that a flow may use; the default of a `PriorityLevelConfiguration`. Of 64 choose 8 are 4 billion hands.
pub const HAND: usize = 8;

const _: () = assert!(HAND <= QUEUES);

/// How many seats a flow may hold for each that is free: one that is alone has two thirds of them, rounded up, and two that want
/// more have two fifths each.
pub const SHARE: usize = 2;

/// Seats that are taken, and those who wait for one.
pub(super) struct FairQueues<W> {
    limits: SeatLimits,
    queues: [Queue<W>; QUEUES],
    /// How many seats each flow has; none that is zero.
    held: HashMap<u64, usize>,
    taken: usize,
    waiting: usize,
    /// Counts seats that were granted.
    turns: u64,
    /// Counts those who came.
    arrivals: u64,
}

struct Queue<W> {
    waiting: VecDeque<Waits<W>>,
    /// Seats that were granted through it and are taken.
    taken: usize,
    /// When it was given the last one.
    turn: u64,
}

struct Waits<W> {
    arrival: u64,
    flow: u64,
    waiter: W,
}

/// A seat, which [`FairQueues::release`] takes back once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the seat is taken until it is released"]
pub(super) struct Granted {
    queue: usize,
    flow: u64,
}

/// A place in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    queue: usize,
    arrival: u64,
}

/// What became of a newcomer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entered<W> {
    /// It has a seat.
    Seated(Granted),
    /// It waits, maybe in the place of another, the last of the longest queue.
    Waits { ticket: Ticket, displaced: Option<W> },
    /// It does not.
    Crowded(W),
}

impl Granted {
    /// Whose.
    pub(super) fn flow(&self) -> u64 {
        self.flow
    }
}

impl<W> FairQueues<W> {
    pub(super) fn new(limits: SeatLimits) -> Self {
        let queues = array::from_fn(|_| Queue { waiting: VecDeque::new(), taken: 0, turn: 0 });
        Self { limits, queues, held: HashMap::new(), taken: 0, waiting: 0, turns: 0, arrivals: 0 }
    }

    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// One more of `flow`. While seats are free only who has its share of them waits.
    pub(super) fn enter(&mut self, flow: u64, waiter: W) -> Entered<W> {
        let queue = self.least_busy(flow);
        if self.may_hold_one_more(flow) {
            return Entered::Seated(self.grant(queue, flow));
        }
        let length = self.queues[queue].waiting.len();
        if length >= self.limits.per_queue {
            return Entered::Crowded(waiter);
        }
        let mut displaced = None;
        if self.waiting >= self.limits.waiting {
            let longest = (0..QUEUES).max_by_key(|&queue| self.queues[queue].waiting.len());
            // Whoever fills the room makes place for who does not; among equals the newest is the one to go.
            let Some(longest) = longest.filter(|&longest| self.queues[longest].waiting.len() > length + 1)
            else {
                return Entered::Crowded(waiter);
            };
            displaced = self.queues[longest].waiting.pop_back().map(|last| last.waiter);
            self.waiting -= 1;
        }
        self.arrivals += 1;
        let ticket = Ticket { queue, arrival: self.arrivals };
        self.queues[queue].waiting.push_back(Waits { arrival: ticket.arrival, flow, waiter });
        self.waiting += 1;
        Entered::Waits { ticket, displaced }
    }

    /// Takes a place away from who waits in it; `None` where it waits no more. Behind it may be somebody for [`Self::next`].
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<W> {
        let waiting = &mut self.queues[ticket.queue].waiting;
        let place = waiting.iter().position(|waits| waits.arrival == ticket.arrival)?;
        let left = waiting.remove(place)?;
        self.waiting -= 1;
        Some(left.waiter)
    }

    /// Takes a seat back, which is then for [`Self::next`].
    pub(super) fn release(&mut self, granted: Granted) {
        let Granted { queue, flow } = granted;
        self.queues[queue].taken -= 1;
        self.taken -= 1;
        if let Entry::Occupied(mut held) = self.held.entry(flow) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }

    /// A free seat, and whose turn it is. To be asked until there is none, whenever a seat was released and somebody has left:
    /// both may let more than one sit down.
    pub(super) fn next(&mut self) -> Option<(Granted, W)> {
        // Who stands first: in a queue nobody is overtaken, not even by who may hold more.
        let first = |queue: usize| Some((queue, self.queues[queue].waiting.front()?.flow));
        let may_sit = (0..QUEUES).filter_map(first).filter(|(_, flow)| self.may_hold_one_more(*flow));
        let (next, flow) =
            may_sit.min_by_key(|(queue, flow)| (self.held(*flow), self.queues[*queue].turn))?;
        let first = self.queues[next].waiting.pop_front()?;
        self.waiting -= 1;
        Some((self.grant(next, flow), first.waiter))
    }

    fn grant(&mut self, queue: usize, flow: u64) -> Granted {
        self.turns += 1;
        self.taken += 1;
        *self.held.entry(flow).or_default() += 1;
        let granted = &mut self.queues[queue];
        granted.taken += 1;
        granted.turn = self.turns;
        Granted { queue, flow }
    }

    /// Whether a seat is free, and it has fewer than its share.
    fn may_hold_one_more(&self, flow: u64) -> bool {
        let free = self.limits.seats - self.taken;
        self.held(flow) < SHARE * free
    }

    /// How many seats a flow has.
    pub(super) fn held(&self, flow: u64) -> usize {
        self.held.get(&flow).copied().unwrap_or_default()
    }

    /// Of the flow's hand the queue on which least goes on.
    fn least_busy(&self, flow: u64) -> usize {
        let load = |queue: &usize| self.queues[*queue].waiting.len() + self.queues[*queue].taken;
        // A hand is never empty.
        hand(flow).into_iter().min_by_key(load).unwrap_or_default()
    }
}

/// The queues that a flow may use, no two of them the same: cards dealt from a deck by the digits of its hash.
fn hand(flow: u64) -> [usize; HAND] {
    let mut deck: [usize; QUEUES] = array::from_fn(|queue| queue);
    let mut digits = flow;
    array::from_fn(|dealt| {
        let left = QUEUES - dealt;
        let card = (digits % left as u64) as usize;
        digits /= left as u64;
        deck.swap(card, left - 1);
        deck[left - 1]
    })
}

#[cfg(test)]
mod tests;
