//! The words of `tombolo vip`.

use clap::Args;

use super::copied::{CopyPlace, OwnKubeconfig};
use crate::names::GatewayUrl;

#[derive(Args)]
pub(crate) struct Vip {
    #[arg(
        long,
        value_name = "URL",
        help = "Where the server has the cluster: https://NAME.NAMESPACE.svc of its Service, or https://ADDRESS[:PORT]"
    )]
    pub(crate) server: GatewayUrl,
    #[command(flatten)]
    pub(crate) own: OwnKubeconfig,
    #[command(flatten)]
    pub(crate) copy: CopyPlace,
}
