//! The records of the directory, which are read and changed in transactions over a database.
//!
//! [`engine`] says what a database has to do; [`embedded`] is the one of a single server, [`shared`] that of many.

mod embedded;
mod engine;
mod shared;
mod transaction;
mod unknown_fields;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use daemon::{Failure, Scope, StateDir, StateFile};
use etcd::Revision;
use records::export::{ExportWriter, NotARecord};
use records::layout::{Part, Place, SCHEMA};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::freshness::MemoryAge;
use embedded::EmbeddedEngine;
use engine::{Commit, Engine};
use shared::{Registrar, SharedEngine};
use unknown_fields::UnknownFields;

pub(super) use engine::Follower;
pub(super) use shared::SharedElection;
pub use shared::{LEASE_MARGIN, REGISTRATION_TTL, RegistrationOutcome, ServerEntry, ServerRegistration};
pub(super) use transaction::Transaction;

/// Largest record, in bytes: the ranges of a server with all clusters that they can have.
const RECORD_BYTES_MAX: usize = 128 * 1024;

/// Most records that one transaction changes where there may be many, because an engine may bound what it compares and
/// writes: etcd takes 128 of each.
pub(super) const RECORDS_AT_ONCE: usize = 50;

/// Most times that a change is decided, where others change the same records.
const TRIES_MAX: usize = 16;

/// Makes the enum of tables and, from the same list, all of them, their stored names, and whether decisions use them.
macro_rules! store_tables {
    ($($(#[$doc:meta])* $table:ident = $name:literal, affects_authorization: $affects:literal, is_followed: $followed:literal,
        is_exported: $exported:literal;)*) => {
        /// A table of the store, with one kind of record.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum StoreTable {
            $($(#[$doc])* $table,)*
        }

        impl StoreTable {
            const ALL: &[Self] = &[$(Self::$table,)*];

            /// Returns true if requests and handshakes are authorized by the table's records.
            pub(super) fn affects_authorization(self) -> bool {
                match self {
                    $(Self::$table => $affects,)*
                }
            }

            /// Returns true if memory has the table's records, as of the last change by anybody.
            fn is_followed(self) -> bool {
                match self {
                    $(Self::$table => $followed,)*
                }
            }

            /// Returns true if an export has the table's records: all that do not end with their server.
            fn is_exported(self) -> bool {
                match self {
                    $(Self::$table => $exported,)*
                }
            }

            /// The name of the table where the engine keeps it.
            fn name(self) -> &'static str {
                match self {
                    $(Self::$table => $name,)*
                }
            }
        }
    };
}

store_tables! {
    /// The clusters and their descriptions.
    Clusters = "clusters", affects_authorization: true, is_followed: true,
        is_exported: true;
    /// The times at which clusters were last seen, apart from their descriptions.
    Seen = "seen", affects_authorization: false, is_followed: true,
        is_exported: true;
    /// Revocations of agents, by target.
    Revocations = "revocations", affects_authorization: true, is_followed: true,
        is_exported: true;
    /// Revocations of callers, by target.
    Callers = "callers", affects_authorization: true, is_followed: true,
        is_exported: true;
    /// Tokens by which agents enroll.
    Tokens = "tokens", affects_authorization: false, is_followed: false,
        is_exported: true;
    /// Enrolled agents, by cluster and instance.
    Agents = "agents", affects_authorization: false, is_followed: false,
        is_exported: true;
    /// The accounts by which further pods of clusters enroll.
    Attestations = "attestations", affects_authorization: false, is_followed: false,
        is_exported: true;
    /// Tokens by which callers are connected to targets.
    DialTokens = "dial-tokens", affects_authorization: true, is_followed: true,
        is_exported: true;
    /// Addresses of ranges that are assigned to clusters.
    Addresses = "addresses", affects_authorization: false, is_followed: false,
        is_exported: true;
    /// The servers that run, by ID; only of servers that share their records.
    Servers = "servers", affects_authorization: false, is_followed: true,
        is_exported: false;
    /// The servers' numbers in connection IDs; only of servers that share their records.
    Numbers = "numbers", affects_authorization: false, is_followed: true,
        is_exported: true;
    /// The leader of each election among the servers; only of servers that share their records.
    Leaders = "leaders", affects_authorization: false, is_followed: true,
        is_exported: false;
    /// The ranges of addresses of each server; only of servers that share their records.
    Ranges = "ranges", affects_authorization: false, is_followed: false,
        is_exported: false;
}

impl StoreTable {
    /// The part of the records that the table belongs to.
    fn part(self) -> Part {
        if self.is_followed() { Part::Watched } else { Part::Read }
    }

    /// The path of a record, or the beginning of the paths of several.
    fn path(self, key: &str) -> String {
        Place { part: self.part(), table: self.name(), key }.to_string()
    }
}

/// A record of a table, serialized as JSON.
pub(super) trait StoredRecord: Serialize + DeserializeOwned {
    const TABLE: StoreTable;
}

/// A record that was written, or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordChange {
    pub(super) table: StoreTable,
    pub(super) key: String,
    pub(super) record: Option<Vec<u8>>,
}

