//! The directory for a daemon's keys and state, closed to other users.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use crate::bounded_file::read_bounded;
use crate::exit_code::Failure;

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// A directory of mode 0700. Only one process may use it; clones may write at the same time. The calls block:
/// make them at start, or on a blocking thread.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: Arc<Path>,
    /// Locked while a file is replaced, because two writers of one name would share its temporary file.
    writing: Arc<Mutex<()>>,
}

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
    /// The name would lead out of the directory. This is a bug in the caller.
    #[error("{0:?} is not a file name")]
    NotAName(String),
    /// A file is larger than its reader expects.
    #[error("{} is larger than {bytes_max} bytes, move it away", path.display())]
    TooLarge {
        /// The path of the file.
        path: PathBuf,
        /// The largest expected size, in bytes.
        bytes_max: u64,
    },
    /// The operating system refused an operation.
    #[error("cannot {act} {}", path.display())]
    Io {
        /// The operation: `create`, `read` or `write`.
        act: &'static str,
        /// The path of the operation.
        path: PathBuf,
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
        let failed = |source| StateError::Io { act: "create", path: path.to_owned(), source };
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

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file `name` by `bytes` with mode 0600. After a crash at any moment the file holds either
    /// all of the old bytes or all of the new ones.
    ///
    /// # Errors
    ///
    /// `name` is not a plain file name, or the system refused; the old file is then untouched.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StateError> {
        let path = self.file(name)?;
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        replace(&self.path, &path, &self.path.join(format!(".{name}.new")), bytes)
            .map_err(|source| StateError::Io { act: "write", path, source })
    }

    /// Reads the file `name`, at most `bytes_max`; `None` if there is no such file.
    ///
    /// # Errors
    ///
    /// `name` is not a plain file name, the file is larger, or the system refused.
    pub fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, StateError> {
        let path = self.file(name)?;
        match read_bounded(&path, bytes_max) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StateError::Io { act: "read", path, source }),
            Ok(None) => Err(StateError::TooLarge { path, bytes_max }),
            Ok(bytes) => Ok(bytes),
        }
    }

    fn file(&self, name: &str) -> Result<PathBuf, StateError> {
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
            return Err(StateError::NotAName(name.to_owned()));
        }
        Ok(self.path.join(name))
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
            StateError::TooPermissive { .. } | StateError::NotADirectory(_) => Self::misconfigured(error),
            StateError::NotAName(_) | StateError::TooLarge { .. } | StateError::Io { .. } => {
                Self::could_not_go_on(error)
            }
        }
    }
}

#[cfg(test)]
mod tests;
