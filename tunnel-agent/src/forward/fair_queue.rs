//! Whose turn it is at the API server: requests share its seats, fairly among those for whom they are made.

use std::time::Duration;

use daemon::seats::HAND;
use daemon::{NoSeat, Seat, SeatFigures, SeatLimits, Seats};
use http::HeaderValue;

use super::ForwardError;
use crate::config::Limits;
use crate::guard::Cleared;

/// The seats of one API server, for whoever asks by whichever credential. Clones are the same.
#[derive(Debug, Clone)]
pub struct Turns {
    seats: Seats,
    wait: Duration,
}

/// For whom a request is made.
#[derive(Debug, Hash, PartialEq, Eq)]
enum Flow<'a> {
    /// This user, who is asserted.
    User(&'a HeaderValue),
    /// Whoever brings this credential.
    Bearer(Option<&'a HeaderValue>),
}

impl Turns {
    /// So many seats, so many who wait for one, and for so long.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let Limits { requests: seats, queue: waiting, queue_wait: wait } = limits;
        // One who is alone may fill all queues, and makes place for whoever comes.
        let per_queue = waiting.div_ceil(HAND);
        Self { seats: Seats::new(SeatLimits { seats, per_queue, waiting }), wait }
    }

    /// A seat for a request, now or after a wait. Cancel-safe: dropped, it waits no more.
    ///
    /// # Errors
    /// `Busy`: there is none in time, or no room to wait.
    pub(super) async fn take(
        &self,
        cleared: &Cleared,
        bearer: Option<&HeaderValue>,
    ) -> Result<Seat, ForwardError> {
        let flow = match cleared {
            Cleared::Assert(identity) => Flow::User(identity.user()),
            Cleared::PassThrough(_) => Flow::Bearer(bearer),
        };
        self.seats.take(flow, self.wait).await.map_err(|why| match why {
            NoSeat::Crowded | NoSeat::TooLong => ForwardError::Busy(why),
        })
    }

    /// How things are now.
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

    /// What one may fill: the seat, and twice each of its queues.
    const LIMITS: Limits = Limits { requests: 1, queue: 2 * HAND, queue_wait: Duration::from_secs(60) };

    #[tokio::test]
    async fn whoever_brings_another_credential_finds_a_place_where_one_has_filled_all_and_that_one_does_not()
    {
        let allow_list = AllowList::new(None, None, None).unwrap();
        let cleared = Guard::new(allow_list, true).check(&Identity::PassThrough(PassThrough {})).unwrap();
        let [ann, ben] = ["Bearer ann", "Bearer ben"].map(HeaderValue::from_static);
        let turns = Turns::new(LIMITS);
        let _seat = turns.take(&cleared, Some(&ann)).await.unwrap();
        let mut waiting: Vec<_> =
            (0..LIMITS.queue).map(|_| Box::pin(turns.take(&cleared, Some(&ann)))).collect();
        assert!(waiting.iter_mut().all(|waits| waits.as_mut().now_or_never().is_none()));

        let refused = turns.take(&cleared, Some(&ann)).await;
        let mut other = Box::pin(turns.take(&cleared, Some(&ben)));

        assert!(matches!(refused, Err(ForwardError::Busy(NoSeat::Crowded))));
        assert!(other.as_mut().now_or_never().is_none(), "it waits");
        let displaced = waiting.iter_mut().filter_map(|waits| waits.as_mut().now_or_never()).count();
        assert_eq!(displaced, 1, "in the place of one of the first");
    }
}
