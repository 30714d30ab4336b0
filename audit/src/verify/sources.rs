//! The files of a log on disk.

use std::fs;
use std::path::{Path, PathBuf};

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
    /// Resolves `paths`: one directory, or files in the order of their lines. Without `checkpoints`, the file
    /// of checkpoints in the directory, or beside the files of a log, is used.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn from_paths(paths: &[PathBuf], checkpoints: Option<PathBuf>) -> Result<Self, VerifyError> {
        let directory = match paths {
            [directory] if directory.is_dir() => directory,
            files => {
                let checkpoints = checkpoints.or_else(|| beside(files));
                return Ok(Self { files: files.to_vec(), checkpoints, is_complete: false });
            }
        };
        let firsts = files::firsts(directory).map_err(cannot_read(directory))?;
        let files = firsts.into_iter().map(|first| directory.join(files::name(first))).collect();
        let checkpoints = checkpoints.or_else(|| checkpoints_in(directory));
        Ok(Self { files, checkpoints, is_complete: true })
    }
}

/// The checkpoints beside files of a log. Files with other names may be pieces of a stream, whose checkpoints
/// cover more than the pieces.
fn beside(paths: &[PathBuf]) -> Option<PathBuf> {
    let folder = paths.first()?.parent()?;
    let is_of_log = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        path.parent() == Some(folder) && name.is_some_and(|name| files::first_of(name).is_some())
    };
    if paths.iter().all(is_of_log) { checkpoints_in(folder) } else { None }
}

/// The file of checkpoints in a directory, unless there is certainly none.
fn checkpoints_in(directory: &Path) -> Option<PathBuf> {
    let path = directory.join(CHECKPOINTS_FILE);
    fs::exists(&path).unwrap_or(true).then_some(path)
}
