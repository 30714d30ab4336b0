//! Records on disk, in transactions that survive a crash. No other file uses the database engine.
//!
//! Another engine (etcd) would be added here: it needs these operations within a transaction, and a
//! [`RecordChange`] for each change that was made elsewhere.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use daemon::{Failure, StateDir, StateFile};
use proto::admin::BACKUP_BYTES_MAX;
use redb::backends::{FileBackend, InMemoryBackend};
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase as _, ReadableTable, StorageBackend, StorageError,
    TableDefinition, TableHandle as _, WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The version of the records' form. A server refuses a newer one than its own.
const SCHEMA: u64 = 1;

/// The file in the state directory.
const FILE: &str = StateFile::Directory.name();

/// The name of a new file until it is complete, so that a partial file is never taken for an empty one.
const FILE_NEW: &str = ".directory.redb.new";

/// Access mode of the file.
const FILE_MODE: u32 = 0o600;

/// Memory for cached parts of the file: the records of 10,000 clusters, with reserve.
const CACHE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Largest record, in bytes: a cluster with all labels and addresses that it can have.
const RECORD_BYTES_MAX: usize = 64 * 1024;

const SCHEMA_TABLE: TableDefinition<'static, &str, u64> = TableDefinition::new("schema");
const SCHEMA_KEY: &str = "version";

/// Makes the enum of tables and, from the same list, all of them, their names on disk, and whether decisions use them.
macro_rules! store_tables {
    ($($(#[$doc:meta])* $table:ident = $name:literal, affects_authorization: $affects:literal;)*) => {
        /// A table of the store, with one kind of record.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

            fn definition(self) -> TableDefinition<'static, &'static str, &'static [u8]> {
                TableDefinition::new(match self {
                    $(Self::$table => $name,)*
                })
            }
        }
    };
}

store_tables! {
    /// The clusters and their descriptions.
    Clusters = "clusters", affects_authorization: true;
    /// The times at which clusters were last seen, apart from their descriptions.
    Seen = "seen", affects_authorization: false;
    /// Revocations of agents, by target.
    Revocations = "revocations", affects_authorization: true;
    /// Revocations of callers, by target.
    Callers = "callers", affects_authorization: true;
    /// Tokens by which agents enroll.
    Tokens = "tokens", affects_authorization: false;
    /// Enrolled agents, by cluster and instance.
    Agents = "agents", affects_authorization: false;
    /// The accounts by which further pods of clusters enroll.
    Attestations = "attestations", affects_authorization: false;
    /// Tokens by which callers are connected to targets.
    DialTokens = "dial-tokens", affects_authorization: true;
    /// Addresses of ranges that are assigned to clusters.
    Addresses = "addresses", affects_authorization: false;
}

/// A record of a table, serialized as JSON.
pub(super) trait StoredRecord: Serialize + DeserializeOwned {
    const TABLE: StoreTable;
}

/// A record that was written, or removed.
pub(super) struct RecordChange {
    pub(super) table: StoreTable,
    pub(super) key: String,
    pub(super) record: Option<Vec<u8>>,
}

/// The open database file. Its functions block.
#[derive(Debug)]
pub(super) struct RecordStore {
    database: Database,
    path: PathBuf,
}

/// The bytes of a database in memory. Clones share them.
#[derive(Debug, Clone, Default)]
struct SharedMemory(Arc<InMemoryBackend>);

/// Changes that are made together or not at all.
pub(super) struct Transaction<'s> {
    store: &'s RecordStore,
    inner: WriteTransaction,
    changes: Vec<RecordChange>,
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
    /// The server is stopping now.
    #[error("the server is stopping")]
    Stopping,
}

impl RecordStore {
    /// Opens the store in `state_dir`, and creates it if there is none.
    pub(super) fn open(state_dir: &StateDir) -> Result<Self, StoreError> {
        let path = state_dir.path().join(FILE);
        let io = |source| StoreError::Io { path: path.clone(), source };
        if !path.try_exists().map_err(io)? {
            create(state_dir.path(), &path)?;
        }
        // The engine would turn an empty file into an empty store.
        if fs::metadata(&path).map_err(io)?.len() == 0 {
            return Err(damaged(&path, "it is empty"));
        }
        let database = builder().open(&path).map_err(|error| not_opened(&path, error))?;
        Self::opened(database, path)
    }

