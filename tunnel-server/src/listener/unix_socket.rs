//! A Unix socket's file: in a folder that nobody else can change, of a mode for whom it is, and gone with its server.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::Failure;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

/// Who may come to a socket, as the file system sees it. The kernel says besides who came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketAccess {
    /// This process's user, and root.
    Owner,
    /// Whoever finds it: the one who listens asks who it is.
    Everybody,
}

/// Longest path: `sun_path` has 108 bytes, and one is its end (unix(7)).
const PATH_BYTES_MAX: usize = 107;

/// How long a server that has the socket may take to show it.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// A listening socket; its file is removed when this is dropped.
pub struct LocalSocket {
    /// Goes first: while somebody listens, no successor takes its place.
    file: SocketFile,
    /// Where they come.
    pub listener: UnixListener,
    /// As whom this process runs.
    pub owner: u32,
}

/// Removes the file if it is still ours: a successor may have put its own there.
struct SocketFile {
    path: PathBuf,
    identity: FileIdentity,
}

/// What tells a file from its successor under the same name; an inode's number alone may be used again.
#[derive(PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

/// Why there is no socket, and which of them: the key in the configuration.
#[derive(Debug)]
pub struct SocketError {
    key: &'static str,
    fault: SocketFault,
}

/// What is in the way of a socket.
#[derive(Debug, thiserror::Error)]
enum SocketFault {
    /// The system has no room for such a path.
    #[error("{} is longer than {PATH_BYTES_MAX} bytes, name a shorter path", .0.display())]
    TooLong(PathBuf),
    /// A path without a folder or a name.
    #[error("{} is not the path of a file", .0.display())]
    NotAPath(PathBuf),
    /// The folder is something else.
    #[error("{} is not a folder, name another path", .0.display())]
    NotAFolder(PathBuf),
    /// Others may enter the folder.
    #[error(
        "others may {} {shown} (mode {mode:03o}), run: chmod {wanted:o} {shown}, or name a path in a folder of its own",
        if *wanted == 0o700 { "enter" } else { "write into" },
        shown = folder.display()
    )]
    Open {
        /// The folder.
        folder: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// The most that they may be.
        wanted: u32,
    },
    /// The folder is another user's, who could put another socket there.
    #[error(
        "{} belongs to user id {uid} and this server runs as {owner}, name a path in a folder of its own",
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
    #[error("{} is there and is not a socket, move it away or name another path", .0.display())]
    NotASocket(PathBuf),
    /// A server answers there.
    #[error(
        "another server answers at {}, stop it, or give each server a socket of its own",
        .0.display()
    )]
    Live(PathBuf),
    /// The system refused.
    #[error(
        "cannot {act} {}; name a path that this user may write, or do without the socket",
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

impl LocalSocket {
    /// Listens at `path`, which stands at `key` in the configuration. What a server that was killed has left there is replaced.
    ///
    /// # Errors
    ///
    /// [`SocketError`], which says what is in the way.
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

    /// Where it is.
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
            // Where it cannot be removed, the next server replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl SocketAccess {
    /// The folder's mode where it is made, and the most that it may have: nobody else puts another socket in the place of ours.
    fn folder_mode(self) -> u32 {
        match self {
            Self::Owner => 0o700,
            Self::Everybody => 0o755,
        }
    }

    /// The socket's mode.
    fn socket_mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Everybody => 0o666,
        }
    }
}

/// Whether a folder of this owner and mode keeps those from the socket in it who are not to access it.
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
        // Parents get the usual mode: others live beside us.
        fs::create_dir_all(parent).map_err(failed("create", parent))?;
    }
    match DirBuilder::new().mode(access.folder_mode()).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed("create", folder)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Takes away the socket of a server that is gone; one that answers, and what is no socket, stays.
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
        // A full queue, too, is somebody's.
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
