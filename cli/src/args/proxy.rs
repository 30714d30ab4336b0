//! The words of `tombolo proxy`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use proto::ClusterId;

use crate::names::{GatewayUrl, Label};

#[derive(Args)]
pub(crate) struct Proxy {
    #[arg(long, value_name = "URL", help = "Where the gateway is: https://HOST[:PORT]")]
    pub(crate) gateway: Option<GatewayUrl>,
    /// Certificates that vouch for the gateway (server-ca.crt)
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Your certificate for the gateway
    #[arg(long, value_name = "FILE", requires = "key", conflicts_with = "token_file")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of your certificate
    #[arg(long, value_name = "FILE", requires = "cert", conflicts_with = "token_file")]
    pub(crate) key: Option<PathBuf>,
    /// A file with your bearer token for the gateway, in place of a certificate
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The cluster to reach
    #[arg(long, value_name = "CLUSTER", required_unless_present = "network")]
    pub(crate) cluster: Option<ClusterId>,
    /// The network to reach, in place of one cluster: the cluster of it that has the address is meant
    #[arg(long, value_name = "NETWORK", conflicts_with = "cluster")]
    pub(crate) network: Option<Label>,
    /// The cluster's own kubeconfig, which is not changed; with --network, of one or more clusters of that
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// Its context to use [default: its current-context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Where to listen, on this machine alone; port 0 for a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Have the copy come by SOCKS5 in place of HTTP CONNECT; the port serves both
    #[arg(long)]
    pub(crate) socks5: bool,
    /// Write the copy here, with mode 0600, instead of a temporary directory
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the output file if it is already there
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
}
