//! The steps of a join on a machine, each written down before it is done. So an interrupted join goes on, and a reset takes back
//! exactly these.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files::{self, Existing, NewFile, ReadError, WriteError};

/// The journal, below the root of the machine.
const JOURNAL: &str = "var/lib/tombolo/join.json";

/// The version of the journal's format.
const VERSION: u32 = 1;

/// One change of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub(super) enum Step {
    /// A folder that was not there before.
    Folder {
        /// The folder's path, with the root.
        path: PathBuf,
    },
    /// A file that was not there before.
    File {
        /// The file's path, with the root.
        path: PathBuf,
    },
    /// A folder with everything that a program will write to it.
    State {
        /// The folder's path, with the root.
        path: PathBuf,
    },
    /// Everything that a program will write to a folder that was there, and empty.
    Contents {
        /// The folder's path, with the root.
        path: PathBuf,
    },
    /// The pods that kubelet will run, with their mounts.
    Pods {
        /// The socket of the container runtime.
        socket: PathBuf,
    },
    /// The rules that kubelet and kube-proxy will add to the packet filter.
    Rules,
    /// A unit of systemd that is enabled and started.
    Unit {
        /// The name of the unit, such as `node-lb.service`.
        name: String,
    },
}

impl Step {
    /// The step that enables and starts a unit.
    pub(super) fn unit(name: &str) -> Self {
        Self::Unit { name: name.to_owned() }
    }
}

/// The steps of a join on this machine.
#[derive(Debug)]
pub(super) struct Journal {
    root: PathBuf,
    steps: Vec<Step>,
}

/// The journal as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenJournal {
    version: u32,
    steps: Vec<Step>,
}

/// The error if a step was not done or not taken back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("{0} is no journal of this release; take back what an earlier join did by hand, and remove it")]
    Unknown(PathBuf),
    #[error("{0} is there already, and no join of this machine wrote it; move it away if nothing needs it")]
    NotOurs(PathBuf),
    #[error("cannot remove {0}")]
    Remove(PathBuf, #[source] io::Error),
}

impl Journal {
    /// Reads the journal of an earlier join, or begins one. Nothing is written.
    ///
    /// # Errors
    /// [`JournalError::Read`] and [`JournalError::Unknown`]
    pub(super) fn open(root: &Path) -> Result<Self, JournalError> {
        let path = root.join(JOURNAL);
        let steps = if path.exists() {
            let written: Option<WrittenJournal> = serde_json::from_str(&files::read(&path)?).ok();
            let known = written.filter(|written| written.version == VERSION);
            known.ok_or(JournalError::Unknown(path))?.steps
        } else {
            Vec::new()
        };
        Ok(Self { root: root.to_owned(), steps })
    }

    /// The steps that were begun so far.
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns true if an earlier run has begun this step.
    pub(super) fn has(&self, step: &Step) -> bool {
        self.steps.contains(step)
    }

    /// Writes a file, and the folders above it that are not there. Replaces only what an earlier run wrote.
    ///
    /// # Errors
    /// [`JournalError::NotOurs`] if somebody else wrote the file.
    pub(super) fn file(&mut self, file: NewFile) -> Result<(), JournalError> {
        let step = Step::File { path: file.path.clone() };
        if !self.has(&step) && file.path.symlink_metadata().is_ok() {
            return Err(JournalError::NotOurs(file.path));
        }
        self.folders(&file.path)?;
        self.note(step)?;
        Ok(files::write_all(vec![file], Existing::Replace)?)
    }

    /// Makes a folder of mode 0700 for the state of a program.
    pub(super) fn state(&mut self, path: &Path) -> Result<(), JournalError> {
        let step = Step::State { path: path.to_owned() };
        if self.has(&step) || !path.exists() {
            self.folders(path)?;
            self.note(step)?;
            files::create_private_directory(path)?;
        } else if is_empty(path) {
            self.note(Step::Contents { path: path.to_owned() })?;
        }
        Ok(())
    }

    /// Makes a folder with the folders above it. A reset removes those of them that are empty.
    pub(super) fn folder(&mut self, path: &Path) -> Result<(), JournalError> {
        self.folders(path)?;
        if !path.exists() {
            self.note(Step::Folder { path: path.to_owned() })?;
            files::create_directory(path)?;
        }
        Ok(())
    }

    /// Notes a file that a program will write.
    ///
    /// # Errors
    /// [`JournalError::NotOurs`] if it is there already.
    pub(super) fn later(&mut self, path: PathBuf) -> Result<(), JournalError> {
        let step = Step::File { path: path.clone() };
        if !self.has(&step) && path.symlink_metadata().is_ok() {
            return Err(JournalError::NotOurs(path));
        }
        self.folders(&path)?;
        self.note(step)
    }

    /// Writes a step down, before it is done.
    pub(super) fn note(&mut self, step: Step) -> Result<(), JournalError> {
        if self.steps.is_empty() {
            // Its own folders are the first steps.
            let own = missing_above(&self.path());
            self.steps.extend(own.into_iter().map(|path| Step::Folder { path }));
        }
        if !self.has(&step) {
            self.steps.push(step);
            self.write()?;
        }
        Ok(())
    }

    /// Forgets the last step, which was taken back. When none is left but its own folders, the journal goes, and these with it.
    pub(super) fn forget_last(&mut self) -> Result<(), JournalError> {
        self.steps.pop();
        let path = self.path();
        let is_own = |step: &Step| matches!(step, Step::Folder { path: folder } if path.starts_with(folder));
        if !self.steps.iter().all(is_own) {
            return self.write();
        }
        remove_file(&path).map_err(|error| JournalError::Remove(path, error))?;
        while let Some(folder) = self.steps.pop() {
            undo(&folder)?;
        }
        Ok(())
    }