    /// Copies the store in the folder `state_dir` into memory, even if another process has it open; an empty
    /// one if there is none. Changes of the copy are lost with it.
    pub(super) fn copy(state_dir: &Path) -> Result<Self, StoreError> {
        Self::copy_at_most(state_dir, BACKUP_BYTES_MAX)
    }

    fn copy_at_most(state_dir: &Path, bytes_max: u64) -> Result<Self, StoreError> {
        let path = state_dir.join(FILE);
        let io = |source| StoreError::Io { path: path.clone(), source };
        let memory = InMemoryBackend::new();
        let is_there = path.try_exists().map_err(io)?;
        if is_there {
            check_size(&path, bytes_max)?;
            let bytes = fs::read(&path).map_err(io)?;
            memory.set_len(bytes.len() as u64).and_then(|()| memory.write(0, &bytes)).map_err(io)?;
        }
        let database = builder().create_with_backend(memory).map_err(|error| not_opened(&path, error))?;
        let store = Self { database, path };
        if !is_there {
            store.write_schema()?;
        }
        Self::opened(store.database, store.path)
    }

    fn opened(database: Database, path: PathBuf) -> Result<Self, StoreError> {
        let store = Self { database, path };
        store.check_schema()?;
        store.make_tables()?;
        Ok(store)
    }

    fn write_schema(&self) -> Result<(), StoreError> {
        let first = self.failing(self.database.begin_write())?;
        self.failing(self.failing(first.open_table(SCHEMA_TABLE))?.insert(SCHEMA_KEY, SCHEMA))?;
        self.failing(first.commit())
    }

    fn check_schema(&self) -> Result<(), StoreError> {
        let read = self.failing(self.database.begin_read())?;
        let schema = self.failing(read.open_table(SCHEMA_TABLE))?;
        match self.failing(schema.get(SCHEMA_KEY))?.map(|found| found.value()) {
            Some(found) if found > SCHEMA => Err(StoreError::Newer { path: self.path.clone(), found }),
            Some(_) => Ok(()),
            None => Err(damaged(&self.path, "it has no schema")),
        }
    }

    fn make_tables(&self) -> Result<(), StoreError> {
        let write = self.failing(self.database.begin_write())?;
        for &table in StoreTable::ALL {
            self.failing(write.open_table(table.definition()))?;
        }
        self.failing(write.commit())
    }

    /// All records of all tables, as if each had just been written.
    pub(super) fn load(&self) -> Result<Vec<RecordChange>, StoreError> {
        let read = self.failing(self.database.begin_read())?;
        let mut found = Vec::new();
        for &table in StoreTable::ALL {
            let rows = self.failing(read.open_table(table.definition()))?;
            for row in self.failing(rows.iter())? {
                let (key, record) = self.failing(row)?;
                let (key, record) = (key.value().to_owned(), Some(record.value().to_owned()));
                found.push(RecordChange { table, key, record });
            }
        }
        Ok(found)
    }

    /// The bytes of a file with the records of this moment, which [`RecordStore::open`] reads.
    pub(super) fn snapshot(&self) -> Result<Vec<u8>, StoreError> {
        check_size(&self.path, BACKUP_BYTES_MAX)?;
        // A read transaction sees one moment, and delays no writer.
        let read = self.failing(self.database.begin_read())?;
        let memory = SharedMemory::default();
        let database =
            builder().create_with_backend(memory.clone()).map_err(|error| not_opened(&self.path, error))?;
        let copy = Self { database, path: self.path.clone() };
        copy.write_schema()?;
        let write = copy.failing(copy.database.begin_write())?;
        // Every table of the file: a newer server may have made some that this one does not know.
        for table in self.failing(read.list_tables())?.filter(|table| table.name() != SCHEMA_TABLE.name()) {
            let definition = TableDefinition::<&str, &[u8]>::new(table.name());
            let rows = self.failing(read.open_table(definition))?;
            let mut copied = copy.failing(write.open_table(definition))?;
            for row in self.failing(rows.iter())? {
                let (key, record) = self.failing(row)?;
                copy.failing(copied.insert(key.value(), record.value()))?;
            }
        }
        copy.failing(write.commit())?;
        copy.database.close().map_err(|error| not_opened(&self.path, error))?;
        memory.bytes().map_err(|source| StoreError::Io { path: self.path.clone(), source })
    }

