//! Files read within a limit and written whole or not at all.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use daemon::config::shown;
use daemon::whole_file;
use tempfile::{Builder, NamedTempFile};

/// No certificate bundle, token or configuration of a person is larger.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Who may read a file that is written.
#[derive(Clone, Copy)]
pub(crate) enum Audience {
    /// Mode 0600.
    Owner,
    /// Mode 0644.
    Everyone,
}

/// What happens to a file that is already there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    Keep,
    Replace,
}

/// A file written and synced beside its place, which it takes with [`Staged::place`]; removed if dropped before.
struct Staged {
    file: NamedTempFile,
    path: PathBuf,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    // Somebody may have given the secret in place of the file in which it stands.
    #[error("cannot read {}", shown(&.0.display().to_string()))]
    Io(PathBuf, #[source] io::Error),
    #[error("{0} is larger than {max} bytes, which no file of this kind is", max = FILE_BYTES_MAX)]
    TooLarge(PathBuf),
    #[error("{0} is not UTF-8 text; a PEM file is needed where a certificate or key is meant, not DER")]
    NotText(PathBuf),
}

/// Why a file or directory could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error(
        "{0} is already there and is not overwritten; pass --force to replace it, or choose another place"
    )]
    AlreadyThere(PathBuf),
    #[error("cannot write {0}")]
    Io(PathBuf, #[source] io::Error),
}

/// A path that no kubeconfig can name.
#[derive(Debug, thiserror::Error)]
#[error(
    "the path {0} cannot stand in a kubeconfig, because it is not UTF-8 text or has no absolute form; use --embed-certs=true"
)]
pub(crate) struct NoAbsolutePath(PathBuf);

/// The text of a file of at most `FILE_BYTES_MAX`.
pub(crate) fn read(path: &Path) -> Result<String, ReadError> {
    String::from_utf8(read_bytes(path)?).map_err(|_| ReadError::NotText(path.to_owned()))
}

/// The bytes of a file of at most `FILE_BYTES_MAX`.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, ReadError> {
    let bytes = whole_file(path, FILE_BYTES_MAX).map_err(|error| ReadError::Io(path.to_owned(), error))?;
    bytes.ok_or_else(|| ReadError::TooLarge(path.to_owned()))
}

/// Creates a directory of mode 0700, with its parents, unless it is there.
pub(crate) fn create_private_directory(path: &Path) -> Result<(), WriteError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| WriteError::Io(path.to_owned(), error))
}

/// Writes a file that only this user reads, in place of one that is there already if `force` says so.
pub(crate) fn write_private(path: &Path, text: &str, force: bool) -> Result<(), WriteError> {
    let existing = if force { Existing::Replace } else { Existing::Keep };
    write_all(vec![(path.to_owned(), text, Audience::Owner)], existing)
}

/// Writes files so that either all stand in their places or, as far as the file system lets us, none does.
pub(crate) fn write_all<T: AsRef<[u8]> + ?Sized>(
    files: Vec<(PathBuf, &T, Audience)>,
    existing: Existing,
) -> Result<(), WriteError> {
    if existing == Existing::Keep
        && let Some((path, ..)) = files.iter().find(|(path, ..)| path.symlink_metadata().is_ok())
    {
        return Err(WriteError::AlreadyThere(path.clone()));
    }
    // All contents are on the disk before the first name is given.
    let staged: Vec<_> = files
        .into_iter()
        .map(|(path, contents, audience)| stage(path, contents.as_ref(), audience))
        .collect::<Result<_, _>>()?;
    staged.into_iter().try_for_each(|file| file.place(existing))
}

/// Writes and syncs `contents` in a hidden file beside `path`.
fn stage(path: PathBuf, contents: &[u8], audience: Audience) -> Result<Staged, WriteError> {
    let written = (|| {
        let mode = match audience {
            Audience::Owner => 0o600,
            Audience::Everyone => 0o644,
        };
        let mut file = Builder::new()
            .prefix(".tombolo-")
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(parent(&path))?;
        file.write_all(contents)?;
        file.as_file().sync_all()?;
        Ok(file)
    })();
    match written {
        Ok(file) => Ok(Staged { file, path }),
        Err(error) => Err(WriteError::Io(path, error)),
    }
}

impl Staged {
    /// Gives the file its name, atomically, and syncs the directory.
    fn place(self, existing: Existing) -> Result<(), WriteError> {
        let Self { file, path } = self;
        let placed = match existing {
            Existing::Keep => file.persist_noclobber(&path),
            Existing::Replace => file.persist(&path),
        };
        match placed.map_err(|error| error.error).and_then(|_| File::open(parent(&path))?.sync_all()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(WriteError::AlreadyThere(path)),
            Err(error) => Err(WriteError::Io(path, error)),
        }
    }
}

/// Whether group or others may enter or read `directory`.
pub(crate) fn is_open_to_others(directory: &Path) -> io::Result<bool> {
    Ok(fs::metadata(directory)?.permissions().mode() & 0o077 != 0)
}

/// The path as it is found from every directory.
pub(crate) fn absolute(path: &Path) -> Result<String, NoAbsolutePath> {
    let absolute = std::path::absolute(path).ok();
    absolute.and_then(|path| path.to_str().map(str::to_owned)).ok_or_else(|| NoAbsolutePath(path.to_owned()))
}

/// The folder a file stands in; `.` for a bare name.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_appeared_meanwhile_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let staged = stage(path.clone(), b"ours", Audience::Owner).unwrap();
        fs::write(&path, "theirs").unwrap();

        let placed = staged.place(Existing::Keep);

        assert!(matches!(placed, Err(WriteError::AlreadyThere(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "what was staged is removed");
    }
}
