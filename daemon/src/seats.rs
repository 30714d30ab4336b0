//! Seats for what runs at once, and who gets the next one: fairly, flow by flow, and nobody waits for longer than it wants.

use std::fmt;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout_at};

mod pace;
mod queues;

use pace::Paces;
pub use pace::SPACING_MAX;
use queues::{Entered, FairQueues, Granted, Ticket};
pub use queues::{HAND, QUEUES, SHARE};

/// Seats, and who waits for one. Clones are the same seats.
#[derive(Clone)]
pub struct Seats(Arc<Inner>);

struct Inner {
    /// Keyed anew in each process, so that nobody can choose a name that shares all its queues with another's.
    hasher: RandomState,
    pool: Mutex<Pool>,
}

struct Pool {
    queues: FairQueues<Waiter>,
    paces: Paces,
}

type Waiter = oneshot::Sender<Result<Seat, NoSeat>>;

/// How many of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeatLimits {
    /// Seats.
    pub seats: usize,
    /// Most that wait in one of the [`QUEUES`] queues.
    pub per_queue: usize,
    /// Most that wait in all of them.
    pub waiting: usize,
}

/// A seat, until it is dropped.
#[must_use = "the seat is free again when this is dropped"]
pub struct Seat {
    seats: Seats,
    granted: Option<Granted>,
    /// When whoever has it may begin, and is taken to have begun.
    begins: Instant,
}

/// Why there is no seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoSeat {
    /// As many of this flow wait as may, or more than of any other.
    #[error("too many wait already")]
    Crowded,
    /// None became free in time that this flow might take: of all, and of what one flow may hold.
    #[error("none became free in time")]
    TooLong,
}

/// How things are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeatFigures {
    /// Seats that are taken.
    pub taken: usize,
    /// How many wait for one.
    pub waiting: usize,
}

impl Seats {
    /// So many seats, all free.
    #[must_use]
    pub fn new(limits: SeatLimits) -> Self {
        let pool = Pool { queues: FairQueues::new(limits), paces: Paces::default() };
        Self(Arc::new(Inner { hasher: RandomState::new(), pool: Mutex::new(pool) }))
    }

    /// A seat for one more of `flow`, now or after a wait of at most `patience`. Where one of `flow` had to wait of late, each begins
    /// [`SPACING_MAX`] after the one before, or as much sooner as they are short. Cancel-safe: who is dropped while it waits
    /// leaves its place in the queue, and whose seat has come meanwhile leaves that.
    ///
    /// # Errors
    ///
    /// [`NoSeat`].
    pub async fn take(&self, flow: impl Hash, patience: Duration) -> Result<Seat, NoSeat> {
        self.take_hashed(self.0.hasher.hash_one(flow), patience).await
    }

    async fn take_hashed(&self, flow: u64, patience: Duration) -> Result<Seat, NoSeat> {
        let deadline = Instant::now() + patience;
        let seat = self.seated(flow, deadline).await?;
        if seat.begins > Instant::now() {
            sleep_until(seat.begins.min(deadline)).await;
        }
        Ok(seat)
    }

    /// A seat by then. Whoever has it begins when that says.
    async fn seated(&self, flow: u64, deadline: Instant) -> Result<Seat, NoSeat> {
        let (waiter, seat) = oneshot::channel();
        let (entered, begins) = self.lock().enter(flow, waiter);
        let ticket = match entered {
            Entered::Seated(granted) => return Ok(self.seat(granted, begins)),
            Entered::Crowded(_) => return Err(NoSeat::Crowded),
            Entered::Waits { ticket, displaced } => {
                if let Some(displaced) = displaced {
                    // Who is gone needs no answer.
                    let _ = displaced.send(Err(NoSeat::Crowded));
                }
                ticket
            }
        };
        let _waiting = Waiting { seats: self, ticket };
        match timeout_at(deadline, seat).await {
            Ok(Ok(seat)) => seat,
            // Nobody drops a waiter unanswered while the seats are there, and they are.
            Ok(Err(_)) => Err(NoSeat::Crowded),
            Err(_) => Err(NoSeat::TooLong),
        }
    }

    /// How things are now.
    #[must_use]
    pub fn figures(&self) -> SeatFigures {
        let pool = self.lock();
        SeatFigures { taken: pool.queues.taken(), waiting: pool.queues.waiting() }
    }

    /// Gives what is free to those whose turn it is.
    fn pass_on(&self) {
        loop {
            // Not in the condition of a loop: there the lock would be held while others' code runs.
            let next = self.lock().next();
            let Some((granted, waiter, begins)) = next else { return };
            // Whoever has just gone gives its seat back here.
            drop(waiter.send(Ok(self.seat(granted, begins))));
        }
    }

    fn seat(&self, granted: Granted, begins: Instant) -> Seat {
        Seat { seats: self.clone(), granted: Some(granted), begins }
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        // Nothing under this lock runs code of others: a panic would be one of the pool's own.
        self.0.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// One more of `flow`; and when it begins, if it has a seat.
    fn enter(&mut self, flow: u64, waiter: Waiter) -> (Entered<Waiter>, Instant) {
        let (entered, now) = (self.queues.enter(flow, waiter), Instant::now());
        let begins = match &entered {
            Entered::Seated(_) => self.paces.begins(flow, self.queues.held(flow), now),
            Entered::Waits { .. } | Entered::Crowded(_) => {
                self.paces.waits(flow, self.queues.held(flow), now);
                now
            }
        };
        (entered, begins)
    }

    /// Who waited and has a seat now, and when it begins.
    fn next(&mut self) -> Option<(Granted, Waiter, Instant)> {
        let (granted, waiter) = self.queues.next()?;
        let flow = granted.flow();
        let begins = self.paces.begins(flow, self.queues.held(flow), Instant::now());
        Some((granted, waiter, begins))
    }

    fn release(&mut self, granted: Granted, begun: Instant) {
        let (flow, now) = (granted.flow(), Instant::now());
        self.queues.release(granted);
        self.paces.ended(flow, now.saturating_duration_since(begun), self.queues.held(flow), now);
    }
}

/// A place in a queue, until it is dropped. Once its seat was granted it is no place any more.
struct Waiting<'a> {
    seats: &'a Seats,
    ticket: Ticket,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let left = self.seats.lock().queues.leave(self.ticket);
        // Behind the lock: what is dropped with it may be a seat.
        let waited = left.is_some();
        drop(left);
        if waited {
            self.seats.pass_on();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(granted) = self.granted.take() else { return };
        self.seats.lock().release(granted, self.begins);
        self.seats.pass_on();
    }
}

impl fmt::Debug for Seats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Seats").field(&self.figures()).finish()
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
