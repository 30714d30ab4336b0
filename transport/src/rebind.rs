//! A new UDP socket for an agent's tunnel that hears nothing, because a NAT may hold on to a mapping that leads nowhere.
//!
//! Such a mapping is kept by the very probes that wait for an answer: a router whose uplink came back with another address
//! may map the old flow to the old address for as long as it is in use. From another port it is another flow.

use std::time::{Duration, Instant};

use tracing::debug;

use crate::endpoint::Endpoint;

/// How long nothing is heard before each new socket. quinn hears what still comes to the last one, too.
pub(crate) const REBIND_EVERY: Duration = Duration::from_secs(5);

/// The socket of one tunnel.
pub(crate) struct Rebinding {
    endpoint: Endpoint,
    bound_at: Instant,
}

impl Rebinding {
    pub(crate) fn new(endpoint: Endpoint, now: Instant) -> Self {
        Self { endpoint, bound_at: now }
    }

    /// Takes another socket, if nothing was heard for long enough since the last one.
    pub(crate) fn consider(&mut self, now: Instant, silence: Duration) {
        let is_due = silence >= REBIND_EVERY && now >= self.bound_at + REBIND_EVERY;
        if is_due {
            self.bound_at = now;
            if let Err(error) = self.endpoint.rebind() {
                debug!(%error, "no other UDP socket for the tunnel");
            }
        }
    }
}
