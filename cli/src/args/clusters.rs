//! The arguments of `tombolo cluster`, `agent` and `token`, which use a server's admin API.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use proto::ClusterId;

use super::admin_endpoint::AdminServerArgs;
use super::{ClustersArgs, examples};
use crate::names::{Label as DnsLabel, Validity};

#[derive(Subcommand)]
pub(crate) enum ClusterCommand {
    /// Create a cluster, so that its agents may connect
    #[command(after_long_help = examples::CLUSTER_CREATE)]
    Create(ClusterCreate),
    /// Show the clusters, like `tombolo clusters`
    #[command(after_long_help = examples::CLUSTER_LIST)]
    List(ClustersArgs),
    /// Set or remove a cluster's labels
    #[command(after_long_help = examples::CLUSTER_LABEL)]
    Label(ClusterLabel),
    /// Change a cluster's networks, and the addresses that its agents may advertise
    ///
    /// A list that is given replaces the whole present list; a list that is not given stays.
    #[command(after_long_help = examples::CLUSTER_UPDATE)]
    Update(ClusterUpdate),
    /// Check whether the cluster's own kubeconfig, such as kubeadm's admin.conf, reaches it by its control-plane address
    ///
    /// Names the list in which the kubeconfig's address or name is missing, and how to add it. Does not check the policy: see
    /// `tombolo policy explain`. The exit code is 1 if the cluster is not reached.
    #[command(after_long_help = examples::CLUSTER_CHECK)]
    Check(ClusterCheck),
    /// Delete a cluster: its tunnels end, its agents are refused, and its name stays reserved
    #[command(after_long_help = examples::CLUSTER_DELETE)]
    Delete(ClusterDelete),
    /// Show and change the attestation by which further pods of an agent enroll without a token
    ///
    /// The first agent that enrolls with a token in a pod records its ServiceAccount and the keys of its issuer. Further pods of
    /// that account then need no token.
    #[command(subcommand, after_long_help = examples::CLUSTER_ATTESTATION)]
    Attestation(AttestationCommand),
}

#[derive(Subcommand)]
pub(crate) enum AttestationCommand {
    /// Show the recorded ServiceAccount and issuer keys
    #[command(after_long_help = examples::ATTESTATION_SHOW)]
    Show(AttestationOf),
    /// Replace the recorded issuer keys
    ///
    /// If keys are rotated one by one, agents report each new key by themselves at their next renewal. If all keys were replaced at
    /// once, the server cannot verify the new ones, and you have to record them.
    #[command(after_long_help = examples::ATTESTATION_SET_KEYS)]
    SetKeys(AttestationSetKeys),
    /// Forget the recorded account, issuer and keys; the next agent that enrolls with a token records its own
    #[command(after_long_help = examples::ATTESTATION_FORGET)]
    Forget(AttestationOf),
    /// Let pods enroll by their ServiceAccount again, after `tombolo agent revoke --cluster` has stopped that
    ///
    /// Pods that were disconnected by it come back when they are recreated (`kubectl rollout restart`), or at their next renewal.
    #[command(after_long_help = examples::ATTESTATION_REOPEN)]
    Reopen(AttestationOf),
}

#[derive(Args)]
pub(crate) struct AttestationOf {
    /// The name of the cluster
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(Args)]
pub(crate) struct AttestationSetKeys {
    /// The name of the cluster
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    /// A file with a JSON Web Key Set, as `kubectl get --raw /openid/v1/jwks` prints it in that cluster
    #[arg(long, value_name = "FILE")]
    pub(crate) keys: PathBuf,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(Args)]
pub(crate) struct ClusterCreate {
    /// The name of the cluster, a DNS label
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    /// A label in the form of Kubernetes' labels; repeat for more
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) labels: Vec<(String, String)>,
    /// A network to which its addresses belong, a DNS label; repeat for more
    #[arg(long = "network", value_name = "NETWORK")]
    pub(crate) networks: Vec<DnsLabel>,
    /// An address that its agents may advertise: HOST:PORT, or a CIDR; repeat for more
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) advertise: Vec<String>,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(Args)]
pub(crate) struct ClusterLabel {
    /// The name of the cluster
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    /// A label to set, or the name of a label to remove with a '-' after it
    #[arg(value_name = "NAME=VALUE|NAME-", required = true)]
    pub(crate) labels: Vec<LabelChange>,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(Args)]