    /// Makes the folders above a path.
    fn folders(&mut self, path: &Path) -> Result<(), JournalError> {
        for folder in missing_above(path) {
            self.note(Step::Folder { path: folder.clone() })?;
            files::create_directory(&folder)?;
        }
        Ok(())
    }

    fn path(&self) -> PathBuf {
        self.root.join(JOURNAL)
    }

    fn write(&self) -> Result<(), JournalError> {
        let path = self.path();
        files::create_directory(path.parent().unwrap_or(&self.root))?;
        let text =
            serde_json::to_string_pretty(&WrittenJournal { version: VERSION, steps: self.steps.clone() });
        let text = text.unwrap_or_default() + "\n";
        Ok(files::write_all(vec![NewFile::private(path, text)], Existing::Replace)?)
    }
}

/// The folders above a path that are not there, the highest first.
fn missing_above(path: &Path) -> Vec<PathBuf> {
    let missing = path.ancestors().skip(1).take_while(|folder| !folder.exists());
    let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
    missing.reverse();
    missing
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

/// Removes a file, and what an interrupted write of it has left.
fn remove_file(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        files::remove_staged(folder)?;
    }
    fs::remove_file(path)
}

/// Removes everything in a folder.
fn empty(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?
        } else {
            fs::remove_file(entry.path())?
        }
    }
    Ok(())
}

/// Takes a file or a folder away. What is not there is taken away already, and a folder that others use stays.
pub(super) fn undo(step: &Step) -> Result<(), JournalError> {
    let (path, done) = match step {
        Step::File { path } => (path, remove_file(path)),
        Step::State { path } => (path, fs::remove_dir_all(path)),
        Step::Contents { path } => (path, empty(path)),
        Step::Folder { path } => (path, fs::remove_dir(path)),
        Step::Unit { .. } | Step::Pods { .. } | Step::Rules => return Ok(()),
    };
    match done {
        Ok(()) => Ok(()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => {
            Ok(())
        }
        Err(error) => Err(JournalError::Remove(path.clone(), error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_join_goes_on_and_what_others_wrote_stays() {
        let root = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| NewFile::public(root.path().join(name), text);
        let mut journal = Journal::open(root.path()).unwrap();
        fs::write(root.path().join("theirs"), "x").unwrap();

        journal.file(file("etc/tombolo/node-lb.yaml", "one")).unwrap();
        assert!(matches!(journal.file(file("theirs", "y")), Err(JournalError::NotOurs(_))));

        // A second run replaces what the first one wrote, and knows all of its steps.
        let mut journal = Journal::open(root.path()).unwrap();
        journal.file(file("etc/tombolo/node-lb.yaml", "two")).unwrap();
        journal.state(&root.path().join("var/lib/tombolo/node-lb")).unwrap();
        assert_eq!(fs::read_to_string(root.path().join("etc/tombolo/node-lb.yaml")).unwrap(), "two");
        let folders = ["var", "var/lib", "var/lib/tombolo", "etc", "etc/tombolo"];
        let folders = folders.map(|path| Step::Folder { path: root.path().join(path) });
        assert_eq!(journal.steps()[..3], folders[..3]);
        assert_eq!(journal.steps().len(), 7, "{:?}", journal.steps());
        assert!(folders.iter().all(|folder| journal.has(folder)));

        fs::write(root.path().join("var/lib/tombolo/node-lb/api-servers.json"), "x").unwrap();
        // A run was killed while it wrote.
        fs::write(root.path().join("etc/tombolo/.tombolo-a1b2"), "x").unwrap();
        fs::write(root.path().join("var/lib/tombolo/.tombolo-a1b2"), "x").unwrap();
        while let Some(step) = journal.steps().last().cloned() {
            undo(&step).unwrap();
            journal.forget_last().unwrap();
        }
        assert!(!root.path().join("etc").exists());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "what others wrote");
        assert_eq!(fs::read_to_string(root.path().join("theirs")).unwrap(), "x");
    }

    #[test]
    fn a_folder_that_was_there_stays_and_is_emptied_if_it_was_empty() {
        let root = tempfile::tempdir().unwrap();
        let [empty, used] = ["empty", "used"].map(|name| root.path().join(name));
        fs::create_dir(&empty).unwrap();
        fs::create_dir(&used).unwrap();
        fs::write(used.join("theirs"), "x").unwrap();
        let mut journal = Journal::open(root.path()).unwrap();
        journal.state(&empty).unwrap();
        journal.state(&used).unwrap();
        fs::create_dir_all(empty.join("a/b")).unwrap();
        fs::write(empty.join("file"), "x").unwrap();
        fs::write(used.join("ours"), "x").unwrap();
        while let Some(step) = journal.steps().last().cloned() {
            undo(&step).unwrap();
            journal.forget_last().unwrap();
        }
        assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
        assert_eq!(fs::read_dir(&used).unwrap().count(), 2, "others use it");
    }

    #[test]
    fn a_journal_of_another_release_is_not_guessed_at() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(JOURNAL);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        for text in ["", "{}", "{\"version\":2,\"steps\":[]}"] {
            fs::write(&path, text).unwrap();
            assert!(matches!(Journal::open(root.path()), Err(JournalError::Unknown(_))), "{text}");
        }
    }
}
