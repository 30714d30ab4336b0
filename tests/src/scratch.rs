//! Folders for a process's files. They are removed with the process or, if it was killed, by the next process
//! that makes one.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use tempfile::TempDir;

/// The file that the folder's owner keeps locked, so that others can distinguish a leftover from a folder in
/// use.
const OWNER: &str = "owner.lock";
/// The name of that file until it is locked.
const OWNER_NEW: &str = "owner.lock.new";

/// A folder `PREFIX` + process id + random letters in the system's temporary directory, which only its owner
/// can enter.
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
        // Locked before it has its name: a sweep that found it unlocked would take the folder for a leftover.
        let unnamed = directory.path().join(OWNER_NEW);
        let owner = File::create(&unnamed)?;
        owner.lock()?;
        fs::rename(&unnamed, directory.path().join(OWNER))?;
        Ok(Self { directory, _owner: owner })
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

// Removes folders whose lock nobody holds. A folder without a lock file may be one that another process is
// just making, so it stays.
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

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn folders_made_at_the_same_time_are_not_taken_for_leftovers() {
        let makers: Vec<_> = (0..8)
            .map(|_| {
                thread::spawn(|| {
                    let made: Vec<_> =
                        (0..50).map(|_| Scratch::new("tombolo-scratch-race-").unwrap()).collect();
                    made.iter().filter(|scratch| !scratch.path().join(OWNER).exists()).count()
                })
            })
            .collect();
        let lost: usize = makers.into_iter().map(|maker| maker.join().unwrap()).sum();
        assert_eq!(lost, 0);
    }
}
