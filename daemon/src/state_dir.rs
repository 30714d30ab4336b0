//! The directory in which a daemon keeps its keys, closed to everybody else.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use crate::outcome::Failure;
use crate::whole_file::whole_file;

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// A directory of mode 0700. One process per directory; clones may write at the same time. Its calls block: make
/// them at start, or on a blocking thread.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: Arc<Path>,
    /// Held while a file is replaced, since two writers of one name would share its temporary file.
    writing: Arc<Mutex<()>>,
}

/// Why state could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Others may enter.
    #[error("others may enter {shown} (mode {mode:03o}), run: chmod 700 {shown}", shown = path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is not a directory.
    #[error("{} is not a directory, name another one with --state-dir", .0.display())]
    NotADirectory(PathBuf),
    /// A name that would lead out of the directory. A fault of ours, not of a person.
    #[error("{0:?} is not a file name")]
    NotAName(String),
    /// A file is larger than its reader expects.
    #[error("{} is larger than {bytes_max} bytes, move it away", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most that was expected.
        bytes_max: u64,
    },
    /// The system refused.
    #[error("cannot {act} {}", path.display())]
    Io {
        /// `create`, `read` or `write`.
        act: &'static str,
        /// What it was about.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl StateDir {
    /// The directory at `path`, created with mode 0700 if it is not there.
    ///
    /// # Errors
    ///
    /// It cannot be created, is not a directory, or others may enter it.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let failed = |source| StateError::Io { act: "create", path: path.to_owned(), source };
        if let Some(parent) = path.parent() {
            // Parents get the usual mode: other daemons may live beside us.
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
            return Err(StateError::Open { path: path.to_owned(), mode });
        }
        Ok(Self { path: path.into(), writing: Arc::default() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file `name` by `bytes` with mode 0600. After a crash at any moment the file holds either all of
    /// the old bytes or all of the new.
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

    /// The bytes of the file `name`, at most `bytes_max`; `None` if there is no such file.
    ///
    /// # Errors
    ///
    /// `name` is not a plain file name, the file is larger, or the system refused.
    pub fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, StateError> {
        let path = self.file(name)?;
        match whole_file(&path, bytes_max) {
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
    // What a crash left behind may have another mode.
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(temporary)?;
    file.write_all(bytes)?;
    // Content before name, name before return: else a power loss may leave an empty file under the name.
    file.sync_all()?;
    fs::rename(temporary, path)?;
    File::open(directory)?.sync_all()
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Open { .. } | StateError::NotADirectory(_) => Self::misconfigured(error),
            StateError::NotAName(_) | StateError::TooLarge { .. } | StateError::Io { .. } => {
                Self::could_not_go_on(error)
            }
        }
    }
}

#[cfg(test)]
mod tests;
