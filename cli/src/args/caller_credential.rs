//! The flags for the credential that a caller shows to the gateway.

use std::path::PathBuf;

use clap::Args;

#[derive(Args)]
pub(crate) struct CallerCredentialArgs {
    /// Your certificate for the gateway
    #[arg(long, value_name = "FILE", requires = "key", conflicts_with = "token_file")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of your certificate
    #[arg(long, value_name = "FILE", requires = "cert", conflicts_with = "token_file")]
    pub(crate) key: Option<PathBuf>,
    /// A file with your bearer token for the gateway, in place of a certificate
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}
