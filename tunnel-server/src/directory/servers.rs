//! The servers that share a directory: those that run, and their numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proto::server_list::{ListedServer, ServerList};
use tokio::sync::watch;

use super::Directory;
use super::ranges::ServerRanges;
use super::records::{NumberOwner, RegisteredServer};
use super::store::{RECORDS_AT_ONCE, REGISTRATION_TTL, ServerRegistration, StoreError};

/// Numbers of servers, as many as connection IDs can tell apart. One is given again only if its server was removed.
pub const SERVER_NUMBERS_MAX: usize = 1 << 16;

/// The reason why a server has no number.
#[derive(Debug, thiserror::Error)]
pub enum ServerNumberError {
    /// All numbers are given to servers.
    #[error(
        "all {SERVER_NUMBERS_MAX} numbers of servers are given: remove a server that is gone (tombolo server remove)"
    )]
    Full,
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The reason why a server was not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveServerError {
    /// This server shares its records with no other one.
    #[error("this server shares its records with no other server, so there is none to remove")]
    NotShared,
    /// There is neither an entry nor a number of this name.
    #[error("there is no server {0:?}; `tombolo server list` shows all that are known")]
    Unknown(String),
    /// The server has a session with the one that is asked, or is that one.
    #[error(
        "the server {0} has a session with this one, or is this one, so it runs: stop it first, and wait until \
         `tombolo server list` says that it is gone"
    )]
    HasSession(String),
    /// The server is registered, so it lives.
    #[error(
        "the server {0} is registered, so it runs: stop it first, and wait until `tombolo server list` says that it is \
         gone, {ttl} s after its last sign of life",
        ttl = REGISTRATION_TTL.as_secs()
    )]
    Alive(String),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Directory {
    /// The servers that run, by ID; none if the directory is not shared.
    #[must_use]
    pub fn servers(&self) -> BTreeMap<String, Arc<RegisteredServer>> {
        self.cache().servers.clone()
    }

    /// The list of servers that agents are told of, and each change of it. Empty if the directory is not shared.
    #[must_use]
    pub fn server_list(&self) -> watch::Receiver<Arc<ServerList>> {
        self.0.memory.server_list.subscribe()
    }

    /// The IDs of all servers that have a number, running or not.
    #[must_use]
    pub fn numbered_servers(&self) -> BTreeSet<String> {
        self.cache().numbers.values().cloned().collect()
    }

    /// Removes the number and the ranges of a server that does not run. Both may then be given to another one.
    ///
    /// # Errors
    /// [`RemoveServerError`]; nothing was changed then.
    pub async fn remove_server(&self, server_id: &str) -> Result<(), RemoveServerError> {
        if !self.is_shared() {
            return Err(RemoveServerError::NotShared);
        }
        let (directory, server_id) = (self.clone(), server_id.to_owned());
        self.change(move |transaction| {
            // The commit fails if it registers meanwhile.
            if transaction.get::<RegisteredServer>(&server_id)?.is_some() {
                return Err(RemoveServerError::Alive(server_id.clone()));
            }
            let numbers = directory.cache().numbers.clone();
            let number = numbers.iter().find(|(_, owner)| **owner == server_id).map(|(number, _)| *number);
            let key = number.map(number_key);
            let owner = key.as_ref().map(|key| transaction.get::<NumberOwner>(key)).transpose()?.flatten();
            match (key, owner) {
                (Some(key), Some(owner)) if owner.server_id == server_id => {
                    transaction.remove::<NumberOwner>(&key)?;
                    transaction.remove::<ServerRanges>(&server_id)?;
                    Ok(())
                }
                (Some(_) | None, _) => Err(RemoveServerError::Unknown(server_id.clone())),
            }
        })
        .await
    }

    /// Returns true if another server than `own_id` is registered and does not stop. Always false if the directory is not
    /// shared.
    #[must_use]
    pub fn has_another_server(&self, own_id: &str) -> bool {
        self.cache().servers.iter().any(|(id, server)| id != own_id && !server.draining)
    }

    /// The IDs of the servers that run, as etcd has them now; none if the directory is not shared.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn registered_servers(&self) -> Result<BTreeSet<String>, StoreError> {
        let entries = self.with_store(|store| store.list::<RegisteredServer>("")).await?;
        Ok(entries.into_iter().map(|(id, _)| id).collect())
    }

    /// Returns true if a server of this ID has ever run with these records. Always false if the directory is not shared.
    #[must_use]
    pub fn has_ever_run(&self, server_id: &str) -> bool {
        self.cache().numbers.values().any(|owner| owner == server_id)
    }

    /// The entry of this server among the others, which is not registered yet; `None` if the directory is not shared.
    #[must_use]
    pub fn registration(
        &self,
        server_id: &str,
        server: RegisteredServer,
    ) -> Option<ServerRegistration<RegisteredServer>> {
        let stale_limit_seconds = self.stale_limit().map(|limit| limit.as_secs());
        self.0.store.registration(server_id, RegisteredServer { stale_limit_seconds, ..server })
    }

    /// The number of a server in connection IDs, which it keeps for good. The lowest free one is given at the first call.
    ///
    /// # Errors
    /// [`ServerNumberError`].
    pub async fn server_number(&self, server_id: &str) -> Result<u16, ServerNumberError> {
        let (directory, server_id) = (self.clone(), server_id.to_owned());
        self.change(move |transaction| {
            let numbers = directory.cache().numbers.clone();
            if let Some((number, _)) = numbers.iter().find(|(_, owner)| **owner == server_id) {
                return Ok(*number);
            }
            let free = (0..=u16::MAX).filter(|number| !numbers.contains_key(number));
            for number in free.take(RECORDS_AT_ONCE) {
                let key = number_key(number);
                match transaction.get::<NumberOwner>(&key)? {
                    None => {
                        transaction.put(&key, &NumberOwner { server_id: server_id.clone() })?;
                        return Ok(number);
                    }
                    Some(owner) if owner.server_id == server_id => return Ok(number),
                    // Another server was faster.
                    Some(_) => {}
                }
            }
            Err(ServerNumberError::Full)
        })
        .await
    }
}

/// The servers as agents are told of them.
pub(super) fn list(revision: i64, servers: &BTreeMap<String, Arc<RegisteredServer>>) -> ServerList {
    let listed = |(id, server): (&String, &Arc<RegisteredServer>)| ListedServer {
        id: id.clone(),
        addresses: server.addresses.clone(),
        is_draining: server.draining,
    };
    ServerList::new(revision, servers.iter().map(listed))
}

/// The key of a number's record.
fn number_key(number: u16) -> String {
    format!("{number:05}")
}
