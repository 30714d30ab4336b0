//! The engine of one server: a file on disk, whose transactions survive a crash. No other file uses the database
//! library.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use daemon::{StateDir, StateFile};
use etcd::Revision;
use proto::admin::BACKUP_BYTES_MAX;
use redb::backends::{FileBackend, InMemoryBackend};
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase as _, ReadableTable, ReadableTableMetadata as _,
    StorageBackend, StorageError, TableDefinition, TableHandle as _, WriteTransaction,
};
use tokio::sync::watch;

use super::engine::{Commit, Engine, Follower, View};
use super::{RecordChange, RecordDamage, SCHEMA, StoreError, StoreTable};

/// The file in the state directory.
const FILE: &str = StateFile::Directory.name();

/// The name of a new file until it is complete, so that a partial file is never taken for an empty one.
const FILE_NEW: &str = ".directory.redb.new";

/// Access mode of the file.
const FILE_MODE: u32 = 0o600;

/// Memory for cached parts of the file: the records of 10,000 clusters, with reserve.
const CACHE_BYTES_MAX: usize = 16 * 1024 * 1024;

const SCHEMA_TABLE: TableDefinition<'static, &str, u64> = TableDefinition::new("schema");
const SCHEMA_KEY: &str = "version";

/// The open database file of one server.
#[derive(Debug)]
pub(super) struct EmbeddedEngine {
    database: Database,
    path: PathBuf,
    follower: OnceLock<Arc<dyn Follower>>,
    /// Locked from the begin of a transaction until its follower has its changes, so that both have all changes in
    /// one order. Only blocking threads take it.
    order: Mutex<()>,
}

/// The bytes of a database in memory. Clones share them.
#[derive(Debug, Clone, Default)]
struct SharedMemory(Arc<InMemoryBackend>);

/// A transaction. No other one runs meanwhile, so it never conflicts.
struct EmbeddedView<'e> {
    engine: &'e EmbeddedEngine,
    inner: WriteTransaction,
    _order: MutexGuard<'e, ()>,
}

impl EmbeddedEngine {
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
        Self::new(database, path).checked()
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
        let engine = Self::new(database, path);
        if !is_there {
            engine.write_schema()?;
        }
        engine.checked()
    }

    fn new(database: Database, path: PathBuf) -> Self {
        Self { database, path, follower: OnceLock::new(), order: Mutex::default() }
    }

    fn checked(self) -> Result<Self, StoreError> {
        self.check_schema()?;
        self.make_tables()?;
        Ok(self)
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
            self.failing(write.open_table(definition(table)))?;
        }
        self.failing(write.commit())
    }

    /// All records of all tables, as if each had just been written.
    fn load(&self) -> Result<Vec<RecordChange>, StoreError> {
        let read = self.failing(self.database.begin_read())?;
        let mut found = Vec::new();
        for &table in StoreTable::ALL {
            let rows = self.failing(read.open_table(definition(table)))?;
            for (key, record) in self.rows(&rows, "")? {
                found.push(RecordChange { table, key, record: Some(record) });
            }
        }
        Ok(found)
    }

    fn rows(
        &self,
        rows: &impl ReadableTable<&'static str, &'static [u8]>,
        prefix: &str,
    ) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let mut found = Vec::new();
        for row in self.failing(rows.range(prefix..))? {
            let (key, record) = self.failing(row)?;
            if !key.value().starts_with(prefix) {
                break;
            }
            found.push((key.value().to_owned(), record.value().to_owned()));
        }
        Ok(found)
    }

    fn failing<T>(&self, result: Result<T, impl Into<redb::Error>>) -> Result<T, StoreError> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "redb::Error is foreign and non-exhaustive")]
        result.map_err(|error| match error.into() {
            redb::Error::Io(source) => StoreError::Io { path: self.path.clone(), source },
            error => damaged(&self.path, error),
        })
    }
}

