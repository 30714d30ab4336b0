//! The words of `tombolo passthrough`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::names::GatewayUrl;

#[derive(Args)]
pub(crate) struct Passthrough {
    #[arg(
        long,
        value_name = "URL",
        help = "The cluster's name at the server's passthrough: https://NAME[:PORT]"
    )]
    pub(crate) server: GatewayUrl,
    /// The cluster's own kubeconfig, which is not changed
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// Its context to use [default: its current-context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Where the passthrough is for the check, if this machine's DNS does not know the name yet
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) address: Option<SocketAddr>,
    /// Where to write the copy, with mode 0600
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Replace the output file if it is already there
    #[arg(long)]
    pub(crate) force: bool,
}
