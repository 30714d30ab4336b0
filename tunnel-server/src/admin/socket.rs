//! The socket's file: in a folder that only its owner can enter, of mode 0600, and gone with its server.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::Failure;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

/// The folder's mode, and the most that it may have.
const FOLDER_MODE: u32 = 0o700;

/// The socket's mode.
const SOCKET_MODE: u32 = 0o600;

/// Longest path: `sun_path` has 108 bytes, and one is its end (unix(7)).
const PATH_BYTES_MAX: usize = 107;

/// How long a server that has the socket may take to show it.
const KNOCK_MAX: Duration = Duration::from_secs(2);

/// A listening socket; its file is removed when this is dropped.
pub(super) struct AdminSocket {
    /// Goes first: while somebody listens, no successor takes its place.
    file: SocketFile,
    pub(super) listener: UnixListener,
    /// As whom this process runs.
    pub(super) owner: u32,
}

/// Removes the file if it is still ours: a successor may have put its own there.
struct SocketFile {
    path: PathBuf,
    stamp: Stamp,
}

/// What tells a file from its successor under the same name; an inode's number alone may be used again.
#[derive(PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The system has no room for such a path.
    #[error("admin.socket: {} is longer than {PATH_BYTES_MAX} bytes, name a shorter path", .0.display())]
    TooLong(PathBuf),
    /// A path without a folder or a name.
    #[error("admin.socket: {} is not the path of a file", .0.display())]
    NotAPath(PathBuf),
    /// The folder is something else.
    #[error("admin.socket: {} is not a folder, name another path", .0.display())]
    NotAFolder(PathBuf),
    /// Others may enter the folder.
    #[error(
        "admin.socket: others may enter {shown} (mode {mode:03o}), run: chmod 700 {shown}, or name a path in a folder of its own",
        shown = folder.display()
    )]
    Open {
        /// The folder.
        folder: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The folder is another user's, who could put another socket there.
    #[error(
        "admin.socket: {} belongs to user id {uid} and this server runs as {owner}, name a path in a folder of its own",
        folder.display()
    )]
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// Whose it is.
        uid: u32,
        /// As whom this process runs.
        owner: u32,
    },
    /// Something that is no socket stands there.
    #[error("admin.socket: {} is there and is not a socket, move it away or name another path", .0.display())]
    NotASocket(PathBuf),
    /// A server answers there.
    #[error(
        "admin.socket: another server answers at {}, stop it, or give each server a socket of its own",
        .0.display()
    )]
    Live(PathBuf),
    /// The system refused.
    #[error(
        "admin.socket: cannot {act} {}; name a path that this user may write, or set admin.enabled to false",
        path.display()
    )]
    Io {
        /// What was tried.
        act: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl AdminSocket {
    /// Listens at `path`. What a server that was killed has left there is replaced.
    pub(super) async fn bind(path: &Path) -> Result<Self, SocketError> {
        if path.as_os_str().len() > PATH_BYTES_MAX {
            return Err(SocketError::TooLong(path.to_owned()));
        }
        let owner = rustix::process::geteuid().as_raw();
        let (Some(folder), Some(_)) = (path.parent(), path.file_name()) else {
            return Err(SocketError::NotAPath(path.to_owned()));
        };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        make_folder(folder)?;
        let found = fs::metadata(folder).map_err(failed("look at", folder))?;
        judge_folder(folder, found.is_dir(), found.uid(), found.mode(), owner)?;
        clear(path).await?;
        let listener = UnixListener::bind(path).map_err(failed("listen at", path))?;
        let mode = Permissions::from_mode(SOCKET_MODE);
        fs::set_permissions(path, mode).map_err(failed("close to others", path))?;
        let made = fs::symlink_metadata(path).map_err(failed("look at", path))?;
        let file = SocketFile { path: path.to_owned(), stamp: Stamp::of(&made) };
        Ok(Self { file, listener, owner })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.file.path
    }
}

impl Stamp {
    fn of(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino(), changed: (file.ctime(), file.ctime_nsec()) }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| Stamp::of(&found) == self.stamp) {
            // Where it cannot be removed, the next server replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether a folder of this owner and mode keeps everybody but `owner` and root from the socket in it.
fn judge_folder(folder: &Path, is_folder: bool, uid: u32, mode: u32, owner: u32) -> Result<(), SocketError> {
    let folder = folder.to_owned();
    if !is_folder {
        return Err(SocketError::NotAFolder(folder));
    }
    if uid != owner {
        return Err(SocketError::Foreign { folder, uid, owner });
    }
    let mode = mode & 0o777;
    if mode & !FOLDER_MODE != 0 {
        return Err(SocketError::Open { folder, mode });
    }
    Ok(())
}

fn make_folder(folder: &Path) -> Result<(), SocketError> {
    if let Some(parent) = folder.parent() {
        // Parents get the usual mode: others live beside us.
        fs::create_dir_all(parent).map_err(failed("create", parent))?;
    }
    match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed("create", folder)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Takes away the socket of a server that is gone; one that answers, and what is no socket, stays.
async fn clear(path: &Path) -> Result<(), SocketError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("look at", path)(error)),
        Ok(found) if !found.file_type().is_socket() => return Err(SocketError::NotASocket(path.to_owned())),
        Ok(_) => {}
    }
    let Ok(knocked) = timeout(KNOCK_MAX, UnixStream::connect(path)).await else {
        return Err(SocketError::Live(path.to_owned()));
    };
    match knocked.map_err(|error| (error.kind(), error)) {
        // A full queue, too, is somebody's.
        Ok(_) | Err((ErrorKind::WouldBlock, _)) => Err(SocketError::Live(path.to_owned())),
        Err((ErrorKind::NotFound, _)) => Ok(()),
        Err((ErrorKind::ConnectionRefused, _)) => fs::remove_file(path).map_err(failed("replace", path)),
        Err((_, error)) => Err(failed("connect to", path)(error)),
    }
}

fn failed(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketError {
    let path = path.to_owned();
    move |source| SocketError::Io { act, path, source }
}

impl From<SocketError> for Failure {
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::TooLong(_)
            | SocketError::NotAPath(_)
            | SocketError::NotAFolder(_)
            | SocketError::Open { .. }
            | SocketError::Foreign { .. }
            | SocketError::NotASocket(_) => Self::misconfigured(error),
            SocketError::Live(_) | SocketError::Io { .. } => Self::could_not_go_on(error),
        }
    }
}

#[cfg(test)]
mod tests;