    /// Makes changes, or none if `act` fails. They are on disk when this returns.
    pub(super) fn update<T, E: From<StoreError>>(
        &self,
        act: impl FnOnce(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<(T, Vec<RecordChange>), E> {
        let inner = self.failing(self.database.begin_write())?;
        let mut transaction = Transaction { store: self, inner, changes: Vec::new() };
        let done = act(&mut transaction)?;
        let Transaction { inner, changes, .. } = transaction;
        if !changes.is_empty() {
            self.failing(inner.commit())?;
        }
        Ok((done, changes))
    }

    /// Reads one record by its key.
    pub(super) fn get<R: StoredRecord>(&self, key: &str) -> Result<Option<R>, StoreError> {
        let read = self.failing(self.database.begin_read())?;
        let rows = self.failing(read.open_table(R::TABLE.definition()))?;
        let found = self.failing(rows.get(key))?;
        found.map(|record| self.parse(key, record.value())).transpose()
    }

    /// The records whose keys begin with `prefix`, in the order of their keys.
    pub(super) fn list<R: StoredRecord>(&self, prefix: &str) -> Result<Vec<(String, R)>, StoreError> {
        let read = self.failing(self.database.begin_read())?;
        let rows = self.failing(read.open_table(R::TABLE.definition()))?;
        self.rows(&rows, prefix)
    }

    fn rows<R: StoredRecord>(
        &self,
        rows: &impl ReadableTable<&'static str, &'static [u8]>,
        prefix: &str,
    ) -> Result<Vec<(String, R)>, StoreError> {
        let mut found = Vec::new();
        for row in self.failing(rows.range(prefix..))? {
            let (key, record) = self.failing(row)?;
            if !key.value().starts_with(prefix) {
                break;
            }
            found.push((key.value().to_owned(), self.parse(key.value(), record.value())?));
        }
        Ok(found)
    }

    /// Parses the bytes of a record.
    pub(super) fn parse<R: StoredRecord>(&self, key: &str, bytes: &[u8]) -> Result<R, StoreError> {
        serde_json::from_slice(bytes).map_err(|error| self.damaged_at(R::TABLE, key, error))
    }

    /// The error for a record that is not in our form.
    pub(super) fn damaged_at(
        &self,
        table: StoreTable,
        key: &str,
        reason: impl std::fmt::Display,
    ) -> StoreError {
        damaged(&self.path, format!("{table:?} {key:?}: {reason}"))
    }

    fn failing<T>(&self, result: Result<T, impl Into<redb::Error>>) -> Result<T, StoreError> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "redb::Error is foreign and non-exhaustive")]
        result.map_err(|error| match error.into() {
            redb::Error::Io(source) => StoreError::Io { path: self.path.clone(), source },
            error => damaged(&self.path, error),
        })
    }
}

