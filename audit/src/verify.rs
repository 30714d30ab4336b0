//! Verifies that nobody has changed a log since it was written.

mod checkpoints;
mod replay;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::checkpoint::{CHECKPOINTS_FILE, Extent, NotACheckpoint};
use crate::files;
use crate::keys::{ChainKey, PublicKey};
pub use crate::reader::LineFault;

pub(crate) use checkpoints::{SignedCheckpoints, read};
pub(crate) use replay::{Replay, replay};

/// The files of a log to verify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// The log files, in the order of their lines.
    pub files: Vec<PathBuf>,
    /// The file with the checkpoints.
    pub checkpoints: Option<PathBuf>,
    /// Whether these are all files of the log that are kept.
    pub is_complete: bool,
}

/// The keys to verify a log with; at least one of them.
#[derive(Debug, Clone, Default)]
pub struct VerifyKeys {
    /// The chain key, which verifies every line.
    pub chain: Option<ChainKey>,
    /// The public key, which verifies every line up to the last checkpoint.
    pub public: Option<PublicKey>,
}

/// The result of a verification that found no fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The number of files read.
    pub files: usize,
    /// The number of lines read.
    pub lines: u64,
    /// The first line's number; 0 where there is none.
    pub first: u64,
    /// The number of the last line.
    pub last: u64,
    /// The number of checkpoints read.
    pub checkpoints: usize,
    /// The last line that a checkpoint covers; 0 without a checkpoint.
    pub signed_up_to: u64,
    /// Whether the MAC of each line was verified.
    pub is_chain_verified: bool,
    /// Exchanges that have begun and not ended.
    pub open: usize,
}

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

impl Sources {
    /// Resolves `paths`: one directory, or files in the order of their lines. Without `checkpoints`, the
    /// directory's own file of checkpoints is used.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn from_paths(paths: &[PathBuf], checkpoints: Option<PathBuf>) -> Result<Self, VerifyError> {
        let [directory] = paths else {
            return Ok(Self { files: paths.to_vec(), checkpoints, is_complete: false });
        };
        if !directory.is_dir() {
            return Ok(Self { files: paths.to_vec(), checkpoints, is_complete: false });
        }
        let firsts = files::firsts(directory).map_err(cannot_read(directory))?;
        let files = firsts.into_iter().map(|first| directory.join(files::name(first))).collect();
        let beside = directory.join(CHECKPOINTS_FILE);
        let checkpoints = checkpoints.or_else(|| fs::exists(&beside).unwrap_or(true).then_some(beside));
        Ok(Self { files, checkpoints, is_complete: true })
    }
}

/// Reads all of `sources`, and verifies them with `keys`.
///
/// # Errors
/// [`VerifyError`], with the first fault that was found.
pub fn verify(sources: &Sources, keys: &VerifyKeys) -> Result<Report, VerifyError> {
    if keys.chain.is_none() && keys.public.is_none() {
        return Err(VerifyError::NoKey);
    }
    // Checkpoints are read first: a running server writes lines before it signs them.
    let mut signed = match (&sources.checkpoints, &keys.public) {
        (Some(path), Some(public)) => read(path, Some(public), keys.chain.as_ref())?,
        (None, _) | (_, None) => SignedCheckpoints::default(),
    };
    if let Some(torn) = signed.torn.take() {
        return Err(torn.into());
    }
    // A log on a stream leaves checkpoints here, and no files.
    if sources.files.is_empty() && signed.last().is_none_or(|checkpoint| checkpoint.file.is_none()) {
        return Err(VerifyError::NoFiles);
    }
    let replayed = replay(sources, keys.chain.as_ref(), &signed)?;
    if let Some(torn) = replayed.torn {
        return Err(torn.into());
    }
    let reader = &replayed.reader;
    let (first, last) = (reader.first().unwrap_or(0), reader.last().sequence);
    Ok(Report {
        files: sources.files.len(),
        lines: if first == 0 { 0 } else { last + 1 - first },
        first,
        last,
        checkpoints: signed.len(),
        signed_up_to: signed.last().map_or(0, |checkpoint| checkpoint.sequence),
        is_chain_verified: keys.chain.is_some(),
        open: reader.open().len(),
    })
}

pub(crate) fn cannot_read(path: &Path) -> impl Fn(io::Error) -> VerifyError + use<> {
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

/// Whether `extent` describes the file at `path`.
fn describes(extent: &Extent, path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == extent.name.as_str())
}

#[cfg(test)]
mod tests;
