//! Faults of a log, and other reasons why it cannot be verified.

use std::io;
use std::path::{Path, PathBuf};

use crate::checkpoint::NotACheckpoint;
use crate::reader::LineFault;

/// A fault, and its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{kind}", file.display(), LinePosition(*line))]
pub struct Fault {
    /// The file with the fault.
    pub file: PathBuf,
    /// The number of the line in the file, from 1.
    pub line: Option<u64>,
    /// The kind of the fault.
    pub kind: FaultKind,
}

/// The kinds of faults of a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// A line has a fault of its own.
    #[error(transparent)]
    Line(#[from] LineFault),
    /// The name of the file names another first line.
    #[error("is the first line of another file: files were renamed or exchanged")]
    Name,
    /// The line has not the form of a checkpoint.
    #[error("is not a checkpoint")]
    NotACheckpoint,
    /// The signature is not of this key.
    #[error("is not signed with this key: it was changed, or is another server's")]
    Signature,
    /// The number of the checkpoint is not the next one.
    #[error("is checkpoint {found}, and {expected} comes next: checkpoints were taken away, added or moved")]
    Number {
        /// The number that comes next.
        expected: u64,
        /// The number that the checkpoint has.
        found: u64,
    },
    /// It covers fewer lines than the checkpoint before it.
    #[error("says that the log was shorter than before")]
    Backwards,
    /// The checkpoint belongs to another log.
    #[error("is of another log (mark {0}) than the key")]
    OtherLog(String),
    /// The log ends before the last line that a checkpoint covers.
    #[error(
        "ends with line {last}, and checkpoint {number} of {time} has seen line {seen}: the end was cut off"
    )]
    CutOff {
        /// The last line of the log.
        last: u64,
        /// The number of the checkpoint.
        number: u64,
        /// The time at which the checkpoint was signed.
        time: String,
        /// The last line that the checkpoint covers.
        seen: u64,
    },
    /// Lines at the beginning are missing, although retention has not removed them.
    #[error(
        "begins with line {first}, and checkpoint {number} says that line {oldest} is kept: the beginning was taken away"
    )]
    Beginning {
        /// The first line of the log.
        first: u64,
        /// The number of the checkpoint.
        number: u64,
        /// The oldest line that should be there.
        oldest: u64,
    },
    /// The content differs from what a checkpoint covers.
    #[error(
        "is not what checkpoint {0} has seen there: something before it was changed, added or taken away"
    )]
    Extent(u64),
    /// A file that a checkpoint covers is missing.
    #[error("is not there, and checkpoint {0} has seen it")]
    Missing(u64),
}

/// The reason why a log could not be verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The log was changed or is damaged.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A file or the directory cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file or directory that could not be read.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Neither of the two keys was given.
    #[error("no key to verify the log with: name the chain's key, or the public key of its checkpoints")]
    NoKey,
    /// The paths name no file of a log.
    #[error("there is no audit log: name a directory with files audit-NUMBER.log, or files")]
    NoFiles,
}

/// Maps an error of reading `path`.
pub(super) fn cannot_read(path: &Path) -> impl Fn(io::Error) -> VerifyError + use<> {
    let path = path.to_owned();
    move |source| VerifyError::Io { path: path.clone(), source }
}

/// Displays the line number of a fault, if it has one.
struct LinePosition(Option<u64>);

impl std::fmt::Display for LinePosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(line) => write!(f, ", line {line}, "),
            None => f.write_str(" "),
        }
    }
}

impl From<NotACheckpoint> for FaultKind {
    fn from(fault: NotACheckpoint) -> Self {
        match fault {
            NotACheckpoint::Form => Self::NotACheckpoint,
            NotACheckpoint::Signature => Self::Signature,
        }
    }
}
