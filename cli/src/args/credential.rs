//! The arguments of `tombolo credential`.

use std::path::PathBuf;

use clap::Args;

#[derive(Args)]
pub(crate) struct CredentialArgs {
    /// Your certificate for the gateway
    #[arg(long, value_name = "FILE", requires = "key", conflicts_with = "token_file")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of your certificate
    #[arg(long, value_name = "FILE", requires = "cert", conflicts_with = "token_file")]
    pub(crate) key: Option<PathBuf>,
    /// A file with your bearer token, or the projected ServiceAccount token of a pod, in place of a certificate
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Copy this program to FILE and print nothing: for an init container, whose image has nothing else that could copy it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cert", "key", "token_file"])]
    pub(crate) install: Option<PathBuf>,
}
