//! Network namespaces with links between them, for sites that all have the same addresses.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::{Invocation, Process, ProcessError, run};
use crate::scratch::Scratch;

/// The limit for one run of `ip`.
const IP_MAX: Duration = Duration::from_secs(10);
/// The limit for a new process to be in its namespace.
const MADE_MAX: Duration = Duration::from_secs(10);
/// Pause between two looks at it.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A network namespace with its loopback up.
///
/// It has no name in the file system: only an open file of this process refers to it. So it ends with this
/// value or with the process, however that dies, together with its ends of all links. No cleanup is
/// necessary.
#[derive(Debug)]
#[must_use = "the namespace is gone when this is dropped and the last process in it has ended"]
pub struct NetworkNamespace {
    namespace: File,
    path: PathBuf,
}

/// An error of making or setting up a namespace.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// A program could not be run.
    #[error("could not set up a network namespace: {0}")]
    Process(#[from] ProcessError),
    /// The process that was to make the namespace has failed or does not end.
    #[error(
        "could not make a network namespace (this takes root, or a user namespace of one's own): {output}"
    )]
    Denied {
        /// The output of the program.
        output: String,
    },
    /// A file could not be opened.
    #[error("could not open a network namespace")]
    Open(#[source] io::Error),
    /// The command `ip` returned an error.
    #[error("`ip {words}` failed: {stderr}")]
    Refused {
        /// The arguments of the `ip` command.
        words: String,
        /// The output of `ip` to stderr.
        stderr: String,
    },
}

impl NetworkNamespace {
    /// Makes a namespace, which needs root, also of a user namespace.
    ///
    /// # Errors
    /// [`NetworkError`] for the step that was not allowed.
    pub async fn new() -> Result<Self, NetworkError> {
        let scratch = Scratch::new("tombolo-network-").map_err(NetworkError::Open)?;
        let unshare = Invocation::of("unshare").arguments(["--net", "--", "sleep", "infinity"]);
        let mut maker = Process::start(&unshare, &scratch.path().join("unshare.log")).await?;
        let made = made_by(&mut maker).await?;
        let namespace = File::open(made).map_err(NetworkError::Open)?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd()).into();
        let network = Self { namespace, path };
        network.ip("link set lo up").await?;
        Ok(network)
    }

    /// A path for [`Invocation::in_network_namespace`] or `nsenter --net=PATH`, valid while this lives.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `ip WORDS` inside the namespace.
    ///
    /// # Errors
    /// [`NetworkError::Refused`] with the output of `ip`.
    pub async fn ip(&self, words: &str) -> Result<String, NetworkError> {
        let ip = Invocation::of("ip").arguments(words.split_whitespace());
        let output = run(&ip.in_network_namespace(Some(self.path.clone())), IP_MAX).await?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(NetworkError::Refused { words: words.to_owned(), stderr });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Joins two namespaces by a cable: `here` is its end in this one, `there` its end in the other. Both are
    /// up.
    ///
    /// # Errors
    /// [`NetworkError::Refused`], for one if a name is taken.
    pub async fn connect(&self, here: &str, other: &Self, there: &str) -> Result<(), NetworkError> {
        let path = other.path.display();
        self.ip(&format!("link add {here} type veth peer name {there} netns {path}")).await?;
        self.ip(&format!("link set {here} up")).await?;
        other.ip(&format!("link set {there} up")).await?;
        Ok(())
    }

    /// Moves only the calling thread into the namespace: its new sockets belong to that.
    ///
    /// # Errors
    /// An error of the system.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Another value that holds the same namespace, under a path of its own.
    ///
    /// # Errors
    /// If this process has no file descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let namespace = self.namespace.try_clone()?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd()).into();
        Ok(Self { namespace, path })
    }
}

// The maker runs in our namespace first, then in its own.
async fn made_by(maker: &mut Process) -> Result<PathBuf, NetworkError> {
    let ours = fs::read_link("/proc/self/ns/net").map_err(NetworkError::Open)?;
    let deadline = Instant::now() + MADE_MAX;
    loop {
        let Some(id) = maker.id().filter(|_| maker.ended().is_none()) else {
            return Err(NetworkError::Denied { output: maker.tail().trim().to_owned() });
        };
        let path = PathBuf::from(format!("/proc/{id}/ns/net"));
        if fs::read_link(&path).is_ok_and(|theirs| theirs != ours) {
            return Ok(path);
        }
        if Instant::now() >= deadline {
            return Err(NetworkError::Denied { output: format!("unshare was not done within {MADE_MAX:?}") });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
