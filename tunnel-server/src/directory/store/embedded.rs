//! The engine of one server: a file on disk, whose transactions survive a crash. No other file uses the database
//! library.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use daemon::{StateDir, StateFile};
use etcd::Revision;
use records::file::{FileError, NewFile, SCHEMA_KEY, SCHEMA_TABLE, builder};
use records::layout::SCHEMA;
use redb::backends::InMemoryBackend;
use redb::{
    Database, DatabaseError, ReadableDatabase as _, ReadableTable, ReadableTableMetadata as _,
    StorageBackend as _, TableDefinition, TableHandle as _, WriteTransaction,
};
use tokio::sync::watch;

use super::engine::{Commit, Engine, Follower, RecordVisitor, View};
use super::{RecordChange, RecordDamage, StoreError, StoreTable};

/// The file in the state directory.
const FILE: &str = StateFile::Directory.name();

/// Most bytes of a store that is copied into memory: 100,000 revocations are 15 MB.
const COPY_BYTES_MAX: u64 = 256 * 1024 * 1024;

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
            NewFile::begin(state_dir.path(), FILE).and_then(NewFile::finish).map_err(file_error)?;
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
        Self::copy_at_most(state_dir, COPY_BYTES_MAX)
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
        follower.apply(&self.load()?, 0).map_err(|damage| self.damaged(damage))?;
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

    fn visit(&self, visitor: &mut RecordVisitor<'_>) -> Result<(), StoreError> {
        // A read transaction sees one moment, and delays no writer.
        let read = self.failing(self.database.begin_read())?;
        // Every table of the file: a newer server may have made some that this one does not know.
        let tables = self.failing(read.list_tables())?.filter(|table| table.name() != SCHEMA_TABLE.name());
        let mut tables: Vec<(String, String)> = tables
            .map(|table| {
                let known = StoreTable::ALL.iter().find(|known| known.name() == table.name());
                let begin = known.map_or_else(|| format!("{}/", table.name()), |known| known.path(""));
                (begin, table.name().to_owned())
            })
            .collect();
        tables.sort();
        for (begin, name) in tables {
            let rows = self.failing(read.open_table(records::file::table(&name)))?;
            for row in self.failing(rows.iter())? {
                let (key, record) = self.failing(row)?;
                visitor(&format!("{begin}{}", key.value()), record.value())?;
            }
        }
        Ok(())
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
            follower.apply(changes, 0).map_err(|damage| engine.damaged(damage))?;
        }
        Ok(Commit::Done(None))
    }
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

fn not_opened(path: &Path, error: DatabaseError) -> StoreError {
    file_error(FileError::not_opened(path, error))
}

fn file_error(error: FileError) -> StoreError {
    match error {
        FileError::InUse(path) => StoreError::InUse(path),
        FileError::Io { path, source } => StoreError::Io { path, source },
        FileError::Damaged { path, source } => StoreError::Damaged { path, source },
    }
}

fn definition(table: StoreTable) -> TableDefinition<'static, &'static str, &'static [u8]> {
    records::file::table(table.name())
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
