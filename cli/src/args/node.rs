//! The arguments of `tombolo node`: a machine becomes a worker of a cluster, and stops being one.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use trust::Pin;

use super::examples;
use crate::names::{BootstrapToken, Validity, ca_hash, host_and_port, node_name};

#[derive(Subcommand)]
pub(crate) enum NodeCommand {
    /// Print the command by which a machine joins a cluster as a worker
    ///
    /// Makes a bootstrap token in the cluster, and prints the command with it, the hash of the cluster's CA and all its API servers. Needs
    /// the kubeconfig of an administrator, and a cluster with kubeadm's ConfigMap cluster-info. Everybody who has the command can join a
    /// machine until the token ends, so treat it as a password.
    #[command(after_long_help = examples::NODE_JOIN_COMMAND)]
    JoinCommand(NodeJoinCommand),
    /// Make this machine a worker of a cluster, whose kubelet reaches the API servers by a load balancer of its own
    ///
    /// Learns the cluster's CA from the first API server that proves with the token that it is the right one. Checks that the certificate of
    /// each API server names 127.0.0.1, the clocks, the container runtime, swap, ports and kubelet's version. Then writes the CA, the
    /// configurations and the units for systemd, starts node-lb and kubelet, and waits until the Node is Ready. The token is removed from the
    /// machine at the end. With --only-lb it sets up node-lb alone, and kubeadm joins the machine through it: kubeadm join 127.0.0.1:7443.
    ///
    /// Each step is written down before it is done. If the command is interrupted, run it again; `tombolo node reset` takes back exactly what
    /// it did. Nothing is replaced that it did not write.
    #[command(after_long_help = examples::NODE_JOIN)]
    Join(NodeJoin),
    /// Take over the CAs that the cluster has now, while they are exchanged
    ///
    /// For workers of a tenant whose CAs are being replaced by `tombolo tenant certificates rotate-ca`, once after each of its steps. Reads the
    /// CAs from the ConfigMap cluster-info of an API server that a CA of this machine authenticates, writes them for kubelet and node-lb, and
    /// gets kubelet a certificate of the newest one. Then it restarts kubelet, if anything is new: pods run on, and an exec or attach to one of
    /// them ends. Annotations of the Node say what the machine has, so that no step leaves it behind.
    #[command(after_long_help = examples::NODE_ROTATE_CA)]
    RotateCa(NodeRotateCa),
    /// Take back what `tombolo node join` did on this machine
    ///
    /// Stops kubelet and node-lb, removes the machine's pods and the rules of kubelet and kube-proxy, and then the files and folders that the
    /// join has made. What others have put into these folders stays. The Node stays in the cluster: kubectl delete node NAME.
    #[command(after_long_help = examples::NODE_RESET)]
    Reset(NodeReset),
}

#[derive(Args)]
pub(crate) struct NodeJoinCommand {
    /// The kubeconfig of an administrator [default: the first of $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of that kubeconfig [default: its current-context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Print the command for kubeadm's own join, through the load balancer
    #[arg(long)]
    pub(crate) only_lb: bool,
    /// The time in which a machine can join with the token
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub(crate) ttl: Validity,
    /// An API server as workers reach it; repeat for more [default: those that the cluster lists]
    #[arg(long = "api-server", value_name = "HOST:PORT", value_parser = host_and_port)]
    pub(crate) api_servers: Vec<String>,
}

#[derive(Args)]
pub(crate) struct NodeJoin {
    /// Set up the load balancer and nothing else; kubeadm does the rest of a join
    #[arg(long)]
    pub(crate) only_lb: bool,
    /// The bootstrap token of the cluster
    #[arg(long, value_name = "TOKEN", required_unless_present = "token_file", conflicts_with = "token_file")]
    pub(crate) token: Option<BootstrapToken>,
    /// A file with the bootstrap token, which other users of this machine then do not see in the list of processes
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The hash of the cluster's CA, as `tombolo node join-command` prints it
    #[arg(long, value_name = "sha256:HASH", value_parser = ca_hash)]
    pub(crate) ca_hash: Pin,
    /// An API server of the cluster; repeat for more, at most 32
    #[arg(long = "api-server", value_name = "HOST:PORT", required = true, value_parser = host_and_port)]
    pub(crate) api_servers: Vec<String>,
    /// The name of this machine's Node [default: its host name]
    #[arg(long, value_name = "NAME", conflicts_with = "only_lb", value_parser = node_name)]
    pub(crate) node_name: Option<String>,
    /// The address of this machine's Node [default: as kubelet finds it, by the default route]
    #[arg(long, value_name = "IP", conflicts_with = "only_lb")]
    pub(crate) node_ip: Option<IpAddr>,
    /// The socket of the container runtime [default: the only one of containerd, CRI-O and cri-dockerd]
    #[arg(long, value_name = "FILE", conflicts_with = "only_lb")]
    pub(crate) cri_socket: Option<PathBuf>,
    /// Write the files, and print how the units are started
    #[arg(long)]
    pub(crate) no_start: bool,
    /// Ask the API servers, print all files, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The root folder of the machine, another one for an image
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
}

#[derive(Args)]
pub(crate) struct NodeReset {
    /// The root folder of the machine, another one for an image
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
}

#[derive(Args)]
pub(crate) struct NodeRotateCa {
    /// The API server to ask
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7443", value_parser = host_and_port)]
    pub(crate) api_server: String,
    /// The root folder of the machine, another one for an image
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
}
