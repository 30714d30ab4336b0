//! The words of every command that writes a copy of a cluster's own kubeconfig.

use std::path::PathBuf;

use clap::Args;

/// What is copied.
#[derive(Args)]
pub(crate) struct OwnKubeconfig {
    /// The cluster's own kubeconfig, which is not changed
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// Its context to use [default: its current-context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// Where the copy goes.
#[derive(Args)]
pub(crate) struct CopyPlace {
    /// Where to write the copy, with mode 0600
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Replace the output file if it is already there
    #[arg(long)]
    pub(crate) force: bool,
}
