//! The arguments of `tombolo proxy`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use proto::ClusterId;

use super::caller_credential::CallerCredentialArgs;
use crate::names::{GatewayUrl, Label};

#[derive(Args)]
pub(crate) struct ProxyArgs {
    #[arg(long, value_name = "URL", help = "The URL of the gateway: https://HOST[:PORT]")]
    pub(crate) gateway: Option<GatewayUrl>,
    /// The CA certificates of the gateway (server-ca.crt)
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) credential: CallerCredentialArgs,
    /// The cluster to which connections go
    #[arg(long, value_name = "CLUSTER", required_unless_present = "network")]
    pub(crate) cluster: Option<ClusterId>,
    /// The network to reach, in place of one cluster; an address leads to the cluster of the network that has it
    #[arg(long, value_name = "NETWORK", conflicts_with = "cluster")]
    pub(crate) network: Option<Label>,
    /// The cluster's own kubeconfig, which is not changed; with --network, one for clusters of that network
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// The context to use [default: its current-context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The loopback address to listen on; port 0 for a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Let the copy use SOCKS5 in place of HTTP CONNECT; the port serves both
    #[arg(long)]
    pub(crate) socks5: bool,
    /// The file to write the copy to, with mode 0600, in place of a temporary directory
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the output file if it exists
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
}
