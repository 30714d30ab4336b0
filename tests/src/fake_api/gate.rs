//! A point in an answer at which the fake waits until a trial opens it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// The position of a gate in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Moment {
    /// The request is read to its end, and not one byte of the answer was sent.
    BeforeHead,
    /// Half of the body was sent; of a watch, half of the next event.
    MidBody,
    /// All but the last byte was sent; of a watch, only complete events.
    AtTheEnd,
}

/// A gate that is closed until [`Gate::open`]; clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate(Arc<GateShared>);

/// Nobody came to a gate in time.
#[derive(Debug, thiserror::Error)]
#[error("no answer came to its gate within {0:?}")]
pub struct NotReached(Duration);

#[derive(Debug)]
struct GateShared {
    moment: Moment,
    state: watch::Sender<GateState>,
}

#[derive(Debug, Clone, Copy, Default)]
struct GateState {
    reached: usize,
    is_open: bool,
}

impl Gate {
    /// A gate that is closed.
    pub fn new(moment: Moment) -> Self {
        Self(Arc::new(GateShared { moment, state: watch::Sender::new(GateState::default()) }))
    }

    /// The gate's position in the answer.
    pub fn moment(&self) -> Moment {
        self.0.moment
    }

    /// Opens the gate for good.
    pub fn open(&self) {
        self.0.state.send_modify(|state| state.is_open = true);
    }

    /// Waits until an answer has reached the gate.
    ///
    /// # Errors
    /// [`NotReached`] after `limit`.
    pub async fn reached(&self, limit: Duration) -> Result<(), NotReached> {
        let mut changes = self.0.state.subscribe();
        let reached = timeout(limit, changes.wait_for(|state| state.reached > 0)).await;
        // The sender lives in `self`, so that only the deadline can end the wait.
        reached.map(drop).map_err(|_| NotReached(limit))
    }

    /// Waits at the gate until it is open.
    pub(super) async fn pass(&self) {
        self.0.state.send_modify(|state| state.reached += 1);
        let mut changes = self.0.state.subscribe();
        let _ = changes.wait_for(|state| state.is_open).await; // The sender lives in `self`.
    }
}