/// A record that is not in our form.
#[derive(Debug, thiserror::Error)]
#[error("{table:?} {key:?}: {reason}")]
pub(super) struct RecordDamage {
    table: StoreTable,
    key: String,
    reason: String,
}

/// The open store. Its functions block.
#[derive(Debug)]
pub(super) struct RecordStore {
    engine: Box<dyn Engine>,
    /// Makes entries of servers, if several share the store.
    registrar: Option<Registrar>,
}

/// The reason why the store cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file or a record is not in our form.
    #[error(
        "{} is damaged, and without it {}: {}",
        path.display(), StateFile::Directory.cost(), StateFile::Directory.remedy()
    )]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The damage that was found.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A later version wrote it.
    #[error("{} was written by a newer tunnel-server (schema {found}, this one knows {SCHEMA}): start that one", path.display())]
    Newer {
        /// The path of the file.
        path: PathBuf,
        /// The version of the records' form.
        found: u64,
    },
    /// Another process has it open.
    #[error("{} is in use by another process: give each tunnel-server a state directory of its own", .0.display())]
    InUse(PathBuf),
    /// A record is too large. This is a fault of the program, because descriptions have limits of their own.
    #[error("a record of {0} bytes is too large")]
    TooLarge(usize),
    /// The system refused an operation.
    #[error("cannot use {}, and without it {}", path.display(), StateFile::Directory.cost())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A record in etcd is not in our form.
    #[error(
        "the records in etcd below {place} are damaged: restore etcd from a snapshot, or remove what is named here"
    )]
    DamagedRecord {
        /// The beginning of the keys.
        place: String,
        /// The damage that was found.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// etcd does not answer, or refuses.
    #[error("etcd cannot be used now, so nothing was changed")]
    Etcd(#[source] etcd::Error),
    /// A member of etcd has a release with faults.
    #[error("{endpoint} cannot be used")]
    UnsuitableEtcd {
        /// The URL of the member.
        endpoint: String,
        /// The fault of its release.
        #[source]
        why: etcd::Unsuitable,
    },
    /// This server has no news from etcd, so nothing is changed by what it knows.
    #[error(
        "this server has had no news from etcd for {seconds} s, so nothing was changed: try again, or ask another server"
    )]
    NotFresh {
        /// The age of its memory.
        seconds: u64,
    },
    /// The answer to a change was lost, and the records cannot be read to see whether it was made.
    #[error("etcd has not said whether the change was made: look at what is there, and try again")]
    Unknown(#[source] Box<Self>),
    /// The change was made, and this server has not seen it in time.
    #[error("the change is made in etcd, and this server has not seen it yet: it is behind")]
    Behind,
    /// A newer server has made a table that this one does not know, so an export would lack it.
    #[error("{0} is a record of a newer tunnel-server: export the records by that one")]
    UnknownTable(String),
    /// A record cannot be in an export.
    #[error("the records cannot be exported")]
    NotExportable(#[source] NotARecord),
    /// Nobody has taken the next part of an export for too long, or its reader has gone.
    #[error("the export is not read any more")]
    NotRead,
    /// The records in etcd are not complete yet.
    #[error(
        "an import into etcd below {0} goes on, or did not end: if nobody imports now, remove all keys below it and import again"
    )]
    Importing(String),
    /// Others changed the same records again and again.
    #[error("the same records were changed by others {TRIES_MAX} times in a row: try again")]
    Contended,
    /// The server is stopping now.
    #[error("the server is stopping")]
    Stopping,
}

impl RecordStore {
    /// Opens the store in `state_dir`, and creates it if there is none.
    pub(super) fn open(state_dir: &StateDir) -> Result<Self, StoreError> {
        Ok(Self { engine: Box::new(EmbeddedEngine::open(state_dir)?), registrar: None })
    }

    /// Opens the store that many servers share in etcd, below `prefix`. Blocks, and must not be called on a thread of the
    /// runtime `runtime`.
    pub(super) fn open_shared(
        client: etcd::Client,
        prefix: String,
        age: Arc<MemoryAge>,
        runtime: Handle,
        scope: Scope,
    ) -> Result<Self, StoreError> {
        let registrar = Some(Registrar::new(client.clone(), &prefix));
        Ok(Self { engine: Box::new(SharedEngine::open(client, prefix, age, runtime, scope)?), registrar })
    }

    /// Copies the store in the folder `state_dir` into memory, even if another process has it open; an empty
    /// one if there is none. Changes of the copy are lost with it.
    pub(super) fn copy(state_dir: &Path) -> Result<Self, StoreError> {
        Ok(Self { engine: Box::new(EmbeddedEngine::copy(state_dir)?), registrar: None })
    }

    /// The entry of a server that is not registered yet; `None` if nobody shares the store.
    pub(super) fn registration<S: ServerEntry>(&self, id: &str, server: S) -> Option<ServerRegistration<S>> {
        self.registrar.as_ref().map(|registrar| registrar.server(id, server))
    }

