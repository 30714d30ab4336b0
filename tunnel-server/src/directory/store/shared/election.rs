//! Elections among the servers: the leader of each has its key, which is bound to the lease of that server's entry.

use std::time::Instant;

use etcd::{Client, CommitError, Compare, KeyRange, Lease, Outcome, Write};

use super::own_lease::OwnLeaseState;
use crate::directory::store::StoreError;

/// Most tries of one candidacy, where answers are lost or others are faster.
const TRIES_MAX: usize = 3;

/// The part of this server in an election.
#[derive(Debug)]
pub(in crate::directory) struct SharedElection {
    client: Client,
    key: Vec<u8>,
    server_id: String,
    own: OwnLeaseState,
    /// The key's value with the lease that it is bound to, once this server has written it.
    written: Option<(Lease, Vec<u8>)>,
}

impl SharedElection {
    pub(super) fn new(client: Client, key: Vec<u8>, server_id: String, own: OwnLeaseState) -> Self {
        Self { client, key, server_id, own, written: None }
    }

    /// Makes this server the leader if there is none. `value` makes the key's value of the server's ID and of its lease, so that
    /// an earlier process, and an earlier lease, have another one.
    ///
    /// # Errors
    /// [`StoreError`]. Then it is not the leader, or does not know of it.
    pub(in crate::directory) async fn campaign(
        &mut self,
        value: impl Fn(&str, String) -> Result<Vec<u8>, StoreError>,
    ) -> Result<(), StoreError> {
        let own = *self.own.borrow();
        let Some(lease) = own.filter(|own| own.good_until(Instant::now()).is_some()).map(|own| own.lease())
        else {
            return Ok(());
        };
        let value = value(&self.server_id, lease.to_string())?;
        for _ in 0..TRIES_MAX {
            let listing = self.client.list(&KeyRange::key(self.key.clone()), None).await;
            match listing.map_err(StoreError::Etcd)?.entries.pop() {
                Some(found) if found.value != value => return Ok(()),
                // The answer to an earlier try was lost.
                Some(_) => {
                    self.written = Some((lease, value));
                    return Ok(());
                }
                None => {}
            }
            let conditions = vec![Compare::Absent(self.key.clone())];
            let write = Write::PutLeased(self.key.clone(), value.clone(), lease);
            match self.client.commit(conditions, vec![write]).await {
                Ok(Outcome::Made(_)) => {
                    self.written = Some((lease, value));
                    return Ok(());
                }
                Ok(Outcome::Conflict) | Err(CommitError::Unknown(_)) => {}
                Err(CommitError::NotMade(error)) => return Err(StoreError::Etcd(error)),
            }
        }
        Ok(())
    }

    /// The time until which nobody else can be the leader, by this server's own clock. `None` if another one can.
    pub(in crate::directory) fn leads_until(&self) -> Option<Instant> {
        let (bound, _) = self.written.as_ref()?;
        let own = *self.own.borrow();
        own?.holds(*bound, Instant::now())
    }

    /// The time until which the others know this server as one that runs, for sure.
    pub(in crate::directory) fn registered_until(&self) -> Option<Instant> {
        let own = *self.own.borrow();
        own?.good_until(Instant::now())
    }

    /// Returns true if the key's value is what this server has written.
    pub(in crate::directory) fn has_written(&self, found: &[u8]) -> bool {
        self.written.as_ref().is_some_and(|(_, value)| value == found)
    }

    /// Gives the lead up. Another server can have it at once.
    ///
    /// # Errors
    /// [`StoreError`]. Then etcd removes the key with the lease.
    pub(in crate::directory) async fn resign(&mut self) -> Result<(), StoreError> {
        let Some((_, value)) = self.written.take() else { return Ok(()) };
        let listing = self.client.list(&KeyRange::key(self.key.clone()), None).await;
        let Some(found) = listing.map_err(StoreError::Etcd)?.entries.pop() else { return Ok(()) };
        if found.value != value {
            return Ok(());
        }
        let conditions = vec![Compare::Unchanged(self.key.clone(), found.changed)];
        match self.client.commit(conditions, vec![Write::Remove(self.key.clone())]).await {
            // If the answer was lost, the lease ends soon.
            Ok(Outcome::Made(_) | Outcome::Conflict) | Err(CommitError::Unknown(_)) => Ok(()),
            Err(CommitError::NotMade(error)) => Err(StoreError::Etcd(error)),
        }
    }
}
