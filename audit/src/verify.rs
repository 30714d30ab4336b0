//! Whether a log is as it was written.

mod checkpoints;
mod follow;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::checkpoint::{CHECKPOINTS_FILE, Extent, NotACheckpoint};
use crate::files;
use crate::keys::{ChainKey, PublicKey};
pub use crate::walk::Wrong;

pub(crate) use checkpoints::{Signed, read};
pub(crate) use follow::{Followed, follow};

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// In the order of their lines.
    pub files: Vec<PathBuf>,
    /// The file with the checkpoints.
    pub checkpoints: Option<PathBuf>,
    /// Whether these are all files of the log that are kept.
    pub is_whole: bool,
}

/// What it is held against.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// With the chain's key every line is.
    pub chain: Option<ChainKey>,
    /// With the public key everything up to the last checkpoint is.
    pub public: Option<PublicKey>,
}

/// What was found, where nothing is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How many files.
    pub files: usize,
    /// How many lines.
    pub lines: u64,
    /// The first line's number; 0 where there is none.
    pub first: u64,
    /// The last line's.
    pub last: u64,
    /// How many checkpoints.
    pub checkpoints: usize,
    /// Up to which line a checkpoint vouches for the log; 0 for none.
    pub signed: u64,
    /// Whether each line was held against its code.
    pub is_chained: bool,
    /// Exchanges that have begun and not ended.
    pub open: usize,
}

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{what}", file.display(), At(*line))]
pub struct Fault {
    /// In which file.
    pub file: PathBuf,
    /// In which line of it, from 1.
    pub line: Option<u64>,
    /// What it is.
    pub what: What,
}

/// What can be wrong with a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum What {
    /// A line.
    #[error(transparent)]
    Line(#[from] Wrong),
    /// The file's name says that another line is its first.
    #[error("is the first line of another file: files were renamed or exchanged")]
    Name,
    /// The checkpoint is not written as one.
    #[error("is not a checkpoint")]
    NotACheckpoint,
    /// Its signature does not hold.
    #[error("is not signed with this key: it was changed, or is another server's")]
    Signature,
    /// Its number is not the next.
    #[error("is checkpoint {found}, and {expected} comes next: checkpoints were taken away, added or moved")]
    Number {
        /// The next.
        expected: u64,
        /// Its own.
        found: u64,
    },
    /// It is about less than the one before it.
    #[error("says that the log was shorter than before")]
    Backwards,
    /// Another log's.
    #[error("is of another log (mark {0}) than the key")]
    OtherLog(String),
    /// The log ends before a checkpoint says that it does.
    #[error(
        "ends with line {last}, and checkpoint {number} of {time} has seen line {seen}: the end was cut off"
    )]
    Cut {
        /// Its last line.
        last: u64,
        /// The checkpoint.
        number: u64,
        /// When that was signed.
        time: String,
        /// What it has seen.
        seen: u64,
    },
    /// The beginning is gone, though it is not old enough.
    #[error(
        "begins with line {first}, and checkpoint {number} says that line {oldest} is kept: the beginning was taken away"
    )]
    Beginning {
        /// Its first line.
        first: u64,
        /// The checkpoint.
        number: u64,
        /// What should be there.
        oldest: u64,
    },
    /// A checkpoint has seen something else.
    #[error(
        "is not what checkpoint {0} has seen there: something before it was changed, added or taken away"
    )]
    Extent(u64),
    /// A file of which checkpoints speak is not there.
    #[error("is not there, and checkpoint {0} has seen it")]
    Missing(u64),
}

/// Why it cannot be said that a log is as it was written.
#[derive(Debug, thiserror::Error)]
pub enum NotVerified {
    /// Because it is not.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// Because it cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Because there is nothing to hold it against.
    #[error("nothing to hold the log against: name the chain's key, or the public key of its checkpoints")]
    NoKey,
    /// Because there is none.
    #[error("there is no audit log: name a directory with files audit-NUMBER.log, or files")]
    NoFiles,
}

impl Sources {
    /// What `paths` name: one directory, or files in the order of their lines. Without `checkpoints`, those in the
    /// directory are looked at.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn of(paths: &[PathBuf], checkpoints: Option<PathBuf>) -> Result<Self, NotVerified> {
        let [directory] = paths else {
            return Ok(Self { files: paths.to_vec(), checkpoints, is_whole: false });
        };
        if !directory.is_dir() {
            return Ok(Self { files: paths.to_vec(), checkpoints, is_whole: false });
        }
        let firsts = files::firsts(directory).map_err(cannot_read(directory))?;
        let files = firsts.into_iter().map(|first| directory.join(files::name(first))).collect();
        let beside = directory.join(CHECKPOINTS_FILE);
        let checkpoints = checkpoints.or_else(|| fs::exists(&beside).unwrap_or(true).then_some(beside));
        Ok(Self { files, checkpoints, is_whole: true })
    }
}

/// Reads all of `sources`, and holds it against what is trusted.
///
/// # Errors
/// [`NotVerified`], with the first fault that was found.
pub fn verify(sources: &Sources, trust: &Trust) -> Result<Report, NotVerified> {
    if trust.chain.is_none() && trust.public.is_none() {
        return Err(NotVerified::NoKey);
    }
    // First of all: a server that runs writes lines before it signs them.
    let mut signed = match (&sources.checkpoints, &trust.public) {
        (Some(path), Some(public)) => read(path, Some(public), trust.chain.as_ref())?,
        (None, _) | (_, None) => Signed::default(),
    };
    if let Some(torn) = signed.torn.take() {
        return Err(torn.into());
    }
    // Of a log that goes to a stream there are checkpoints and no files here.
    if sources.files.is_empty() && signed.last().is_none_or(|checkpoint| checkpoint.file.is_none()) {
        return Err(NotVerified::NoFiles);
    }
    let followed = follow(sources, trust.chain.as_ref(), &signed)?;
    if let Some(torn) = followed.torn {
        return Err(torn.into());
    }
    let follower = &followed.follower;
    let (first, last) = (follower.first().unwrap_or(0), follower.last().sequence);
    Ok(Report {
        files: sources.files.len(),
        lines: if first == 0 { 0 } else { last + 1 - first },
        first,
        last,
        checkpoints: signed.len(),
        signed: signed.last().map_or(0, |checkpoint| checkpoint.sequence),
        is_chained: trust.chain.is_some(),
        open: follower.open().len(),
    })
}

pub(crate) fn cannot_read(path: &Path) -> impl Fn(io::Error) -> NotVerified + use<> {
    let path = path.to_owned();
    move |source| NotVerified::Io { path: path.clone(), source }
}

/// How a place in a file is said.
struct At(Option<u64>);

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(line) => write!(f, ", line {line}, "),
            None => f.write_str(" "),
        }
    }
}

impl From<NotACheckpoint> for What {
    fn from(fault: NotACheckpoint) -> Self {
        match fault {
            NotACheckpoint::Form => Self::NotACheckpoint,
            NotACheckpoint::Signature => Self::Signature,
        }
    }
}

/// Whether a checkpoint that saw `extent` is about the file at `path`.
fn is_about(extent: &Extent, path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == extent.name.as_str())
}

#[cfg(test)]
mod tests;
