//! The settings of a log, and the errors of opening one.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::checkpoint::CHECKPOINTS_FILE;
use crate::files;
use crate::verify::Fault;

/// The subdirectory with the state of a log on standard output.
const STDOUT_DIRECTORY: &str = "stdout";

/// The interval at which lines are synced to the disk with [`Sync::Interval`].
pub const SYNC_EVERY: Duration = Duration::from_secs(1);

/// The settings of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The id of the server whose log this is.
    pub server: String,
    /// The directory of its files, created with mode 0700 if it is missing. Only one process may use a
    /// directory.
    pub directory: PathBuf,
    /// The destination of the lines.
    pub target: Target,
    /// The moment at which a line counts as written.
    pub sync: Sync,
}

impl Settings {
    /// The directory with the log's files and checkpoints. It differs from `directory` for a log on standard
    /// output.
    pub(crate) fn log_directory(&self) -> PathBuf {
        match self.target {
            Target::Files { .. } => self.directory.clone(),
            Target::Stdout => self.directory.join(STDOUT_DIRECTORY),
        }
    }

    /// Returns true if an earlier run has written lines or checkpoints, which only its keys verify.
    ///
    /// # Errors
    /// The directory is there and cannot be read.
    pub fn has_log(&self) -> Result<bool, OpenError> {
        let directory = self.log_directory();
        let unless_missing = |error: io::Error| {
            if error.kind() == io::ErrorKind::NotFound {
                return Ok(false);
            }
            Err(OpenError::Io { act: "read", path: directory.clone(), source: error })
        };
        let has_checkpoints = match fs::metadata(directory.join(CHECKPOINTS_FILE)) {
            Ok(found) => found.len() > 0,
            Err(error) => unless_missing(error)?,
        };
        let has_lines = match files::firsts(&directory) {
            Ok(firsts) => !firsts.is_empty(),
            Err(error) => unless_missing(error)?,
        };
        Ok(has_checkpoints || has_lines)
    }
}

/// The destination of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Lines go to files in the directory.
    Files {
        /// The size at which the log rotates to a new file; [`FILE_BYTES_MIN`](crate::FILE_BYTES_MIN) to
        /// [`FILE_BYTES_MAX`](crate::FILE_BYTES_MAX).
        bytes_max: u64,
        /// The number of files that are kept, [`FILES_MIN`](crate::FILES_MIN) to
        /// [`FILES_MAX`](crate::FILES_MAX).
        kept: usize,
    },
    /// Lines go to standard output. The directory holds the checkpoints and the chain's head.
    Stdout,
}

/// The moment at which a line counts as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// A line counts once the disk has it.
    Always,
    /// A line counts once the kernel has it. The disk has it within [`SYNC_EVERY`]; a power loss may lose that much.
    Interval,
}

/// The reason why a log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The operating system refused an operation.
    #[error("cannot {act} {}", path.display())]
    Io {
        /// The operation that was tried.
        act: &'static str,
        /// The path of the operation.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another process holds the directory's lock.
    #[error("another process keeps its audit log in {}: give each server a directory of its own", .0.display())]
    Taken(PathBuf),
    /// The files fail verification: somebody changed them.
    #[error(
        "the audit log in {} is not as it was written: look at it with `tombolo audit verify`, keep a copy, and move it away \
         to begin a new one",
        directory.display()
    )]
    Changed {
        /// The directory of the log.
        directory: PathBuf,
        /// The first fault that verification found.
        source: Box<Fault>,
    },
}
