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
