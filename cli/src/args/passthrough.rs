//! The arguments of `tombolo passthrough`.

use std::net::SocketAddr;

use clap::Args;

use super::kubeconfig_copy::{ClusterKubeconfig, CopyOutput};
use crate::names::GatewayUrl;

#[derive(Args)]
pub(crate) struct PassthroughArgs {
    #[arg(
        long,
        value_name = "URL",
        help = "The URL of the cluster at the server's passthrough: https://NAME[:PORT]"
    )]
    pub(crate) server: GatewayUrl,
    #[command(flatten)]
    pub(crate) own: ClusterKubeconfig,
    /// The address of the passthrough for the check, if this machine's DNS does not know the name yet
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) address: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) copy: CopyOutput,
}
