//! Finds out whether this process may make network namespaces, and chooses an alternative where it may not.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The means by which the clusters are kept apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Isolation {
    /// The clusters get network namespaces that this process may make without further rights.
    Namespaces,
    /// The same, after this process has become root of a user namespace of its own.
    UserNamespace,
    /// Each cluster gets a loopback address of its own.
    Loopback {
        /// The reason why namespaces are not available.
        reason: String,
    },
}

impl Isolation {
    /// Tries what is needed, best first. Where a user namespace is the way, this process starts itself again
    /// in one and does not return.
    pub fn find() -> Self {
        if probe(&["unshare", "--net"]).is_ok() {
            return Self::Namespaces;
        }
        match probe(&["unshare", "-Ur", "--net"]).and_then(|()| become_root_of_a_user_namespace()) {
            Ok(never) => match never {},
            Err(reason) => Self::Loopback { reason },
        }
    }

    /// A line of the demo's output that explains the choice.
    pub fn explain(&self) -> String {
        match self {
            Self::Namespaces => {
                "this user may make network namespaces: the cloud and each edge get one".to_owned()
            }
            Self::UserNamespace => {
                "not root, so in a user namespace (unshare -Ur): the cloud and each edge get a network namespace in it"
                    .to_owned()
            }
            Self::Loopback { reason } => format!(
                "without network namespaces ({reason}): each edge gets a loopback address, and both still believe \
                 that they are 192.168.1.10"
            ),
        }
    }
}

enum Never {}

// A cable takes all there is: the right to make a namespace, the right to change it, `ip`, and the kernel's
// module.
fn probe(enter: &[&str]) -> Result<(), String> {
    let cable = ["ip", "link", "add", "here", "type", "veth", "peer", "name", "there"];
    let output = Command::new(enter[0])
        .args(&enter[1..])
        .arg("--")
        .args(cable)
        .output()
        .map_err(|error| format!("{} cannot be run: {error}", enter[0]))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{}` says: {}", enter.join(" "), message.trim().lines().last().unwrap_or("nothing")))
}

// The process stays the same one, so that its parent can still signal and await it.
fn become_root_of_a_user_namespace() -> Result<Never, String> {
    let own = env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))?;
    let error = Command::new("unshare")
        .args(["-Ur", "--"])
        .arg(own)
        .arg("--in-user-namespace")
        .args(env::args_os().skip(1))
        .exec();
    Err(format!("unshare cannot be run: {error}"))
}
