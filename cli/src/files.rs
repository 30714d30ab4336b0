//! Reads files up to a size limit, and writes files completely or not at all.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use daemon::config::redact;
use daemon::read_bounded;
use tempfile::{Builder, NamedTempFile};

/// Largest file that is read. Certificates, tokens and configurations are smaller.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// A file that is to be written.
pub(crate) struct NewFile {
    pub(crate) path: PathBuf,
    pub(crate) contents: Vec<u8>,
    mode: u32,
}

/// The names of files that have no content yet begin so.
const STAGED: &str = ".tombolo-";

/// Tells whether a file that is already there is kept or replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    Keep,
    Replace,
}

/// A file that was written and synced under a temporary name. [`StagedFile::persist`] gives it its own name; a drop removes it.
pub(crate) struct StagedFile {
    file: NamedTempFile,
    path: PathBuf,
}

/// The error if a file could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    // The path may be a secret that somebody passed instead of the file that holds it.
    #[error("cannot read {}", redact(&.0.display().to_string()))]
    Io(PathBuf, #[source] io::Error),
    #[error("{0} is larger than {max} bytes, which is too large for a file of this kind", max = FILE_BYTES_MAX)]
    TooLarge(PathBuf),
    #[error("{0} is not UTF-8 text; a PEM file is needed where a certificate or key is meant, not DER")]
    NotText(PathBuf),
}

/// The error if a file or directory could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error(
        "{0} is already there and is not overwritten; pass --force to replace it, or choose another path"
    )]
    AlreadyThere(PathBuf),
    #[error("cannot write {0}")]
    Io(PathBuf, #[source] io::Error),
}

/// A path that cannot be written into a kubeconfig.
#[derive(Debug, thiserror::Error)]
#[error(
    "the path {0} cannot be written into a kubeconfig, because it is not UTF-8 text or has no absolute form; use --embed-certs=true"
)]
pub(crate) struct AbsolutePathError(PathBuf);

/// Reads a UTF-8 file of at most `FILE_BYTES_MAX`.
pub(crate) fn read(path: &Path) -> Result<String, ReadError> {
    String::from_utf8(read_bytes(path)?).map_err(|_| ReadError::NotText(path.to_owned()))
}

/// Reads a file of at most `FILE_BYTES_MAX`.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, ReadError> {
    let bytes = read_bounded(path, FILE_BYTES_MAX).map_err(|error| ReadError::Io(path.to_owned(), error))?;
    bytes.ok_or_else(|| ReadError::TooLarge(path.to_owned()))
}

/// Creates a directory with its parents, each of mode 0700. A directory that exists keeps its mode.
pub(crate) fn create_private_directory(path: &Path) -> Result<(), WriteError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| WriteError::Io(path.to_owned(), error))
}

/// Creates a directory with its parents, with the usual modes.
pub(crate) fn create_directory(path: &Path) -> Result<(), WriteError> {
    fs::create_dir_all(path).map_err(|error| WriteError::Io(path.to_owned(), error))
}

/// Writes a file of mode 0600. Replaces an existing file only if `force` is set.
pub(crate) fn write_private(path: &Path, text: &str, force: bool) -> Result<(), WriteError> {
    let existing = if force { Existing::Replace } else { Existing::Keep };
    write_all(vec![NewFile::private(path.to_owned(), text)], existing)
}

/// Writes all files, or none as far as the file system allows.
///
/// # Errors
/// [`WriteError::AlreadyThere`] if a file exists and `existing` keeps it.
pub(crate) fn write_all(files: Vec<NewFile>, existing: Existing) -> Result<(), WriteError> {
    files.iter().try_for_each(|file| check_absent(&file.path, existing))?;
    // All contents are on the disk before the first file gets its name.
    let staged: Vec<_> = files.into_iter().map(stage).collect::<Result<_, _>>()?;
    staged.into_iter().try_for_each(|file| file.persist(existing))
}

