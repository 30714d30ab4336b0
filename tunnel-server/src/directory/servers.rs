//! The servers that share a directory: those that run, and their numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proto::server_list::{ListedServer, ServerList};
use tokio::sync::watch;

use super::Directory;
use super::records::{NumberOwner, RegisteredServer};
use super::store::{RECORDS_AT_ONCE, ServerRegistration, StoreError};

/// Numbers of servers, as many as connection IDs can tell apart. None is given again.
pub const SERVER_NUMBERS_MAX: usize = 1 << 16;

/// The reason why a server has no number.
#[derive(Debug, thiserror::Error)]
pub enum ServerNumberError {
    /// All numbers are given to servers.
    #[error(
        "all {SERVER_NUMBERS_MAX} numbers of servers are given: use the serverId of a server that is gone"
    )]
    Full,
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
                let key = format!("{number:05}");
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
