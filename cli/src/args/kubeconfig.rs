//! The arguments of `tombolo kubeconfig`.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use proto::ClusterId;

use super::caller_credential::CallerCredentialArgs;
use crate::names::{GatewayUrl, HostSuffix, Label};

#[derive(Args)]
pub(crate) struct KubeconfigArgs {
    #[arg(long, value_name = "URL", help = "The URL of the gateway: https://HOST[:PORT]")]
    pub(crate) gateway: Option<GatewayUrl>,
    /// The CA certificates of the gateway (server-ca.crt)
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) credential: CallerCredentialArgs,
    /// A cluster to reach; repeat for more
    #[arg(long = "cluster", value_name = "CLUSTER", required_unless_present = "cluster_sets")]
    pub(crate) clusters: Vec<ClusterId>,
    /// A cluster set to read, such as global; repeat for more
    #[arg(long = "cluster-set", value_name = "SET")]
    pub(crate) cluster_sets: Vec<Label>,
    /// Reach clusters as CLUSTER.SUFFIX, for tools that drop the path of a server's URL
    #[arg(long, value_name = "SUFFIX")]
    pub(crate) host_names: Option<HostSuffix>,
    /// Embed certificates, key and token in the kubeconfig; if false, it has the paths of their files
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) embed_certs: bool,
    /// Name a program that hands out the credential (an exec plugin) in place of the credential: `tombolo credential`, or the same of
    /// this path of the program
    #[arg(long, value_name = "COMMAND", num_args = 0..=1, require_equals = true)]
    #[expect(clippy::option_option, reason = "the flag, and its value")]
    pub(crate) exec: Option<Option<String>>,
    /// Write this file, with mode 0600, instead of printing
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the output file if it exists
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
}
