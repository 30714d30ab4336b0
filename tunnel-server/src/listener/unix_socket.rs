//! A Unix socket in a folder that only its owner can change. The socket's file is removed with its server.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::Failure;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

/// The users that the file system lets connect. The kernel also reports the user of each connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketAccess {
    /// The user of this process, and root.
    Owner,
    /// Every local user. The listener must check the user of each connection.
    Everybody,
}

/// Longest path: `sun_path` has 108 bytes, and one is its end (unix(7)).
const PATH_BYTES_MAX: usize = 107;

/// The longest time to wait for another server to accept on the socket.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// A listening socket; its file is removed when this is dropped.
pub struct LocalSocket {
    /// Dropped first: while the listener is open, no successor replaces the file.
    file: SocketFile,
    /// The listener for new connections.
    pub listener: UnixListener,
    /// The user id of this process.
    pub owner: u32,
}

/// The socket's file. On drop it is removed if it is still ours, because a successor may have replaced it.
struct SocketFile {
    path: PathBuf,
    identity: FileIdentity,
}

/// Distinguishes a file from its successor under the same name. The inode's number alone may be reused.
#[derive(PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

/// The reason why a socket cannot be bound, with its configuration key.
#[derive(Debug)]
pub struct SocketError {
    key: &'static str,
    fault: SocketFault,
}

/// The fault of the path, its folder or the system.
#[derive(Debug, thiserror::Error)]
enum SocketFault {
    /// The path is longer than the system allows.
    #[error("{} is longer than {PATH_BYTES_MAX} bytes, name a shorter path", .0.display())]
    TooLong(PathBuf),
    /// The path has no folder or no file name.
    #[error("{} is not the path of a file", .0.display())]
    NotAPath(PathBuf),
    /// The parent of the path is not a folder.
    #[error("{} is not a folder, name another path", .0.display())]
    NotAFolder(PathBuf),
    /// Other users may enter or change the folder.
    #[error(
        "others may {} {shown} (mode {mode:03o}), run: chmod {wanted:o} {shown}, or name a path in a folder of its own",
        if *wanted == 0o700 { "enter" } else { "write into" },
        shown = folder.display()
    )]
    Open {
        /// The folder of the socket.
        folder: PathBuf,
        /// The permission bits of the folder.
        mode: u32,
        /// The widest permission bits that are allowed.
        wanted: u32,
    },
    /// The folder belongs to another user, who could put another socket there.
    #[error(
        "{} belongs to user id {uid} and this server runs as {owner}, name a path in a folder of its own",
        folder.display()
    )]
    Foreign {
        /// The folder of the socket.
        folder: PathBuf,
        /// The user id of the folder's owner.
        uid: u32,
        /// The user id of this process.
        owner: u32,
    },
    /// The file at the path is not a socket.
    #[error("{} is there and is not a socket, move it away or name another path", .0.display())]
    NotASocket(PathBuf),
    /// Another server answers at the path.
    #[error(
        "another server answers at {}, stop it, or give each server a socket of its own",
        .0.display()
    )]
    Live(PathBuf),
    /// The system refused an operation on the path.
    #[error(
        "cannot {act} {}; name a path that this user may write, or do without the socket",
        path.display()
    )]
    Io {
        /// The operation that was tried.
        act: &'static str,
        /// The path of the operation.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl LocalSocket {
    /// Listens at `path`. `key` is the configuration key of the path. A socket that a killed server has left
    /// behind is replaced.
    ///
    /// # Errors
    ///
    /// [`SocketError`], whose message says what to do.
    pub async fn bind(key: &'static str, path: &Path, access: SocketAccess) -> Result<Self, SocketError> {
        Self::try_bind(path, access).await.map_err(|fault| SocketError { key, fault })
    }

    async fn try_bind(path: &Path, access: SocketAccess) -> Result<Self, SocketFault> {
        if path.as_os_str().len() > PATH_BYTES_MAX {
            return Err(SocketFault::TooLong(path.to_owned()));
        }
        let owner = rustix::process::geteuid().as_raw();
        let (Some(folder), Some(_)) = (path.parent(), path.file_name()) else {
            return Err(SocketFault::NotAPath(path.to_owned()));
        };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        make_folder(folder, access)?;
        let found = fs::metadata(folder).map_err(failed("look at", folder))?;
        check_folder(folder, access, found.is_dir(), found.uid(), found.mode(), owner)?;
        clear(path).await?;
        let listener = UnixListener::bind(path).map_err(failed("listen at", path))?;
        let mode = Permissions::from_mode(access.socket_mode());
        fs::set_permissions(path, mode).map_err(failed("close to others", path))?;
        let made = fs::symlink_metadata(path).map_err(failed("look at", path))?;
        let file = SocketFile { path: path.to_owned(), identity: FileIdentity::from_metadata(&made) };
        Ok(Self { file, listener, owner })
    }

    /// The path of the socket's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file.path
    }
}

