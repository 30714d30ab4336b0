//! The arguments of `tombolo vip`.

use clap::Args;

use super::kubeconfig_copy::{ClusterKubeconfig, CopyOutput};
use crate::names::GatewayUrl;

#[derive(Args)]
pub(crate) struct VipArgs {
    #[arg(
        long,
        value_name = "URL",
        help = "The virtual address of the cluster: https://NAME.NAMESPACE.svc of its Service, or https://ADDRESS[:PORT]"
    )]
    pub(crate) server: GatewayUrl,
    #[command(flatten)]
    pub(crate) own: ClusterKubeconfig,
    #[command(flatten)]
    pub(crate) copy: CopyOutput,
}
