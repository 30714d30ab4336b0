//! The file of one server's records: its tables, and how a new one is made.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase as _, ReadableTableMetadata as _, StorageError,
    TableDefinition, TableHandle as _, WriteTransaction,
};

use crate::layout::{Place, SCHEMA};

/// The first bytes of every such file, by which it is known.
pub const MAGIC: &[u8] = b"redb\x1a\x0a\xa9\x0d\x0a";

/// The table with the version of the records' form.
pub const SCHEMA_TABLE: TableDefinition<'static, &str, u64> = TableDefinition::new("schema");

/// The key of the version in that table.
pub const SCHEMA_KEY: &str = "version";

/// Access mode of the file.
const MODE: u32 = 0o600;

/// Memory for cached parts of a file: the records of 10,000 clusters, with reserve.
pub const CACHE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A file that is being made. It gets its name when it is complete, so after a crash there is all of it or nothing.
pub struct NewFile {
    database: Database,
    write: WriteTransaction,
    directory: PathBuf,
    temporary: PathBuf,
    path: PathBuf,
}

/// A file that is there. No server can open it meanwhile.
pub struct ExistingFile {
    database: Database,
    path: PathBuf,
}

/// The reason why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Another process has it open.
    #[error("{} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The system refused an operation.
    #[error("cannot use {}", path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is not in the form of its database.
    #[error("{} is damaged", path.display())]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The damage that was found.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The definition of the table of this name.
#[must_use]
pub fn table(name: &str) -> TableDefinition<'_, &'static str, &'static [u8]> {
    TableDefinition::new(name)
}

/// The settings with which a file is opened: each of its pages is verified.
#[must_use]
pub fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES_MAX).set_check_integrity_on_open(true);
    builder
}

impl NewFile {
    /// Begins a file without records, which will have this name in `directory`. Blocks, as all others here.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn begin(directory: &Path, name: &str) -> Result<Self, FileError> {
        let (path, temporary) = (directory.join(name), directory.join(format!(".{name}.new")));
        let io = |source| FileError::Io { path: path.clone(), source };
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io(error)),
            Ok(()) | Err(_) => {}
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(MODE).open(&temporary).map_err(io)?;
        let database = FileBackend::new(file)
            .and_then(|backend| builder().create_with_backend(backend))
            .map_err(|error| FileError::not_opened(&path, error))?;
        let write = database.begin_write().map_err(|error| FileError::new(&path, error))?;
        let new = Self { database, write, directory: directory.to_owned(), temporary, path };
        new.put_schema()?;
        Ok(new)
    }

    fn put_schema(&self) -> Result<(), FileError> {
        let mut table = self.write.open_table(SCHEMA_TABLE).map_err(|error| self.failed(error))?;
        table.insert(SCHEMA_KEY, SCHEMA).map_err(|error| self.failed(error))?;
        Ok(())
    }

    /// Adds a record to its table.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn put(&mut self, place: &Place<'_>, record: &[u8]) -> Result<(), FileError> {
        let mut rows = self.write.open_table(table(place.table)).map_err(|error| self.failed(error))?;
        rows.insert(place.key, record).map_err(|error| self.failed(error))?;
        Ok(())
    }

    /// Completes the file, and gives it its name. A file of this name is replaced.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn finish(self) -> Result<(), FileError> {
        let Self { database, write, directory, temporary, path } = self;
        write.commit().map_err(|error| FileError::new(&path, error))?;
        database.close().map_err(|error| FileError::not_opened(&path, error))?;
        fs::rename(&temporary, &path)
            .and_then(|()| File::open(directory)?.sync_all())
            .map_err(|source| FileError::Io { path, source })
    }

    fn failed(&self, error: impl Into<redb::Error>) -> FileError {
        FileError::new(&self.path, error)
    }
}

