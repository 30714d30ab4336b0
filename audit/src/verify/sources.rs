//! The files of a log on disk.

use std::fs;
use std::path::PathBuf;

use super::fault::{VerifyError, cannot_read};
use crate::checkpoint::CHECKPOINTS_FILE;
use crate::files;

/// The files of a log to verify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// The log files, in the order of their lines.
    pub files: Vec<PathBuf>,
    /// The file with the checkpoints.
    pub checkpoints: Option<PathBuf>,
    /// True if these are all files of the log that are kept.
    pub is_complete: bool,
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