/// Removes what an interrupted [`write_all`] has left beside its files. No other one may run in this folder.
pub(crate) fn remove_staged(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(STAGED.as_bytes()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Refuses a path that is there if `existing` keeps it.
pub(crate) fn check_absent(path: &Path, existing: Existing) -> Result<(), WriteError> {
    match existing {
        Existing::Keep if path.symlink_metadata().is_ok() => Err(WriteError::AlreadyThere(path.to_owned())),
        Existing::Keep | Existing::Replace => Ok(()),
    }
}

/// Writes and syncs a hidden file in the directory of its final path.
fn stage(new: NewFile) -> Result<StagedFile, WriteError> {
    let NewFile { path, contents, mode } = new;
    let mut staged = StagedFile::create(path, mode)?;
    staged.write(&contents)?;
    staged.sync()?;
    Ok(staged)
}

impl NewFile {
    /// A file that only its owner reads: mode 0600.
    pub(crate) fn private(path: PathBuf, contents: impl Into<Vec<u8>>) -> Self {
        Self { path, contents: contents.into(), mode: 0o600 }
    }

    /// A file that everybody may read: mode 0644.
    pub(crate) fn public(path: PathBuf, contents: impl Into<Vec<u8>>) -> Self {
        Self { path, contents: contents.into(), mode: 0o644 }
    }

    /// A program that everybody may run: mode 0755.
    pub(crate) fn program(path: PathBuf, contents: impl Into<Vec<u8>>) -> Self {
        Self { path, contents: contents.into(), mode: 0o755 }
    }
}

impl StagedFile {
    /// Begins a file that only its owner reads, for what comes piece by piece.
    pub(crate) fn begin(path: PathBuf) -> Result<Self, WriteError> {
        Self::create(path, 0o600)
    }

    fn create(path: PathBuf, mode: u32) -> Result<Self, WriteError> {
        let mut builder = Builder::new();
        builder.prefix(STAGED).permissions(Permissions::from_mode(mode));
        match builder.tempfile_in(parent(&path)) {
            Ok(file) => Ok(Self { file, path }),
            Err(error) => Err(WriteError::Io(path, error)),
        }
    }

    /// Adds bytes at the end.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.file.write_all(bytes).map_err(|error| WriteError::Io(self.path.clone(), error))
    }

    fn sync(&self) -> Result<(), WriteError> {
        self.file.as_file().sync_all().map_err(|error| WriteError::Io(self.path.clone(), error))
    }

    /// Syncs the file, and gives it its name.
    pub(crate) fn complete(self, existing: Existing) -> Result<(), WriteError> {
        self.sync()?;
        self.persist(existing)
    }

    /// Renames the file to its own name, atomically, and syncs the directory.
    fn persist(self, existing: Existing) -> Result<(), WriteError> {
        let Self { file, path } = self;
        let renamed = match existing {
            Existing::Keep => file.persist_noclobber(&path),
            Existing::Replace => file.persist(&path),
        };
        match renamed.map_err(|error| error.error).and_then(|_| File::open(parent(&path))?.sync_all()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(WriteError::AlreadyThere(path)),
            Err(error) => Err(WriteError::Io(path, error)),
        }
    }
}

/// Tells whether the mode of `directory` grants anything to group or others.
pub(crate) fn is_open_to_others(directory: &Path) -> io::Result<bool> {
    Ok(fs::metadata(directory)?.permissions().mode() & 0o077 != 0)
}

/// The absolute form of a path, as text.
pub(crate) fn absolute(path: &Path) -> Result<String, AbsolutePathError> {
    let absolute = std::path::absolute(path).ok();
    absolute
        .and_then(|path| path.to_str().map(str::to_owned))
        .ok_or_else(|| AbsolutePathError(path.to_owned()))
}

/// The directory of a file; `.` for a bare name.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_appears_in_the_meantime_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let staged = stage(NewFile::private(path.clone(), "ours")).unwrap();
        fs::write(&path, "theirs").unwrap();

        let renamed = staged.persist(Existing::Keep);

        assert!(matches!(renamed, Err(WriteError::AlreadyThere(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "what was staged is removed");
    }
}
