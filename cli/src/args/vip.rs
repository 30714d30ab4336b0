//! The words of `tombolo vip`.

use std::path::PathBuf;

use clap::Args;

use crate::names::GatewayUrl;

#[derive(Args)]
pub(crate) struct Vip {
    #[arg(
        long,
        value_name = "URL",
        help = "Where the server has the cluster: https://NAME.NAMESPACE.svc of its Service, or https://ADDRESS[:PORT]"
    )]
    pub(crate) server: GatewayUrl,
    /// The cluster's own kubeconfig, which is not changed
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// Its context to use [default: its current-context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Where to write the copy, with mode 0600
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Replace the output file if it is already there
    #[arg(long)]
    pub(crate) force: bool,
}