impl Transaction<'_> {
    pub(super) fn get<R: StoredRecord>(&self, key: &str) -> Result<Option<R>, StoreError> {
        let rows = self.store.failing(self.inner.open_table(R::TABLE.definition()))?;
        let found = self.store.failing(rows.get(key))?;
        found.map(|record| self.store.parse(key, record.value())).transpose()
    }

    pub(super) fn put<R: StoredRecord>(&mut self, key: &str, record: &R) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(record)
            .map_err(|error| StoreError::Io { path: self.store.path.clone(), source: error.into() })?;
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(StoreError::TooLarge(bytes.len()));
        }
        let mut rows = self.store.failing(self.inner.open_table(R::TABLE.definition()))?;
        self.store.failing(rows.insert(key, bytes.as_slice()))?;
        drop(rows);
        self.changes.push(RecordChange { table: R::TABLE, key: key.to_owned(), record: Some(bytes) });
        Ok(())
    }

    /// Removes a record. Returns whether there was one.
    pub(super) fn remove<R: StoredRecord>(&mut self, key: &str) -> Result<bool, StoreError> {
        let mut rows = self.store.failing(self.inner.open_table(R::TABLE.definition()))?;
        let was_there = self.store.failing(rows.remove(key))?.is_some();
        drop(rows);
        if was_there {
            self.changes.push(RecordChange { table: R::TABLE, key: key.to_owned(), record: None });
        }
        Ok(was_there)
    }

    /// The error for a record that is not in our form.
    pub(super) fn damaged_at(&self, table: StoreTable, key: &str, reason: &str) -> StoreError {
        self.store.damaged_at(table, key, reason)
    }

    /// The records whose keys begin with `prefix`, in the order of their keys.
    pub(super) fn list<R: StoredRecord>(&self, prefix: &str) -> Result<Vec<(String, R)>, StoreError> {
        let rows = self.store.failing(self.inner.open_table(R::TABLE.definition()))?;
        self.store.rows(&rows, prefix)
    }
}

impl SharedMemory {
    /// All bytes, from the first on.
    fn bytes(&self) -> io::Result<Vec<u8>> {
        let length = usize::try_from(self.0.len()?).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        self.0.read(0, &mut bytes)?;
        Ok(bytes)
    }
}

impl StorageBackend for SharedMemory {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::could_not_go_on(error)
    }
}

/// Creates an empty store under another name and then renames it: after a crash there is all of it or
/// nothing.
fn create(directory: &Path, path: &Path) -> Result<(), StoreError> {
    let io = |source| StoreError::Io { path: path.to_owned(), source };
    let new = directory.join(FILE_NEW);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
        Ok(()) | Err(_) => {}
    }
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(&new).map_err(io)?;
    let backend = FileBackend::new(file).map_err(|error| not_opened(path, error))?;
    let database =
        Database::builder().create_with_backend(backend).map_err(|error| not_opened(path, error))?;
    let store = RecordStore { database, path: path.to_owned() };
    store.write_schema()?;
    store.database.close().map_err(|error| not_opened(path, error))?;
    fs::rename(&new, path).map_err(io)?;
    fs::File::open(directory).and_then(|directory| directory.sync_all()).map_err(io)
}

/// Refuses a file that is too large for a copy of it in memory.
fn check_size(path: &Path, bytes_max: u64) -> Result<(), StoreError> {
    let io = |source| StoreError::Io { path: path.to_owned(), source };
    let bytes_count = fs::metadata(path).map_err(io)?.len();
    if bytes_count > bytes_max {
        return Err(io(io::Error::other(format!(
            "it has {bytes_count} bytes, and a copy may have {bytes_max}"
        ))));
    }
    Ok(())
}

fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES_MAX).set_check_integrity_on_open(true);
    builder
}

#[expect(clippy::wildcard_enum_match_arm, reason = "DatabaseError is foreign and non-exhaustive")]
fn not_opened(path: &Path, error: DatabaseError) -> StoreError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => StoreError::InUse(path.to_owned()),
        DatabaseError::Storage(StorageError::Io(source)) if source.kind() != io::ErrorKind::InvalidData => {
            StoreError::Io { path: path.to_owned(), source }
        }
        error => damaged(path, error),
    }
}

fn damaged(path: &Path, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::Damaged { path: path.to_owned(), source: source.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_store_that_is_copied_is_limited() {
        let state = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(&state.path().join("state")).unwrap();
        let _held = RecordStore::open(&state_dir).unwrap();
        let length = fs::metadata(state_dir.path().join(FILE)).unwrap().len();

        let copy = |bytes_max| RecordStore::copy_at_most(state_dir.path(), bytes_max);

        assert!(copy(length).is_ok());
        assert!(matches!(copy(length - 1), Err(StoreError::Io { .. })));
    }
}
