//! Who is next. Pure.
//!
//! As Kubernetes' API Priority and Fairness does it (KEP-1040), each flow is dealt a hand of a few of many queues, by its hash:
//! whoever fills its own queues fills all of another's only by a chance of one in millions. Of its hand a request takes the
//! queue on which least goes on. Other than there, a free seat goes to the queue that holds the fewest, and of equals to the
//! one whose turn is longest ago: what is shared is seats, and nobody has to guess how long a request will hold its own.

use std::array;
use std::collections::VecDeque;

use super::SeatLimits;

/// Queues of one pool of seats; the default of a `PriorityLevelConfiguration`.
pub const QUEUES: usize = 64;

/// Queues that a flow may use; the default of a `PriorityLevelConfiguration`. Of 64 choose 8 are 4 billion hands.
pub const HAND: usize = 8;

const _: () = assert!(HAND <= QUEUES);

/// Seats that are taken, and those who wait for one.
pub(super) struct FairQueues<W> {
    limits: SeatLimits,
    queues: [Queue<W>; QUEUES],
    taken: usize,
    waiting: usize,
    /// Counts seats that were granted.
    turns: u64,
    /// Counts those who came.
    arrivals: u64,
}

struct Queue<W> {
    waiting: VecDeque<(u64, W)>,
    /// Seats that were granted through it and are taken.
    taken: usize,
    /// When it was given the last one.
    turn: u64,
}

/// A seat, which [`FairQueues::release`] takes back once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the seat is taken until it is released"]
pub(super) struct Granted {
    queue: usize,
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

impl<W> FairQueues<W> {
    pub(super) fn new(limits: SeatLimits) -> Self {
        let queues = array::from_fn(|_| Queue { waiting: VecDeque::new(), taken: 0, turn: 0 });
        Self { limits, queues, taken: 0, waiting: 0, turns: 0, arrivals: 0 }
    }

    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// One more of `flow`. While seats are free nobody waits.
    pub(super) fn enter(&mut self, flow: u64, waiter: W) -> Entered<W> {
        let queue = self.least_busy(flow);
        if self.taken < self.limits.seats {
            return Entered::Seated(self.grant(queue));
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
            displaced = self.queues[longest].waiting.pop_back().map(|(_, waiter)| waiter);
            self.waiting -= 1;
        }
        self.arrivals += 1;
        let ticket = Ticket { queue, arrival: self.arrivals };
        self.queues[queue].waiting.push_back((ticket.arrival, waiter));
        self.waiting += 1;
        Entered::Waits { ticket, displaced }
    }

    /// Takes a place away from who waits in it; `None` where it waits no more.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<W> {
        let waiting = &mut self.queues[ticket.queue].waiting;
        let place = waiting.iter().position(|(arrival, _)| *arrival == ticket.arrival)?;
        let (_, waiter) = waiting.remove(place)?;
        self.waiting -= 1;
        Some(waiter)
    }

    /// Takes a seat back, and gives it to whose turn it is.
    pub(super) fn release(&mut self, granted: Granted) -> Option<(Granted, W)> {
        self.queues[granted.queue].taken -= 1;
        self.taken -= 1;
        let waits = (0..QUEUES).filter(|&queue| !self.queues[queue].waiting.is_empty());
        let next = waits.min_by_key(|&queue| (self.queues[queue].taken, self.queues[queue].turn))?;
        let (_, waiter) = self.queues[next].waiting.pop_front()?;
        self.waiting -= 1;
        Some((self.grant(next), waiter))
    }

    fn grant(&mut self, queue: usize) -> Granted {
        self.turns += 1;
        self.taken += 1;
        let granted = &mut self.queues[queue];
        granted.taken += 1;
        granted.turn = self.turns;
        Granted { queue }
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
