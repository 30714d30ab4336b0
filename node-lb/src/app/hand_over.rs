//! Hands everything over to a successor that asks, and ends then. Without its word everything goes on here.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use daemon::{Scope, error_chain};
use tokio::time::timeout;
use tracing::{info, warn};

use crate::balancer::{Balancer, HandoverResult};
use crate::handover::{HandoverError, HandoverSocket, ListenerFacts, Successor};
use crate::relay::Relays;

/// Longest time for which nothing moves. A successor that has not taken over by then gets nothing.
const FROZEN_MAX: Duration = Duration::from_secs(5);

/// Everything that a successor gets.
pub(super) struct Estate {
    pub(super) relays: Relays,
    /// The socket of the probes, which this process answers until its end.
    pub(super) probes: (ListenerFacts, OwnedFd),
    pub(super) balancer: Balancer,
}

impl Estate {
    /// Waits for a successor, and ends this process once one has taken over. Meanwhile everything is served.
    pub(super) async fn hand_over(self, socket: HandoverSocket, scope: Scope) {
        loop {
            let mut successor = socket.next().await;
            if scope.is_draining() {
                return;
            }
            let began = Instant::now();
            // Cancel-safe: what was stopped goes on when this is dropped.
            let given = timeout(FROZEN_MAX, self.give(&mut successor)).await;
            match given.unwrap_or(Err(HandoverError::Timeout(FROZEN_MAX.as_secs()))) {
                Ok(connections) => {
                    info!(connections, frozen = ?began.elapsed(), "handed over to a successor");
                    drop(socket);
                    successor.has_started().await;
                    scope.begin_drain();
                    return;
                }
                Err(error) => {
                    let error = error_chain(&error).to_string();
                    warn!(error, frozen = ?began.elapsed(), "a successor did not take over, this process goes on");
                    self.balancer.handover(HandoverResult::Resumed);
                }
            }
        }
    }

    /// Gives everything away. Returns the number of connections.
    async fn give(&self, successor: &mut Successor) -> Result<usize, HandoverError> {
        let frozen = self.relays.freeze().await;
        let (facts, socket) = &self.probes;
        successor.listener(*facts, socket.as_fd()).await?;
        frozen.send(successor).await?;
        successor.has_all().await?;
        successor.go()?;
        // No await since the decision: nothing here moves any more.
        Ok(frozen.hand_over())
    }
}
