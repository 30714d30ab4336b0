//! How a log is kept, and why it cannot be.

use std::path::PathBuf;
use std::time::Duration;

use crate::verify::Fault;

/// How often lines are brought to the disk with [`Sync::Interval`].
pub const SYNC_EVERY: Duration = Duration::from_secs(1);

/// How a log is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Which server's log this is.
    pub server: String,
    /// Where its files are, made with mode 0700 if need be. One process for a directory.
    pub directory: PathBuf,
    /// Where lines go.
    pub target: Target,
    /// When a line counts as written.
    pub sync: Sync,
}

/// Where lines go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// To files in the directory.
    Files {
        /// A file that has become so large is the last no more; [`FILE_BYTES_MIN`](crate::FILE_BYTES_MIN) to
        /// [`FILE_BYTES_MAX`](crate::FILE_BYTES_MAX).
        bytes_max: u64,
        /// How many files stay; [`FILES_MIN`](crate::FILES_MIN) to [`FILES_MAX`](crate::FILES_MAX).
        kept: usize,
    },
    /// To standard output. The directory holds the checkpoints and where the chain is.
    Stdout,
}

/// When a line counts as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Once the disk has it.
    Always,
    /// Once the system has it; the disk has it within [`SYNC_EVERY`], so that a loss of power may take that much.
    Interval,
}

/// Why a log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused.
    #[error("cannot {act} {}", path.display())]
    Io {
        /// What was tried.
        act: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another process writes there.
    #[error("another process keeps its audit log in {}: give each server a directory of its own", .0.display())]
    Taken(PathBuf),
    /// What is there is not what was written.
    #[error(
        "the audit log in {} is not as it was written: look at it with `tombolo audit verify`, keep a copy, and move it away \
         to begin a new one",
        directory.display()
    )]
    Changed {
        /// Where it is.
        directory: PathBuf,
        /// What is wrong.
        source: Box<Fault>,
    },
}
