//! The directory for a daemon's keys and state, closed to other users.

use std::{
    error::Error,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use tracing::warn;

use crate::bounded_file::read_bounded;
use crate::error_chain::error_chain;
use crate::exit_code::Failure;
use crate::state_file::StateFile;

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Added to the name of a damaged file whose place a new one takes.
const BAD_SUFFIX: &str = ".bad";

/// A directory of mode 0700. Only one process may use it; clones may write at the same time. The calls block:
/// make them at start, or on a blocking thread.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: Arc<Path>,
    /// Locked while a file is replaced, because two writers of one name would share its temporary file.
    writing: Arc<Mutex<()>>,
}

/// The lock of a state directory, held until this is dropped.
#[derive(Debug)]
#[must_use = "the directory is free again when this is dropped"]
pub struct StateLock(#[expect(dead_code, reason = "the open file holds the lock")] File);

/// The reason why state could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Other users may enter the directory.
    #[error("others may enter {shown} (mode {mode:03o}), run: chmod 700 {shown}", shown = path.display())]
    TooPermissive {
        /// The path of the directory.
        path: PathBuf,
        /// The permission bits of the directory.
        mode: u32,
    },
    /// The path is not a directory.
    #[error("{} is not a directory, name another one with --state-dir", .0.display())]
    NotADirectory(PathBuf),
    /// Another process holds the lock.
    #[error("{} is in use by another process: give each daemon a state directory of its own", .0.display())]
    InUse(PathBuf),
    /// A file was changed by somebody else, or by the disk.
    #[error("{} is damaged, and without it {}: {}", path.display(), file.cost(), file.remedy())]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The kind of the file, which has the cost of its loss and a remedy.
        file: StateFile,
        /// The error of its reader.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A file is missing although something beside it shows that it was there.
    #[error("{} is missing, and without it {}: {}", path.display(), file.cost(), file.remedy())]
    Missing {
        /// The path of the file.
        path: PathBuf,
        /// The file that is missing.
        file: StateFile,
    },
    /// The operating system refused an operation on the directory.
    #[error("cannot create {}", path.display())]
    NotCreated {
        /// The path of the directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The operating system refused an operation on a file.
    #[error("cannot {act} {}, and without it {}", path.display(), file.cost())]
    Io {
        /// The operation: `read`, `write` or `rename`.
        act: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The kind of the file, which has the cost of its loss.
        file: StateFile,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl StateDir {
    /// Opens the directory at `path`, or creates it with mode 0700.
    ///
    /// # Errors
    ///
    /// It cannot be created, is not a directory, or other users may enter it.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let failed = |source| StateError::NotCreated { path: path.to_owned(), source };
        if let Some(parent) = path.parent() {
            // Parents get the usual mode, because other daemons may use them too.
            fs::create_dir_all(parent).map_err(failed)?;
        }
        match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        let found = fs::metadata(path).map_err(failed)?;
        if !found.is_dir() {
            return Err(StateError::NotADirectory(path.to_owned()));
        }
        let mode = found.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(StateError::TooPermissive { path: path.to_owned(), mode });
        }
        Ok(Self { path: path.into(), writing: Arc::default() })
    }

    /// Takes the directory for this process alone, until the lock is dropped or the process ends.
    ///
    /// # Errors
    ///
    /// [`StateError::InUse`], or it cannot be locked.
    pub fn lock(&self) -> Result<StateLock, StateError> {
        let failed = |source| StateError::NotCreated { path: self.path.to_path_buf(), source };
        let directory = File::open(&self.path).map_err(failed)?;
        match directory.try_lock() {
            Ok(()) => Ok(StateLock(directory)),
            Err(TryLockError::WouldBlock) => Err(StateError::InUse(self.path.to_path_buf())),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in the directory.
    #[must_use]
    pub fn path_of(&self, file: StateFile) -> PathBuf {
        self.path.join(file.name())
    }

    /// Replaces the file by `bytes` with mode 0600. After a crash at any moment the file holds either all of
    /// the old bytes or all of the new ones.
    ///
    /// # Errors
    ///
    /// The system refused; the old file is then untouched.
    pub fn write(&self, file: StateFile, bytes: &[u8]) -> Result<(), StateError> {
        let path = self.path_of(file);
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        replace(&self.path, &path, &self.path.join(format!(".{}.new", file.name())), bytes)
            .map_err(|source| StateError::Io { act: "write", path, file, source })
    }

    /// Reads a file of at most `bytes_max` by `parse`; `None` if there is no such file. For files whose loss
    /// matters: a damaged one is an error.
    ///
    /// # Errors
    ///
    /// The file is larger, `parse` refuses it, or the system refused.
    pub fn read<T, E: Into<Box<dyn Error + Send + Sync>>>(
        &self,
        file: StateFile,
        bytes_max: u64,
        parse: impl FnOnce(&[u8]) -> Result<T, E>,
    ) -> Result<Option<T>, StateError> {
        let path = self.path_of(file);
        let source: Box<dyn Error + Send + Sync> = match read_bounded(&path, bytes_max) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(StateError::Io { act: "read", path, file, source }),
            Ok(None) => format!("it is larger than {bytes_max} bytes").into(),
            Ok(Some(bytes)) => match parse(&bytes) {
                Ok(parsed) => return Ok(Some(parsed)),
                Err(error) => error.into(),
            },
        };
        Err(StateError::Damaged { path, file, source })
    }

    /// Reads a file as [`Self::read`] does, for files whose loss costs little: a damaged one is kept beside
    /// under another name, with a warning, and counts as missing.
    ///
    /// # Errors
    ///
    /// The system refused to read or to rename the file.
    pub fn read_or_replace<T, E: Into<Box<dyn Error + Send + Sync>>>(
        &self,
        file: StateFile,
        bytes_max: u64,
        parse: impl FnOnce(&[u8]) -> Result<T, E>,
    ) -> Result<Option<T>, StateError> {
        match self.read(file, bytes_max, parse) {
            Err(StateError::Damaged { path, file, source }) => {
                let bad = self.path.join(format!("{}{BAD_SUFFIX}", file.name()));
                fs::rename(&path, &bad).map_err(|source| StateError::Io {
                    act: "rename",
                    path: path.clone(),
                    file,
                    source,
                })?;
                let (cost, remedy) = (file.cost(), file.remedy());
                warn!(
                    path = %path.display(), kept_as = %bad.display(), reason = %error_chain(&*source), cost, remedy,
                    "a state file is damaged and is kept under another name"
                );
                Ok(None)
            }
            read => read,
        }
    }
}

fn replace(directory: &Path, path: &Path, temporary: &Path, bytes: &[u8]) -> io::Result<()> {
    // A file that a crash left may have another mode.
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(temporary)?;
    file.write_all(bytes)?;
    // Sync the content before the rename, and the rename before returning: else a power loss may leave an empty file.
    file.sync_all()?;
    fs::rename(temporary, path)?;
    File::open(directory)?.sync_all()
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        match error {
            StateError::TooPermissive { .. } | StateError::NotADirectory(_) | StateError::InUse(_) => {
                Self::misconfigured(error)
            }
            StateError::Damaged { .. }
            | StateError::Missing { .. }
            | StateError::NotCreated { .. }
            | StateError::Io { .. } => Self::could_not_go_on(error),
        }
    }
}

#[cfg(test)]
mod tests;
