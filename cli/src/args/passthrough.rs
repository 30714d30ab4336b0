//! The words of `tombolo passthrough`.

use std::net::SocketAddr;

use clap::Args;

use super::copied::{CopyPlace, OwnKubeconfig};
use crate::names::GatewayUrl;

#[derive(Args)]
pub(crate) struct Passthrough {
    #[arg(
        long,
        value_name = "URL",
        help = "The cluster's name at the server's passthrough: https://NAME[:PORT]"
    )]
    pub(crate) server: GatewayUrl,
    #[command(flatten)]
    pub(crate) own: OwnKubeconfig,
    /// Where the passthrough is for the check, if this machine's DNS does not know the name yet
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) address: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) copy: CopyPlace,
}