pub(crate) struct ClusterUpdate {
    /// The name of the cluster
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    /// A network to which its addresses belong; repeat for more, empty for none
    #[arg(long = "network", value_name = "NETWORK", required_unless_present = "advertise")]
    pub(crate) networks: Option<Vec<String>>,
    /// An address that its agents may advertise: HOST:PORT, or a CIDR; repeat for more, empty for none
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) advertise: Option<Vec<String>>,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(Args)]
pub(crate) struct ClusterCheck {
    /// The name of the cluster
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    /// The cluster's own kubeconfig, which is not changed
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// The context to use [default: its current-context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(Args)]
pub(crate) struct ClusterDelete {
    /// The name of the cluster
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    /// Do not ask. Without it, you type the cluster's name at the terminal
    #[arg(long, short)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(Subcommand)]
pub(crate) enum AgentCommand {
    /// List the enrolled agents of all clusters, or of one
    #[command(after_long_help = examples::AGENT_LIST)]
    List(AgentList),
    /// Revoke an agent: refuse it from now on, and end its tunnels
    #[command(after_long_help = examples::AGENT_REVOKE)]
    Revoke(AgentRevoke),
}

#[derive(Args)]
pub(crate) struct AgentList {
    /// List only agents of this cluster
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: Option<ClusterId>,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token with which one agent of a cluster enrolls, once
    ///
    /// The token is shown once. Its holder can become an agent of the cluster: carry it in a file, never on a command line.
    #[command(after_long_help = examples::TOKEN_CREATE)]
    Create(TokenCreate),
    /// List the tokens, without their secrets
    #[command(after_long_help = examples::TOKEN_LIST)]
    List(TokenList),
    /// Revoke a token that was not used yet
    #[command(after_long_help = examples::TOKEN_REVOKE)]
    Revoke(TokenRevoke),
}

#[derive(Args)]
pub(crate) struct TokenCreate {
    /// The agent's cluster, which must exist (tombolo cluster create)
    #[arg(long, value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    /// The lifetime of the token, from 1m to 1h
    #[arg(long, value_name = "TIME", default_value = "15m")]
    pub(crate) ttl: Validity,
    /// Print only the token, or a Secret for `kubectl apply`, in place of instructions
    #[arg(long, short, value_name = "FORMAT")]
    pub(crate) output: Option<TokenOutput>,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenOutput {
    Token,
    Manifest,
}

#[derive(Args)]
pub(crate) struct TokenList {
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(Args)]
pub(crate) struct TokenRevoke {
    /// The token's id, as `tombolo token list` shows it
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(Args)]
#[group(id = "whom", required = true, multiple = false)]
pub(crate) struct AgentRevoke {
    /// An agent, as `tombolo clusters --output wide` shows it
    #[arg(value_name = "CLUSTER/AGENT", group = "whom")]
    pub(crate) agent: Option<OneAgent>,
    /// All agents of a cluster whose certificates were issued before now; no pod enrolls by its ServiceAccount until `tombolo
    /// cluster attestation reopen`
    #[arg(long, value_name = "CLUSTER", group = "whom")]
    pub(crate) cluster: Option<ClusterId>,
    /// One certificate, by its serial number in hexadecimal
    #[arg(long, value_name = "SERIAL", group = "whom")]
    pub(crate) serial: Option<String>,
    /// Revoke it also if it is neither enrolled nor connected at this server; without this flag a mistyped name is an error
    #[arg(long, conflicts_with = "serial")]
    pub(crate) unseen: bool,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

/// A change of one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LabelChange {
    Set(String, String),
    Remove(String),
}

/// One agent of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OneAgent {
    pub(crate) cluster: ClusterId,
    pub(crate) instance: String,
}

/// An argument that could not be parsed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArgumentError {
    #[error("use NAME=VALUE")]
    Pair,
    #[error("use NAME=VALUE to set a label, or NAME- to remove it")]
    LabelChange,
    #[error("use CLUSTER/AGENT, as `tombolo clusters --output wide` shows them")]
    Agent,
}

fn pair(text: &str) -> Result<(String, String), ArgumentError> {
    let (name, value) = text.split_once('=').ok_or(ArgumentError::Pair)?;
    Ok((name.to_owned(), value.to_owned()))
}

impl FromStr for LabelChange {
    type Err = ArgumentError;

    fn from_str(text: &str) -> Result<Self, ArgumentError> {
        if let Ok((name, value)) = pair(text) {
            return Ok(Self::Set(name, value));
        }
        let name = text.strip_suffix('-').ok_or(ArgumentError::LabelChange)?;
        Ok(Self::Remove(name.to_owned()))
    }
}

impl FromStr for OneAgent {
    type Err = ArgumentError;

    fn from_str(text: &str) -> Result<Self, ArgumentError> {
        let (cluster, instance) = text.split_once('/').ok_or(ArgumentError::Agent)?;
        let cluster = cluster.parse().map_err(|_| ArgumentError::Agent)?;
        Ok(Self { cluster, instance: instance.to_owned() })
    }
}
