//! Fair queues that decide which waiter gets the next seat. Pure.
//!
//! As in Kubernetes' API Priority and Fairness (KEP-1040), the hash of a flow deals it a hand of few among
//! many queues. A flow that fills its own queues fills all queues of another flow only with a chance of one
//! in millions. A request takes the least busy queue of its hand. Unlike there, a free seat goes to the flow
//! with the fewest seats, among those at the front of a queue, and among equals to the queue that was served
//! longest ago. So seats are shared, and nobody has to estimate how long a request will hold its seat.
//!
//! A flow holds fewer than [`SHARE`] times as many seats as are free, like buffers of a shared-memory switch
//! (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998). The more
//! flows come, the less each gets, and a flow with few requests finds a free seat. Waiting for another flow's
//! seat would take as long as that flow likes.

use std::array;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

/// The number of queues; the default of a `PriorityLevelConfiguration`.
pub const QUEUES: usize = 64;

/// The number of queues in a flow's hand; the default of a `PriorityLevelConfiguration`. Of 64 choose 8 are 4
/// billion hands.
pub const HAND_SIZE: usize = 8;

const _: () = assert!(HAND_SIZE <= QUEUES);

/// The number of seats that a flow may hold for each free one. A single flow gets two thirds of all seats,
/// rounded up, and two greedy ones get two fifths each.
pub const SHARE: usize = 2;

/// The limits of a pool of seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeatLimits {
    /// The number of seats in the pool.
    pub seats: usize,
    /// The most waiters in one of the [`QUEUES`] queues.
    pub per_queue: usize,
    /// The most waiters in all queues together.
    pub waiting: usize,
}

/// The taken seats, and the queues of waiters.
pub(super) struct FairQueues<W> {
    limits: SeatLimits,
    queues: [Queue<W>; QUEUES],
    /// The number of seats of each flow; flows without seats are absent.
    held: HashMap<u64, usize>,
    taken: usize,
    waiting: usize,
    /// Counts all grants of a seat.
    turns: u64,
    /// Counts all arrivals, to number tickets.
    arrivals: u64,
}

struct Queue<W> {
    waiting: VecDeque<QueuedWaiter<W>>,
    /// Taken seats that were granted through this queue.
    taken: usize,
    /// The grant counter when this queue was last served.
    turn: u64,
}

struct QueuedWaiter<W> {
    arrival: u64,
    flow: u64,
    waiter: W,
}

/// A granted seat, which [`FairQueues::release`] takes back once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the seat is taken until it is released"]
pub(super) struct SeatGrant {
    queue: usize,
    flow: u64,
}

/// The position of a waiter in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket {
    queue: usize,
    arrival: u64,
}

/// The result of a request's arrival.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission<W> {
    /// The request got a seat at once.
    Seated(SeatGrant),
    /// The request waits. It may displace the last waiter of the longest queue.
    Queued { ticket: Ticket, displaced: Option<W> },
    /// The request was rejected, because the queues are full.
    Rejected(W),
}

impl SeatGrant {
    /// The flow that holds the seat.
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

    /// Admits or queues a request of `flow`. While seats are free, only a flow with its full share waits.
    pub(super) fn enter(&mut self, flow: u64, waiter: W) -> Admission<W> {
        let queue = self.least_busy_queue(flow);
        if self.may_take_seat(flow) {
            return Admission::Seated(self.grant(queue, flow));
        }
        let length = self.queues[queue].waiting.len();
        if length >= self.limits.per_queue {
            return Admission::Rejected(waiter);
        }
        let mut displaced = None;
        if self.waiting >= self.limits.waiting {
            let longest = (0..QUEUES).max_by_key(|&queue| self.queues[queue].waiting.len());
            // A flow that fills the queues makes way for one that does not; among equals the newest is rejected.
            let Some(longest) = longest.filter(|&longest| self.queues[longest].waiting.len() > length + 1)
            else {
                return Admission::Rejected(waiter);
            };
            displaced = self.queues[longest].waiting.pop_back().map(|last| last.waiter);
            self.waiting -= 1;
        }
        self.arrivals += 1;
        let ticket = Ticket { queue, arrival: self.arrivals };
        self.queues[queue].waiting.push_back(QueuedWaiter { arrival: ticket.arrival, flow, waiter });
        self.waiting += 1;
        Admission::Queued { ticket, displaced }
    }

    /// Removes a waiter from its queue; `None` if it no longer waits. Afterwards [`Self::next`] may have a
    /// waiter to seat.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<W> {
        let waiting = &mut self.queues[ticket.queue].waiting;
        let index = waiting.iter().position(|waits| waits.arrival == ticket.arrival)?;
        let left = waiting.remove(index)?;
        self.waiting -= 1;
        Some(left.waiter)
    }

    /// Releases a seat, which [`Self::next`] may then grant.
    pub(super) fn release(&mut self, granted: SeatGrant) {
        let SeatGrant { queue, flow } = granted;
        self.queues[queue].taken -= 1;
        self.taken -= 1;
        if let Entry::Occupied(mut held) = self.held.entry(flow) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }

    /// Grants a free seat to the next waiter. Call it until it returns `None` after each release and each
    /// departure: both may admit more than one waiter.
    pub(super) fn next(&mut self) -> Option<(SeatGrant, W)> {
        // Only the front of a queue is eligible: no waiter is overtaken in its queue.
        let first = |queue: usize| Some((queue, self.queues[queue].waiting.front()?.flow));
        let may_sit = (0..QUEUES).filter_map(first).filter(|(_, flow)| self.may_take_seat(*flow));
        let (next, flow) =
            may_sit.min_by_key(|(queue, flow)| (self.held(*flow), self.queues[*queue].turn))?;
        let first = self.queues[next].waiting.pop_front()?;
        self.waiting -= 1;
        Some((self.grant(next, flow), first.waiter))
    }

    fn grant(&mut self, queue: usize, flow: u64) -> SeatGrant {
        self.turns += 1;
        self.taken += 1;
        *self.held.entry(flow).or_default() += 1;
        let granted = &mut self.queues[queue];
        granted.taken += 1;
        granted.turn = self.turns;
        SeatGrant { queue, flow }
    }

    /// Returns true if a seat is free and the flow has less than its share.
    fn may_take_seat(&self, flow: u64) -> bool {
        let free = self.limits.seats - self.taken;
        self.held(flow) < SHARE * free
    }

    /// The number of seats that a flow holds.
    pub(super) fn held(&self, flow: u64) -> usize {
        self.held.get(&flow).copied().unwrap_or_default()
    }

    /// The least busy queue of the flow's hand.
    fn least_busy_queue(&self, flow: u64) -> usize {
        let load = |queue: &usize| self.queues[*queue].waiting.len() + self.queues[*queue].taken;
        // A hand is never empty.
        hand(flow).into_iter().min_by_key(load).unwrap_or_default()
    }
}

/// The queues of a flow, all different: cards dealt from a deck by the digits of its hash.
fn hand(flow: u64) -> [usize; HAND_SIZE] {
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
