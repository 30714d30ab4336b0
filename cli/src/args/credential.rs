//! The arguments of `tombolo credential`.

use std::path::PathBuf;

use clap::Args;

use super::caller_credential::CallerCredentialArgs;

#[derive(Args)]
pub(crate) struct CredentialArgs {
    #[command(flatten)]
    pub(crate) credential: CallerCredentialArgs,
    /// Copy this program to FILE and print nothing: for an init container, whose image has nothing else that could copy it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cert", "key", "token_file"])]
    pub(crate) install: Option<PathBuf>,
}