impl ExistingFile {
    /// Opens the file of this name in `directory`; `None` if there is none.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn open(directory: &Path, name: &str) -> Result<Option<Self>, FileError> {
        let path = directory.join(name);
        match path.try_exists() {
            Ok(false) => Ok(None),
            Ok(true) => match builder().open(&path) {
                Ok(database) => Ok(Some(Self { database, path })),
                Err(error) => Err(FileError::not_opened(&path, error)),
            },
            Err(source) => Err(FileError::Io { path, source }),
        }
    }

    /// The number of records in all tables.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn count(&self) -> Result<u64, FileError> {
        let read = self.database.begin_read().map_err(|error| FileError::new(&self.path, error))?;
        let tables = read.list_tables().map_err(|error| FileError::new(&self.path, error))?;
        let mut count = 0;
        for found in tables.filter(|found| found.name() != SCHEMA_TABLE.name()) {
            let rows = read.open_untyped_table(found).map_err(|error| FileError::new(&self.path, error))?;
            count += rows.len().map_err(|error| FileError::new(&self.path, error))?;
        }
        Ok(count)
    }
}

impl FileError {
    fn new(path: &Path, error: impl Into<redb::Error>) -> Self {
        let path = path.to_owned();
        #[expect(clippy::wildcard_enum_match_arm, reason = "redb::Error is foreign and non-exhaustive")]
        match error.into() {
            redb::Error::Io(source) => Self::Io { path, source },
            error => Self::Damaged { path, source: error.into() },
        }
    }

    /// The error for a database that cannot be opened or closed.
    #[must_use]
    #[expect(clippy::wildcard_enum_match_arm, reason = "DatabaseError is foreign and non-exhaustive")]
    pub fn not_opened(path: &Path, error: DatabaseError) -> Self {
        let path = path.to_owned();
        match error {
            DatabaseError::DatabaseAlreadyOpen => Self::InUse(path),
            DatabaseError::Storage(StorageError::Io(source)) if source.kind() != ErrorKind::InvalidData => {
                Self::Io { path, source }
            }
            error => Self::Damaged { path, source: error.into() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "directory.redb";

    fn place(path: &str) -> Place<'_> {
        Place::parse(path).unwrap()
    }

    #[test]
    fn a_file_has_its_name_once_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let mut new = NewFile::begin(folder.path(), NAME).unwrap();
        new.put(&place("w/clusters/edge-a"), b"{}").unwrap();
        new.put(&place("w/seen/edge-a"), b"1").unwrap();
        assert!(ExistingFile::open(folder.path(), NAME).unwrap().is_none());

        new.finish().unwrap();

        let found = ExistingFile::open(folder.path(), NAME).unwrap().expect("it is there");
        assert_eq!(found.count().unwrap(), 2);
        assert!(fs::read(folder.path().join(NAME)).unwrap().starts_with(MAGIC));
        assert!(matches!(ExistingFile::open(folder.path(), NAME), Err(FileError::InUse(_))));
    }

    /// As after a crash: the rest of it is no hindrance.
    #[test]
    fn a_file_that_was_not_finished_leaves_the_one_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        NewFile::begin(folder.path(), NAME).unwrap().finish().unwrap();
        let mut new = NewFile::begin(folder.path(), NAME).unwrap();
        new.put(&place("w/seen/edge-a"), b"1").unwrap();
        drop(new);
        let count =
            || ExistingFile::open(folder.path(), NAME).unwrap().expect("it is there").count().unwrap();
        assert_eq!(count(), 0);

        let mut new = NewFile::begin(folder.path(), NAME).unwrap();
        new.put(&place("w/seen/edge-a"), b"1").unwrap();
        new.finish().unwrap();
        assert_eq!(count(), 1);
    }

    #[test]
    fn a_file_of_another_kind_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(NAME), b"no database").unwrap();

        assert!(matches!(ExistingFile::open(folder.path(), NAME), Err(FileError::Damaged { .. })));
    }
}
