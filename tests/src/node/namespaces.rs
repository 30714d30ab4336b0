//! The namespaces of a node, in which its daemons and its pods live, and with which all of them end.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::NodeError;
use crate::network::NetworkNamespace;
use crate::process::{Invocation, Process};

/// The limit for the namespaces to be set up.
const SET_UP_MAX: Duration = Duration::from_secs(20);
/// Pause between two looks whether it is.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The file in the node's folder that marks the namespaces as set up.
const DONE: &str = "box-is-set-up";

/// The beginning of every script: kubelet's changes of the machine's memory settings go to plain files in the folder `$1`.
const OWN_SETTINGS: &str = r#"own_settings() {
    for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops; do
        copy=$1/${setting##*/}
        cat "/proc/sys/$setting" >"$copy"
        mount --bind "$copy" "/proc/sys/$setting"
    done
}
"#;

/// The script of the first process in the namespaces: `$1` is the node's folder, `$2` its host name.
///
/// containerd and kubelet write only to the node's folder. The loop reaps orphaned processes.
pub(super) const SET_UP: &str = r#"set -e
mount --make-rshared /
mount -t tmpfs tmpfs /run
mkdir -p "$1/lib" "$1/log" "$1/sysctl"
mount --bind "$1/lib" /var/lib
mount --bind "$1/log" /var/log
own_settings "$1/sysctl"
echo 1 >/proc/sys/net/ipv4/ip_forward
hostname "$2"
: >"$1/box-is-set-up"
while :; do sleep 3600 & wait; done
"#;

/// A set of namespaces that a process holds; killing it kills all processes in there, and takes their mounts
/// along.
#[derive(Debug)]
pub(super) struct NodeNamespaces {
    holder: Process,
}

impl NodeNamespaces {
    /// Makes the box in a network namespace, with this folder for all that its daemons write. `script` is of its first process; its
    /// arguments are the folder and these.
    pub(super) async fn new(
        machine: &NetworkNamespace,
        folder: &Path,
        script: &str,
        arguments: Vec<String>,
    ) -> Result<Self, NodeError> {
        let namespaces = ["--mount", "--pid", "--uts", "--ipc", "--fork", "--mount-proc"];
        let unshare = Invocation::of("unshare")
            .arguments(namespaces)
            .arguments(["--kill-child=SIGKILL", "--", "sh", "-c", &format!("{OWN_SETTINGS}{script}"), "box"])
            .arguments([folder.display().to_string()])
            .arguments(arguments)
            .in_network_namespace(Some(machine.path().to_owned()));
        let mut holder = Process::start(&unshare, &folder.join("box.log")).await?;
        let deadline = Instant::now() + SET_UP_MAX;
        while !folder.join(DONE).exists() {
            if holder.ended().is_some() || Instant::now() >= deadline {
                return Err(NodeError::NotReady { what: "box", tail: holder.tail() });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(Self { holder })
    }

    /// The same program, run inside the namespaces.
    pub(super) fn inside(&self, program: &Path, arguments: &[String]) -> Invocation {
        let id = self.holder.id().expect("the box is held until it is dropped");
        // The holder itself stayed in its own process namespace; its child is the first one of the box's.
        let processes = format!("--pid=/proc/{id}/ns/pid_for_children");
        // nsenter stays outside and waits: when it is killed, so is what it has started.
        Invocation::of("nsenter")
            .arguments(["--target", &id.to_string(), "--mount", "--uts", "--ipc", "--net", &processes, "--"])
            .arguments(["setpriv", "--pdeathsig", "SIGKILL", "--"])
            .arguments([program.display().to_string()])
            .arguments(arguments.to_vec())
    }

    /// A namespace of the box as a path, `mnt` for one.
    pub(super) fn namespace(&self, kind: &str) -> PathBuf {
        let id = self.holder.id().expect("the box is held until it is dropped");
        format!("/proc/{id}/ns/{kind}").into()
    }
}