/// The number of rows, which is limited far below the largest number of any machine.
fn as_usize(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

impl Engine for EmbeddedEngine {
    fn follow(&self, follower: Arc<dyn Follower>) -> Result<(), StoreError> {
        let _order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        follower.apply(&self.load()?).map_err(|damage| self.damaged(damage))?;
        // A second one would be a fault of the program: the first one stays.
        let _ = self.follower.set(follower);
        Ok(())
    }

    fn begin(&self) -> Result<Box<dyn View + '_>, StoreError> {
        let order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = self.failing(self.database.begin_write())?;
        Ok(Box::new(EmbeddedView { engine: self, inner, _order: order }))
    }

    fn get(&self, table: StoreTable, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let read = self.failing(self.database.begin_read())?;
        let rows = self.failing(read.open_table(definition(table)))?;
        Ok(self.failing(rows.get(key))?.map(|record| record.value().to_owned()))
    }

    fn list(&self, table: StoreTable, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let read = self.failing(self.database.begin_read())?;
        let rows = self.failing(read.open_table(definition(table)))?;
        self.rows(&rows, prefix)
    }

    fn count(&self, table: StoreTable) -> Result<usize, StoreError> {
        let read = self.failing(self.database.begin_read())?;
        let rows = self.failing(read.open_table(definition(table)))?;
        self.failing(rows.len()).map(as_usize)
    }

    fn snapshot(&self) -> Result<Vec<u8>, StoreError> {
        check_size(&self.path, BACKUP_BYTES_MAX)?;
        // A read transaction sees one moment, and delays no writer.
        let read = self.failing(self.database.begin_read())?;
        let memory = SharedMemory::default();
        let database =
            builder().create_with_backend(memory.clone()).map_err(|error| not_opened(&self.path, error))?;
        let copy = Self::new(database, self.path.clone());
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

    fn newest(&self) -> Result<Option<Revision>, StoreError> {
        Ok(None)
    }

    fn applied(&self) -> Option<watch::Receiver<Option<Revision>>> {
        None
    }

    fn damaged(&self, damage: RecordDamage) -> StoreError {
        damaged(&self.path, damage)
    }
}

impl View for EmbeddedView<'_> {
    fn get(&mut self, table: StoreTable, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let rows = self.engine.failing(self.inner.open_table(definition(table)))?;
        Ok(self.engine.failing(rows.get(key))?.map(|record| record.value().to_owned()))
    }

    fn list(&mut self, table: StoreTable, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let rows = self.engine.failing(self.inner.open_table(definition(table)))?;
        self.engine.rows(&rows, prefix)
    }

    fn count(&mut self, table: StoreTable) -> Result<usize, StoreError> {
        let rows = self.engine.failing(self.inner.open_table(definition(table)))?;
        self.engine.failing(rows.len()).map(as_usize)
    }

    fn commit(
        self: Box<Self>,
        removed: &[(StoreTable, String)],
        changes: &[RecordChange],
    ) -> Result<Commit, StoreError> {
        let Self { engine, inner, _order } = *self;
        for (table, prefix) in removed {
            let mut rows = engine.failing(inner.open_table(definition(*table)))?;
            engine.failing(rows.retain_in(prefix.as_str().., |key, _| !key.starts_with(prefix)))?;
        }
        for RecordChange { table, key, record } in changes {
            let mut rows = engine.failing(inner.open_table(definition(*table)))?;
            match record {
                Some(record) => engine.failing(rows.insert(key.as_str(), record.as_slice()))?,
                None => engine.failing(rows.remove(key.as_str()))?,
            };
        }
        engine.failing(inner.commit())?;
        if let Some(follower) = engine.follower.get() {
            follower.apply(changes).map_err(|damage| engine.damaged(damage))?;
        }
        Ok(Commit::Done(None))
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
    let engine = EmbeddedEngine::new(database, path.to_owned());
    engine.write_schema()?;
    engine.database.close().map_err(|error| not_opened(path, error))?;
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

fn definition(table: StoreTable) -> TableDefinition<'static, &'static str, &'static [u8]> {
    TableDefinition::new(table.name())
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
        let _held = EmbeddedEngine::open(&state_dir).unwrap();
        let length = fs::metadata(state_dir.path().join(FILE)).unwrap().len();

        let copy = |bytes_max| EmbeddedEngine::copy_at_most(state_dir.path(), bytes_max);

        assert!(copy(length).is_ok());
        assert!(matches!(copy(length - 1), Err(StoreError::Io { .. })));
    }
}
