//! `tombolo server restore`: puts a backup into the state directory of a server that does not run.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, IsTerminal as _, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, lchown};
use std::path::{Path, PathBuf};

use daemon::{StateDir, StateError, StateFile, read_bounded};
use proto::admin::{BACKUP_BYTES_MAX, BACKUP_MAGIC};

use crate::args::ServerRestore;
use crate::backup::STANDARD_STREAM;

/// The file of a server's records.
const RECORDS: StateFile = StateFile::Directory;

/// The name of standard input in messages.
const STANDARD_INPUT: &str = "standard input";

/// Added to the name of records that a backup replaces.
const REPLACED_SUFFIX: &str = ".replaced";

/// The error if no backup was restored. The state directory is then as it was.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestoreError {
    #[error("cannot read {0}")]
    Read(PathBuf, #[source] io::Error),
    #[error(
        "standard input is a terminal: redirect a backup into it, as in `tombolo server restore - < backup.redb`"
    )]
    Terminal,
    #[error("{0} is larger than {BACKUP_BYTES_MAX} bytes, which no backup is")]
    TooLarge(PathBuf),
    #[error("{0} is not a backup of a server; pass the file that `tombolo server backup` wrote")]
    NotABackup(PathBuf),
    #[error(
        "{0} is already there; pass --replace to keep it beside under another name, or another --state-dir"
    )]
    AlreadyThere(PathBuf),
    #[error("{0} is in use; stop its tunnel-server first")]
    InUse(PathBuf),
    #[error("{0} is already there, from an earlier restore; move it away first")]
    AlreadyKept(PathBuf),
    #[error("cannot keep the records that are there as {0}")]
    Keep(PathBuf, #[source] io::Error),
    #[error(transparent)]
    State(#[from] StateError),
    #[error("{0} is restored, but could not be given to the owner of its directory; run chown")]
    Owner(PathBuf, #[source] io::Error),
}

/// Puts the backup in place, under the owner of the state directory.
pub(crate) fn put_back(args: &ServerRestore) -> Result<Vec<String>, RestoreError> {
    let ServerRestore { backup, state_dir, replace } = args;
    let (bytes, backup) = if backup == Path::new(STANDARD_STREAM) {
        (read_standard_input()?, Path::new(STANDARD_INPUT))
    } else {
        let bytes = read_bounded(backup, BACKUP_BYTES_MAX);
        (checked(bytes, backup)?, backup.as_path())
    };
    let state = StateDir::open(state_dir)?;
    let path = state.path_of(RECORDS);
    let kept = keep_existing(&path, *replace)?;
    state.write(RECORDS, &bytes)?;
    // Root restores, and the server runs as a user of its own.
    let owned = fs::metadata(state_dir).and_then(|dir| lchown(&path, Some(dir.uid()), Some(dir.gid())));
    owned.map_err(|error| RestoreError::Owner(path.clone(), error))?;
    let mut lines = vec![format!("{} has the records of {}", path.display(), backup.display())];
    lines.extend(kept.map(|kept| format!("the records from before are kept as {}", kept.display())));
    lines.push(
        "now make the revocations again that are newer than the backup, and start the server".to_owned(),
    );
    Ok(lines)
}

fn read_standard_input() -> Result<Vec<u8>, RestoreError> {
    let input = io::stdin();
    if input.is_terminal() {
        return Err(RestoreError::Terminal);
    }
    let mut bytes = Vec::new();
    // One byte more than allowed, to detect a backup that is too large.
    let read = input.lock().take(BACKUP_BYTES_MAX + 1).read_to_end(&mut bytes);
    let bounded = read.map(|_| (bytes.len() as u64 <= BACKUP_BYTES_MAX).then_some(bytes));
    checked(bounded, Path::new(STANDARD_INPUT))
}

/// A backup that was read up to its limit; `None` if it is larger.
fn checked(read: io::Result<Option<Vec<u8>>>, backup: &Path) -> Result<Vec<u8>, RestoreError> {
    let bytes = read
        .map_err(|error| RestoreError::Read(backup.to_owned(), error))?
        .ok_or_else(|| RestoreError::TooLarge(backup.to_owned()))?;
    if !bytes.starts_with(BACKUP_MAGIC) {
        return Err(RestoreError::NotABackup(backup.to_owned()));
    }
    Ok(bytes)
}

/// Keeps the records that are there under another name, which is returned.
fn keep_existing(path: &Path, replace: bool) -> Result<Option<PathBuf>, RestoreError> {
    let mut existing = match File::options().read(true).write(true).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| RestoreError::Read(path.to_owned(), error))?,
    };
    match existing.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(RestoreError::InUse(path.to_owned())),
        Err(TryLockError::Error(error)) => return Err(RestoreError::Read(path.to_owned(), error)),
    }
    if !replace {
        return Err(RestoreError::AlreadyThere(path.to_owned()));
    }
    let mut kept = path.as_os_str().to_owned();
    kept.push(REPLACED_SUFFIX);
    let kept = PathBuf::from(kept);
    // The lock is held until the copy is complete. A copy and not a new name, so that the path is never empty. A new file:
    // another user owns the directory, and a link in it would lead root elsewhere; and nothing that was kept is lost.
    let copied = File::options().write(true).create_new(true).mode(0o600).open(&kept).and_then(|mut copy| {
        io::copy(&mut existing, &mut copy)?;
        copy.sync_all()
    });
    match copied {
        Ok(()) => Ok(Some(kept)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(RestoreError::AlreadyKept(kept)),
        Err(error) => Err(RestoreError::Keep(kept, error)),
    }
}
