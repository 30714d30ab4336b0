//! The flags of every command that writes a copy of a cluster's own kubeconfig.

use std::path::PathBuf;

use clap::Args;

/// The kubeconfig that is copied, and its context.
#[derive(Args)]
pub(crate) struct ClusterKubeconfig {
    /// The cluster's own kubeconfig, which is not changed
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// The context to use [default: its current-context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// The file that the copy is written to.
#[derive(Args)]
pub(crate) struct CopyOutput {
    /// The file to write the copy to, with mode 0600
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Replace the output file if it exists
    #[arg(long)]
    pub(crate) force: bool,
}
