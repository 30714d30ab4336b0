//! A fair queue for the API server's seats: users and credentials share them evenly.

use std::time::Duration;

use daemon::seats::HAND_SIZE;
use daemon::{NoSeat, Seat, SeatFigures, SeatLimits, Seats};
use http::HeaderValue;

use crate::config::Limits;
use crate::guard::Cleared;

/// The seats of one API server, for requests with any credential. Clones share them.
#[derive(Debug, Clone)]
pub struct FairQueue {
    seats: Seats,
    wait: Duration,
}

/// The flow of a request, among which seats are shared.
#[derive(Debug, Hash, PartialEq, Eq)]
enum Flow<'a> {
    /// Requests that assert this user.
    User(&'a HeaderValue),
    /// Requests with this credential of a caller.
    Bearer(Option<&'a HeaderValue>),
}

impl FairQueue {
    /// A queue with these numbers of seats and waiting requests, and this longest wait.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let Limits { requests: seats, queue: waiting, queue_wait: wait } = limits;
        // A flow that is alone may fill all queues, and is displaced when another one comes.
        let per_queue = waiting.div_ceil(HAND_SIZE);
        Self { seats: Seats::new(SeatLimits { seats, per_queue, waiting }), wait }
    }

    /// A seat for a request, now or after a wait. Cancel-safe: a future that is dropped leaves the queue.
    ///
    /// # Errors
    /// [`NoSeat`]: no seat became free in time, or the queue is full.
    pub(super) async fn take(&self, cleared: &Cleared, bearer: Option<&HeaderValue>) -> Result<Seat, NoSeat> {
        let flow = match cleared {
            Cleared::Assert(identity) => Flow::User(identity.user()),
            Cleared::PassThrough(_) => Flow::Bearer(bearer),
        };
        self.seats.take(flow, self.wait).await
    }

    /// The numbers of taken seats and of waiting requests.
    #[must_use]
    pub fn figures(&self) -> SeatFigures {
        self.seats.figures()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use proto::AllowList;
    use proto::wire::PassThrough;
    use proto::wire::http_open::Identity;

    use super::*;
    use crate::guard::Guard;

    /// One flow may fill all of it: the seat, and twice each of its queues.
    const LIMITS: Limits = Limits { requests: 1, queue: 2 * HAND_SIZE, queue_wait: Duration::from_secs(60) };

    #[tokio::test]
    async fn another_credential_finds_a_slot_where_one_has_filled_the_queue() {
        let allow_list = AllowList::new(None, None, None).unwrap();
        let cleared = Guard::new(allow_list, true).check(&Identity::PassThrough(PassThrough {})).unwrap();
        let [ann, ben] = ["Bearer ann", "Bearer ben"].map(HeaderValue::from_static);
        let queue = FairQueue::new(LIMITS);
        let _seat = queue.take(&cleared, Some(&ann)).await.unwrap();
        let mut waiting: Vec<_> =
            (0..LIMITS.queue).map(|_| Box::pin(queue.take(&cleared, Some(&ann)))).collect();
        assert!(waiting.iter_mut().all(|waiter| waiter.as_mut().now_or_never().is_none()));

        let refused = queue.take(&cleared, Some(&ann)).await;
        let mut other = Box::pin(queue.take(&cleared, Some(&ben)));

        assert!(matches!(refused, Err(NoSeat::QueueFull)));
        assert!(other.as_mut().now_or_never().is_none(), "it waits");
        let displaced = waiting.iter_mut().filter_map(|waiter| waiter.as_mut().now_or_never()).count();
        assert_eq!(displaced, 1, "one of the first flow is displaced");
    }
}
