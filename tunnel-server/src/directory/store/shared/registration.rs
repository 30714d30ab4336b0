//! The entry of this server among those that run, which etcd removes if the server falls silent.

use std::sync::Arc;
use std::time::Instant;

use etcd::{Client, CommitError, Compare, Entry, KeyRange, Lease, Outcome, Write};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::election::SharedElection;
use super::own_lease::{OwnLease, OwnLeaseState, REGISTRATION_TTL};
use super::path;
use crate::directory::store::{StoreError, StoreTable};

/// The description of a server in its entry.
pub trait ServerEntry: Serialize + DeserializeOwned {
    /// Returns true if it may take the entry of `earlier` over, because that process is gone.
    fn may_replace(&self, earlier: &Self) -> bool;

    /// Notes that the server is stopping.
    fn set_draining(&mut self);
}

/// Makes the entries of servers, and what is bound to their leases.
#[derive(Debug)]
pub(in crate::directory::store) struct Registrar {
    client: Client,
    prefix: String,
    /// The lease of this server's entry.
    own: OwnLeaseState,
}

/// The entry of this server, which it keeps alive.
#[derive(Debug)]
pub struct ServerRegistration<S> {
    client: Client,
    key: Vec<u8>,
    server: S,
    lease: Option<Lease>,
    own: OwnLeaseState,
}

/// The result of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistrationOutcome<S> {
    /// The entry is there, and has a new lease.
    Registered,
    /// Another process has an entry of the same name, and its keys are not this one's.
    Taken(Box<S>),
}

impl Registrar {
    pub(in crate::directory::store) fn new(client: Client, prefix: &str) -> Self {
        Self { client, prefix: prefix.to_owned(), own: Arc::new(watch::Sender::new(None)) }
    }

    /// The part of the server of this ID in an election, where it is no candidate yet.
    pub(in crate::directory::store) fn election(&self, name: &str, id: &str) -> SharedElection {
        let key = path(&self.prefix, StoreTable::Leaders, name).into_bytes();
        SharedElection::new(self.client.clone(), key, id.to_owned(), Arc::clone(&self.own))
    }

    /// The entry of the server of this ID, which is not registered yet.
    pub(in crate::directory::store) fn server<S: ServerEntry>(
        &self,
        id: &str,
        server: S,
    ) -> ServerRegistration<S> {
        let key = path(&self.prefix, StoreTable::Servers, id).into_bytes();
        let own = Arc::clone(&self.own);
        ServerRegistration { client: self.client.clone(), key, server, lease: None, own }
    }
}

impl<S: ServerEntry> ServerRegistration<S> {
    /// Keeps the entry alive, or registers it if it is not there (any more). It takes the entry over from an earlier process
    /// with the same keys, because one process at a time has the state directory.
    ///
    /// # Errors
    /// [`StoreError`]. Try again.
    pub async fn keep(&mut self) -> Result<RegistrationOutcome<S>, StoreError> {
        // The lease lasts from some moment after this one.
        let began = Instant::now();
        if let Some(lease) = self.lease {
            match self.client.keep_alive(lease).await.map_err(StoreError::Etcd)? {
                Ok(()) => {
                    self.own.send_replace(Some(OwnLease::kept(lease, began)));
                    return Ok(RegistrationOutcome::Registered);
                }
                Err(etcd::LeaseEnded) => self.forget_lease(),
            }
        }
        let lease = self.client.grant(REGISTRATION_TTL).await.map_err(StoreError::Etcd)?;
        let outcome = self.put(lease).await?;
        if matches!(outcome, RegistrationOutcome::Registered) {
            self.lease = Some(lease);
            self.own.send_replace(Some(OwnLease::kept(lease, began)));
        }
        Ok(outcome)
    }

    /// Tells the other servers that this one is stopping.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn drain(&mut self) -> Result<(), StoreError> {
        self.server.set_draining();
        let Some(lease) = self.lease else { return Ok(()) };
        // An entry that somebody else has by now stays.
        self.put(lease).await.map(drop)
    }

    /// Removes the entry from the list.
    ///
    /// # Errors
    /// [`StoreError`]. Then etcd removes it by itself, after [`REGISTRATION_TTL`].
    pub async fn end(&mut self) -> Result<(), StoreError> {
        let lease = self.lease;
        self.forget_lease();
        match lease {
            Some(lease) => self.client.revoke(lease).await.map_err(StoreError::Etcd),
            None => Ok(()),
        }
    }

    fn forget_lease(&mut self) {
        self.lease = None;
        self.own.send_replace(None);
    }

    /// Writes the entry with this lease, if nobody else has it.
    async fn put(&self, lease: Lease) -> Result<RegistrationOutcome<S>, StoreError> {
        let value = serde_json::to_vec(&self.server).map_err(|error| self.damaged(error))?;
        loop {
            let listing = self.client.list(&KeyRange::key(self.key.clone()), None).await;
            let condition = match listing.map_err(StoreError::Etcd)?.entries.pop() {
                None => Compare::Absent(self.key.clone()),
                Some(Entry { value: found, changed, .. }) => {
                    let found: S = serde_json::from_slice(&found).map_err(|error| self.damaged(error))?;
                    if !self.server.may_replace(&found) {
                        return Ok(RegistrationOutcome::Taken(Box::new(found)));
                    }
                    Compare::Unchanged(self.key.clone(), changed)
                }
            };
            let write = Write::PutLeased(self.key.clone(), value.clone(), lease);
            match self.client.commit(vec![condition], vec![write]).await {
                Ok(Outcome::Made(_)) => return Ok(RegistrationOutcome::Registered),
                // Somebody was faster, or the answer was lost: the entry says which.
                Ok(Outcome::Conflict) | Err(CommitError::Unknown(_)) => {}
                Err(CommitError::NotMade(error)) => return Err(StoreError::Etcd(error)),
            }
        }
    }

    fn damaged(&self, error: serde_json::Error) -> StoreError {
        let place = String::from_utf8_lossy(&self.key).into_owned();
        StoreError::DamagedRecord { place, source: error.into() }
    }
}