    /// The part of the server `id` in an election; `None` if nobody shares the store.
    pub(super) fn election(&self, name: &str, id: &str) -> Option<SharedElection> {
        self.registrar.as_ref().map(|registrar| registrar.election(name, id))
    }

    /// Gives `follower` all records as if each had just been written, and then each change in order.
    pub(super) fn follow(&self, follower: Arc<dyn Follower>) -> Result<(), StoreError> {
        self.engine.follow(follower)
    }

    /// Writes all records of one moment with `writer`. `out` has its lines, of which `sent` takes some from time to time.
    pub(super) fn export(
        &self,
        writer: &mut ExportWriter,
        out: &mut Vec<u8>,
        sent: &mut dyn FnMut(&mut Vec<u8>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.engine.visit(&mut |path, record| {
            let place = Place::parse(path);
            let table = StoreTable::ALL.iter().find(|table| {
                place.is_some_and(|place| (place.part, place.table) == (table.part(), table.name()))
            });
            let (Some(place), Some(table)) = (place, table) else {
                return Err(StoreError::UnknownTable(path.to_owned()));
            };
            if !table.is_exported() {
                return Ok(());
            }
            writer.record(&place, record, out).map_err(StoreError::NotExportable)?;
            sent(out)
        })
    }

    /// Makes the changes on which `act` decides, or none if it fails. When this returns, they survive a crash, and the
    /// follower has them. Where others change the same records, `act` decides again on what is there then.
    pub(super) fn update<T, E: From<StoreError>>(
        &self,
        act: impl Fn(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.update_at(act).map(|(done, _)| done)
    }

    /// The same with a revision of the shared store that has the changes; `None` if nobody shares the store, or nothing was
    /// changed.
    pub(super) fn update_at<T, E: From<StoreError>>(
        &self,
        act: impl Fn(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<(T, Option<Revision>), E> {
        let unknown = |error| StoreError::Unknown(Box::new(error));
        for _ in 0..TRIES_MAX {
            let mut transaction = Transaction::new(self, self.engine.begin()?);
            let done = act(&mut transaction)?;
            let (outcome, changes) = transaction.commit()?;
            match outcome {
                Commit::Done(revision) => return Ok((done, revision)),
                // The records that are removed by their prefix are so in the same commit as these.
                Commit::Unknown => match self.has(&changes) {
                    Ok(true) => return Ok((done, self.engine.newest().map_err(unknown)?)),
                    Ok(false) => {}
                    Err(error) => return Err(unknown(error).into()),
                },
                Commit::Conflict => {}
            }
        }
        Err(StoreError::Contended.into())
    }

    /// Returns true if the store is as after these changes. Then nothing is left to do.
    fn has(&self, changes: &[RecordChange]) -> Result<bool, StoreError> {
        for RecordChange { table, key, record } in changes {
            if self.engine.get(*table, key)? != *record {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The revision up to which the follower has all changes; `None` if nobody shares the store.
    pub(super) fn applied(&self) -> Option<watch::Receiver<Option<Revision>>> {
        self.engine.applied()
    }

    /// Reads one record by its key.
    pub(super) fn get<R: StoredRecord>(&self, key: &str) -> Result<Option<R>, StoreError> {
        self.engine.get(R::TABLE, key)?.map(|bytes| self.parse(key, &bytes)).transpose()
    }

    /// The records whose keys begin with `prefix`, in the order of their keys.
    pub(super) fn list<R: StoredRecord>(&self, prefix: &str) -> Result<Vec<(String, R)>, StoreError> {
        let found = self.engine.list(R::TABLE, prefix)?.into_iter();
        found.map(|(key, bytes)| self.parse(&key, &bytes).map(|record| (key, record))).collect()
    }

    /// Counts the records of a kind.
    pub(super) fn count<R: StoredRecord>(&self) -> Result<usize, StoreError> {
        self.engine.count(R::TABLE)
    }

    /// The error for a record that is not in our form.
    pub(super) fn damaged_at(&self, table: StoreTable, key: &str, reason: impl ToString) -> StoreError {
        self.engine.damaged(RecordDamage::new(table, key, reason))
    }

    fn parse<R: StoredRecord>(&self, key: &str, bytes: &[u8]) -> Result<R, StoreError> {
        parse(key, bytes).map_err(|damage| self.engine.damaged(damage))
    }
}

impl RecordDamage {
    pub(super) fn new(table: StoreTable, key: &str, reason: impl ToString) -> Self {
        Self { table, key: key.to_owned(), reason: reason.to_string() }
    }
}

/// Parses the bytes of a record.
pub(super) fn parse<R: StoredRecord>(key: &str, bytes: &[u8]) -> Result<R, RecordDamage> {
    let (record, _) = parse_all(key, bytes)?;
    Ok(record)
}

fn parse_all<R: StoredRecord>(key: &str, bytes: &[u8]) -> Result<(R, UnknownFields), RecordDamage> {
    unknown_fields::parse(bytes).map_err(|error| RecordDamage::new(R::TABLE, key, error))
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::could_not_go_on(error)
    }
}

#[cfg(test)]
mod tests;