impl FileIdentity {
    fn from_metadata(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino(), changed: (file.ctime(), file.ctime_nsec()) }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path)
            .is_ok_and(|found| FileIdentity::from_metadata(&found) == self.identity)
        {
            // If it cannot be removed, the next server replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl SocketAccess {
    /// The mode of a new folder, and the widest mode of an existing one. Other users can therefore not
    /// replace the socket.
    fn folder_mode(self) -> u32 {
        match self {
            Self::Owner => 0o700,
            Self::Everybody => 0o755,
        }
    }

    /// The mode of the socket's file.
    fn socket_mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Everybody => 0o666,
        }
    }
}

/// Checks that a folder with this owner and mode keeps out the users that may not access the socket.
fn check_folder(
    folder: &Path,
    access: SocketAccess,
    is_folder: bool,
    uid: u32,
    mode: u32,
    owner: u32,
) -> Result<(), SocketFault> {
    let folder = folder.to_owned();
    if !is_folder {
        return Err(SocketFault::NotAFolder(folder));
    }
    if uid != owner {
        return Err(SocketFault::Foreign { folder, uid, owner });
    }
    let mode = mode & 0o777;
    let wanted = access.folder_mode();
    if mode & !wanted != 0 {
        return Err(SocketFault::Open { folder, mode, wanted });
    }
    Ok(())
}

fn make_folder(folder: &Path, access: SocketAccess) -> Result<(), SocketFault> {
    if let Some(parent) = folder.parent() {
        // Parents get the usual mode, because other programs use them too.
        fs::create_dir_all(parent).map_err(failed("create", parent))?;
    }
    match DirBuilder::new().mode(access.folder_mode()).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed("create", folder)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes the socket of a server that has ended. A socket that answers, and a file that is not a socket,
/// stay.
async fn clear(path: &Path) -> Result<(), SocketFault> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("look at", path)(error)),
        Ok(found) if !found.file_type().is_socket() => return Err(SocketFault::NotASocket(path.to_owned())),
        Ok(_) => {}
    }
    let Ok(connected) = timeout(CONNECT_MAX, UnixStream::connect(path)).await else {
        return Err(SocketFault::Live(path.to_owned()));
    };
    match connected.map_err(|error| (error.kind(), error)) {
        // A full accept queue also means that a server listens.
        Ok(_) | Err((ErrorKind::WouldBlock, _)) => Err(SocketFault::Live(path.to_owned())),
        Err((ErrorKind::NotFound, _)) => Ok(()),
        Err((ErrorKind::ConnectionRefused, _)) => fs::remove_file(path).map_err(failed("replace", path)),
        Err((_, error)) => Err(failed("connect to", path)(error)),
    }
}

fn failed(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketFault {
    let path = path.to_owned();
    move |source| SocketFault::Io { act, path, source }
}

impl std::fmt::Display for SocketError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.key, self.fault)
    }
}

impl std::error::Error for SocketError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.fault.source()
    }
}

impl From<SocketError> for Failure {
    fn from(error: SocketError) -> Self {
        match &error.fault {
            SocketFault::TooLong(_)
            | SocketFault::NotAPath(_)
            | SocketFault::NotAFolder(_)
            | SocketFault::Open { .. }
            | SocketFault::Foreign { .. }
            | SocketFault::NotASocket(_) => Self::misconfigured(error),
            SocketFault::Live(_) | SocketFault::Io { .. } => Self::could_not_go_on(error),
        }
    }
}

#[cfg(test)]
mod tests;
