//! The machine that joins: what stands in the way of a worker, and what it has.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::journal::{Journal, Step};
use super::programs;
use super::systemd::{KUBELET_UNIT, NODE_LB_UNIT};
use crate::names::node_name;

/// The credential of a kubelet that has joined.
pub(super) const KUBELET_KUBECONFIG: &str = "etc/kubernetes/kubelet.conf";

/// The folder of kubelet's state.
pub(super) const KUBELET_STATE: &str = "var/lib/kubelet";

const NODE_LB: &str = "usr/bin/node-lb";
const KUBELETS: [&str; 2] = ["usr/bin/kubelet", "usr/local/bin/kubelet"];

/// The address of node-lb on a worker.
pub(super) const LB: &str = "127.0.0.1:7443";

/// The addresses that node-lb listens at.
const NODE_LB_PORTS: [&str; 2] = [LB, "127.0.0.1:9092"];

/// The addresses that kubelet listens at: its API, and its own health.
const KUBELET_PORTS: [&str; 2] = ["127.0.0.1:10250", "127.0.0.1:10248"];

/// The sockets of container runtimes, of containerd, CRI-O and Docker.
const RUNTIMES: [&str; 3] =
    ["/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/cri-dockerd.sock"];

/// The reason why this machine cannot be joined as it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MachineError {
    #[error("only root can write the files of a worker; run the same command by sudo")]
    NotRoot,
    #[error(
        "{0} is there: this machine has joined a cluster already. Leave it first (tombolo node reset, or kubeadm reset)"
    )]
    AlreadyJoined(PathBuf),
    #[error("{0} is not there; install node-lb first, from the archive of a release")]
    NoNodeLB(PathBuf),
    #[error(
        "there is no kubelet in /usr/bin and /usr/local/bin; install the package kubelet, of the cluster's version"
    )]
    NoKubelet,
    #[error("{0} does not say its version (kubelet --version)")]
    NoVersion(PathBuf),
    #[error("another program listens at {0}, which {1} needs; see who by: ss -ltnp")]
    PortTaken(&'static str, &'static str),
    #[error("{0} is not empty: a kubelet has run here. Move the folder away if nothing needs it")]
    KubeletRanHere(PathBuf),
    #[error("the host name {0:?} is no name for a Node; give one with --node-name")]
    HostName(String),
    #[error("no container runtime has a socket at {}; install containerd, or name the socket with --cri-socket", RUNTIMES.join(" or "))]
    NoRuntime,
    #[error("there are several container runtimes, at {0}; name one with --cri-socket")]
    SeveralRuntimes(String),
    #[error(
        "swap is on, and kubelet does not start so; turn it off (swapoff -a, and its line in /etc/fstab), or set failSwapOn: false in the cluster's ConfigMap kubelet-config"
    )]
    Swap,
}

/// Refuses a machine that has joined a cluster, or that this user cannot change.
pub(super) fn can_join(root: &Path, journal: &Journal) -> Result<(), MachineError> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !is_root {
        return Err(MachineError::NotRoot);
    }
    let kubelet = root.join(KUBELET_KUBECONFIG);
    // kubelet writes it at the end of a join, which may have been interrupted after that.
    if kubelet.exists() && !journal.has(&Step::unit(KUBELET_UNIT)) {
        return Err(MachineError::AlreadyJoined(kubelet));
    }
    Ok(())
}

/// Refuses a machine on which node-lb cannot be started.
pub(super) fn can_run_node_lb(root: &Path, journal: &Journal) -> Result<(), MachineError> {
    let program = root.join(NODE_LB);
    if !program.exists() {
        return Err(MachineError::NoNodeLB(program));
    }
    // An earlier run may have started it.
    if journal.has(&Step::unit(NODE_LB_UNIT)) { Ok(()) } else { free(&NODE_LB_PORTS, "node-lb") }
}

/// Refuses a machine on which kubelet runs or has run.
pub(super) fn can_run_kubelet(root: &Path, journal: &Journal) -> Result<(), MachineError> {
    if journal.has(&Step::unit(KUBELET_UNIT)) {
        return Ok(());
    }
    let state = root.join(KUBELET_STATE);
    let is_ours = journal.has(&Step::State { path: state.clone() })
        || journal.has(&Step::Contents { path: state.clone() });
    let is_used = fs::read_dir(&state).is_ok_and(|mut entries| entries.next().is_some());
    if is_used && !is_ours {
        return Err(MachineError::KubeletRanHere(state));
    }
    free(&KUBELET_PORTS, "kubelet")
}

/// Returns true if kubelet takes connections of API servers.
pub(super) fn kubelet_listens() -> bool {
    TcpStream::connect(KUBELET_PORTS[0]).is_ok()
}

fn free(addresses: &[&'static str], program: &'static str) -> Result<(), MachineError> {
    let taken = addresses.iter().find(|address| TcpStream::connect(address).is_ok());
    taken.map_or(Ok(()), |address| Err(MachineError::PortTaken(address, program)))
}

/// kubelet of this machine: its path in the machine, and its version.
pub(super) struct KubeletProgram {
    pub(super) path: String,
    pub(super) version: String,
}

/// Finds kubelet, and asks it for its version.
pub(super) fn kubelet(root: &Path) -> Result<KubeletProgram, MachineError> {
    let path = KUBELETS.iter().find(|path| root.join(path).exists()).ok_or(MachineError::NoKubelet)?;
    let program = root.join(path);
    let text = programs::run(&program.display().to_string(), &["--version"]).unwrap_or_default();
    // `Kubernetes v1.36.3`
    match text.trim().strip_prefix("Kubernetes ") {
        Some(version) => Ok(KubeletProgram { path: format!("/{path}"), version: version.to_owned() }),
        None => Err(MachineError::NoVersion(program)),
    }
}

/// The name of the machine's Node: the given one, or the host name in lower case, as kubelet takes it.
pub(super) fn name(given: Option<&str>) -> Result<String, MachineError> {
    if let Some(name) = given {
        return Ok(name.to_owned());
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim().to_lowercase();
    node_name(&host).map_err(|_| MachineError::HostName(host))
}

/// The socket of the container runtime: the given one, or the only one that is there.
pub(super) fn runtime(given: Option<&Path>) -> Result<PathBuf, MachineError> {
    if let Some(socket) = given {
        return Ok(socket.to_owned());
    }
    let found: Vec<&str> = RUNTIMES.into_iter().filter(|socket| Path::new(socket).exists()).collect();
    match found.as_slice() {
        [one] => Ok(PathBuf::from(one)),
        [] => Err(MachineError::NoRuntime),
        several => Err(MachineError::SeveralRuntimes(several.join(", "))),
    }
}

/// Refuses swap, for a kubelet that does not start with it.
pub(super) fn has_no_swap() -> Result<(), MachineError> {
    // The first line is a heading.
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    if swaps.lines().count() > 1 { Err(MachineError::Swap) } else { Ok(()) }
}

/// The file with DNS servers for pods where systemd-resolved serves the machine's own `/etc/resolv.conf`, which pods cannot reach.
pub(super) fn resolver_of_pods() -> Option<&'static str> {
    const RESOLVED: &str = "/run/systemd/resolve/resolv.conf";
    Path::new(RESOLVED).exists().then_some(RESOLVED)
}
