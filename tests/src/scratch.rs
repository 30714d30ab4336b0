//! Folders for a process's files, removed with it or, where it was killed, by the next process that makes one.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use tempfile::TempDir;

/// Held locked by the process that owns the folder, so that others can tell a leftover from a folder in use.
const OWNER: &str = "owner.lock";

/// A folder `PREFIX` + process id + random letters in the system's temporary directory, which only its owner can enter.
#[derive(Debug)]
#[must_use = "the folder is removed when this is dropped"]
pub struct Scratch {
    directory: TempDir,
    _owner: File,
}

impl Scratch {
    /// Removes what killed processes left under this prefix, then makes a folder.
    ///
    /// # Errors
    /// If the folder or its lock cannot be made.
    pub fn new(prefix: &str) -> io::Result<Self> {
        sweep(prefix);
        let directory =
            tempfile::Builder::new().prefix(&format!("{prefix}{}-", std::process::id())).tempdir()?;
        let owner = File::create(directory.path().join(OWNER))?;
        owner.lock()?;
        Ok(Self { directory, _owner: owner })
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

// Removes folders whose lock nobody holds. A folder without a lock file may be one that another process is just
// making, so it stays.
fn sweep(prefix: &str) {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.filter_map(Result::ok) {
        if !entry.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        let Ok(owner) = File::open(entry.path().join(OWNER)) else { continue };
        if owner.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path()); // Another sweep may be at it.
        }
    }
}
