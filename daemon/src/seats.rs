//! Seats for concurrent requests, shared fairly among flows. A request waits for a seat for a limited time.

use std::fmt;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout_at};

mod pacing;
mod queues;

use pacing::Pacing;
pub use pacing::SPACING_MAX;
use queues::{Admission, FairQueues, SeatGrant, Ticket};
pub use queues::{HAND_SIZE, QUEUES, SHARE, SeatLimits};

/// A pool of seats with its waiters. Clones share the pool.
#[derive(Clone)]
pub struct Seats(Arc<SharedSeats>);

struct SharedSeats {
    /// Keyed randomly in each process, so that nobody can choose a flow that shares all queues with another
    /// one.
    hasher: RandomState,
    pool: Mutex<Pool>,
}

struct Pool {
    queues: FairQueues<Waiter>,
    pacing: Pacing,
}

type Waiter = oneshot::Sender<Result<Seat, NoSeat>>;

/// A seat, taken until it is dropped.
#[must_use = "the seat is free again when this is dropped"]
pub struct Seat {
    seats: Seats,
    granted: Option<SeatGrant>,
    /// The time at which its holder may start, which counts as its start.
    starts_at: Instant,
}

/// The reason why a request got no seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoSeat {
    /// The flow's queue is full, or all queues are and this flow has the most waiters.
    #[error("too many requests wait already")]
    QueueFull,
    /// No seat that this flow may take became free in time.
    #[error("no seat became free in time")]
    TimedOut,
}

/// The current usage of a pool of seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeatFigures {
    /// The number of taken seats.
    pub taken: usize,
    /// The number of requests that wait for a seat.
    pub waiting: usize,
}

impl Seats {
    /// A pool of free seats.
    #[must_use]
    pub fn new(limits: SeatLimits) -> Self {
        let pool = Pool { queues: FairQueues::new(limits), pacing: Pacing::default() };
        Self(Arc::new(SharedSeats { hasher: RandomState::new(), pool: Mutex::new(pool) }))
    }

    /// Takes a seat for a request of `flow`, waiting for at most `wait_max`. If a request of `flow` had to
    /// wait recently, its requests start [`SPACING_MAX`] apart, or less if they are short. Cancel-safe: a
    /// cancelled waiter leaves its queue, and releases a seat that it was granted meanwhile.
    ///
    /// # Errors
    ///
    /// [`NoSeat`].
    pub async fn take(&self, flow: impl Hash, wait_max: Duration) -> Result<Seat, NoSeat> {
        self.take_hashed(self.0.hasher.hash_one(flow), wait_max).await
    }

    async fn take_hashed(&self, flow: u64, wait_max: Duration) -> Result<Seat, NoSeat> {
        let deadline = Instant::now() + wait_max;
        let seat = self.wait_for_seat(flow, deadline).await?;
        if seat.starts_at > Instant::now() {
            sleep_until(seat.starts_at.min(deadline)).await;
        }
        Ok(seat)
    }

    /// Waits for a seat until `deadline`. Its holder starts at the seat's start time.
    async fn wait_for_seat(&self, flow: u64, deadline: Instant) -> Result<Seat, NoSeat> {
        let (waiter, seat) = oneshot::channel();
        let (admission, starts_at) = self.lock().enter(flow, waiter);
        let ticket = match admission {
            Admission::Seated(granted) => return Ok(self.seat(granted, starts_at)),
            Admission::Rejected(_) => return Err(NoSeat::QueueFull),
            Admission::Queued { ticket, displaced } => {
                if let Some(displaced) = displaced {
                    // A cancelled waiter needs no answer.
                    let _ = displaced.send(Err(NoSeat::QueueFull));
                }
                ticket
            }
        };
        let _waiting = QueueSlot { seats: self, ticket };
        match timeout_at(deadline, seat).await {
            Ok(Ok(seat)) => seat,
            // No waiter is dropped unanswered while the pool exists, and it does.
            Ok(Err(_)) => Err(NoSeat::QueueFull),
            Err(_) => Err(NoSeat::TimedOut),
        }
    }

    /// The current usage of the pool.
    #[must_use]
    pub fn figures(&self) -> SeatFigures {
        let pool = self.lock();
        SeatFigures { taken: pool.queues.taken(), waiting: pool.queues.waiting() }
    }

    /// Grants free seats to the waiters whose turn it is.
    fn grant_free_seats(&self) {
        loop {
            // Not in the condition of the loop: the lock would be held while foreign code runs.
            let next = self.lock().next();
            let Some((granted, waiter, starts_at)) = next else { return };
            // A waiter that was cancelled just now gives its seat back here.
            drop(waiter.send(Ok(self.seat(granted, starts_at))));
        }
    }

    fn seat(&self, granted: SeatGrant, starts_at: Instant) -> Seat {
        Seat { seats: self.clone(), granted: Some(granted), starts_at }
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        // No foreign code runs under this lock: a panic would be a bug of the pool itself.
        self.0.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// Admits or queues a request of `flow`; returns its start time, if it has a seat.
    fn enter(&mut self, flow: u64, waiter: Waiter) -> (Admission<Waiter>, Instant) {
        let (admission, now) = (self.queues.enter(flow, waiter), Instant::now());
        let starts_at = match &admission {
            Admission::Seated(_) => self.pacing.start_at(flow, self.queues.held(flow), now),
            Admission::Queued { .. } | Admission::Rejected(_) => {
                self.pacing.on_wait(flow, self.queues.held(flow), now);
                now
            }
        };
        (admission, starts_at)
    }

    /// Grants a free seat to the next waiter, with its start time.
    fn next(&mut self) -> Option<(SeatGrant, Waiter, Instant)> {
        let (granted, waiter) = self.queues.next()?;
        let flow = granted.flow();
        let starts_at = self.pacing.start_at(flow, self.queues.held(flow), Instant::now());
        Some((granted, waiter, starts_at))
    }

    fn release(&mut self, granted: SeatGrant, started: Instant) {
        let (flow, now) = (granted.flow(), Instant::now());
        self.queues.release(granted);
        self.pacing.on_end(flow, now.saturating_duration_since(started), self.queues.held(flow), now);
    }
}

/// A slot in a queue until it is dropped. Dropping it after its seat was granted has no effect.
struct QueueSlot<'a> {
    seats: &'a Seats,
    ticket: Ticket,
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        let left = self.seats.lock().queues.leave(self.ticket);
        // Dropped after the lock is released, because it may hold a seat.
        let waited = left.is_some();
        drop(left);
        if waited {
            self.seats.grant_free_seats();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(granted) = self.granted.take() else { return };
        self.seats.lock().release(granted, self.starts_at);
        self.seats.grant_free_seats();
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
