//! Makes the file of one server's records from an export.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, lchown};
use std::path::{Path, PathBuf};

use daemon::{StateDir, StateError, StateFile};
use records::export::{ExportReader, NotAnExport};
use records::file::{ExistingFile, FileError, NewFile};

use super::source::{Contents, Source, SourceError};

/// The name of the file.
const NAME: &str = StateFile::Directory.name();

/// The error if the file was not made. The state directory is then as it was.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateImportError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error("{0} is in use; stop its tunnel-server first")]
    InUse(PathBuf),
    #[error(transparent)]
    File(FileError),
    #[error(
        "{path} has {count} records already, and an import is for an empty store; move it away, or name another state directory"
    )]
    NotEmpty { path: PathBuf, count: u64 },
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("{0} is complete, but could not be given to the owner of its directory; run chown")]
    Owner(PathBuf, #[source] io::Error),
}

/// The error of one record.
enum NotPut {
    Text(NotAnExport),
    File(FileError),
}

/// Makes the file, under the owner of the state directory. Returns its path.
pub(super) fn import(
    directory: &Path,
    source: &mut Source,
    contents: &Contents,
    is_dry_run: bool,
) -> Result<String, StateImportError> {
    let path = directory.join(NAME);
    if is_dry_run && !directory.exists() {
        return Ok(path.display().to_string());
    }
    let state = StateDir::open(directory)?;
    // A server on etcd has this lock, and one on a file that of the file.
    let _lock = state.lock()?;
    let existing = ExistingFile::open(state.path(), NAME)?;
    let count = existing.as_ref().map_or(Ok(0), ExistingFile::count)?;
    if count > 0 {
        return Err(StateImportError::NotEmpty { path, count });
    }
    if !is_dry_run {
        fill(NewFile::begin(state.path(), NAME)?, source, contents)?;
        // Root imports, and the server runs as a user of its own.
        let owned = fs::metadata(directory).and_then(|dir| lchown(&path, Some(dir.uid()), Some(dir.gid())));
        owned.map_err(|error| StateImportError::Owner(path.clone(), error))?;
    }
    Ok(path.display().to_string())
}

fn fill(mut new: NewFile, source: &mut Source, contents: &Contents) -> Result<(), StateImportError> {
    source.rewind()?;
    let mut reader = ExportReader::default();
    let keeps_tokens = source.keeps_tokens();
    while let Some(piece) = source.piece()? {
        let put = reader.read(piece, |place, record| {
            if !keeps_tokens && place.is_unused_token(record) {
                return Ok(());
            }
            new.put(place, record).map_err(NotPut::File)
        });
        put.map_err(|error| match error {
            NotPut::Text(error) => source.refused(error).into(),
            NotPut::File(error) => StateImportError::from(error),
        })?;
    }
    source.check_again(reader, contents)?;
    Ok(new.finish()?)
}

impl From<NotAnExport> for NotPut {
    fn from(error: NotAnExport) -> Self {
        Self::Text(error)
    }
}

impl From<FileError> for StateImportError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::InUse(path) => Self::InUse(path),
            FileError::Io { .. } | FileError::Damaged { .. } => Self::File(error),
        }
    }
}
