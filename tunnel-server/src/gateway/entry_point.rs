//! An entry point: a listener of its own for the egress of one API server, which fixes the principal and the
//! cluster.

use std::sync::Arc;

use proto::ClusterId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::identity::Authenticated;
use crate::limits::{self, LimitExceeded};

/// The entry point of a connection. It fixes the principal: request headers cannot change it. Clones share
/// their slots.
#[derive(Debug, Clone)]
pub struct EntryPoint {
    /// The principal of every connection by this entry point.
    pub principal: Authenticated,
    /// The only cluster whose targets can be reached by this entry point.
    pub cluster: ClusterId,
    /// The slots of its connections.
    pub slots: EntryPointSlots,
}

/// The slots for simultaneous connections of one entry point to targets. Clones share them.
#[derive(Debug, Clone)]
pub struct EntryPointSlots {
    free: Arc<Semaphore>,
    max: usize,
}

impl EntryPointSlots {
    /// Makes `max` slots, all of them free.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(max)), max }
    }

    /// Takes a slot until the permit is dropped.
    ///
    /// # Errors
    /// No slot is free.
    pub(super) fn take(&self) -> Result<OwnedSemaphorePermit, LimitExceeded> {
        let permit = Arc::clone(&self.free).try_acquire_owned();
        permit.map_err(|_| limits::count_exceeded(LimitExceeded::EgressConnections(self.max)))
    }

    /// The number of slots, and how many of them are taken.
    #[must_use]
    pub fn used(&self) -> (usize, usize) {
        (self.max, self.max - self.free.available_permits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_point_has_no_more_connections_than_its_limit() {
        let slots = EntryPointSlots::new(2);
        let (first, _second) = (slots.take().unwrap(), slots.clone().take().unwrap());
        assert_eq!(slots.take().unwrap_err(), LimitExceeded::EgressConnections(2));
        assert_eq!(slots.used(), (2, 2));

        drop(first);

        assert!(slots.take().is_ok());
    }
}
