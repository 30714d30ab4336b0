//! The arguments of `tombolo cluster`, `agent` and `token`, which use a server's admin API.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use policy::{LABEL_BYTES_MAX, is_label_name, is_label_value};
use proto::ClusterId;

use super::admin_endpoint::AdminServerArgs;
use super::cluster_list::ClustersArgs;
use super::examples;
use super::join::{JoinArgs, SiteArgs};
use crate::names::{Label as DnsLabel, Validity};

#[derive(Subcommand)]
pub(crate) enum ClusterCommand {
    /// Create a cluster, so that its agents may connect
    #[command(after_long_help = examples::CLUSTER_CREATE)]
    Create(ClusterCreate),
    /// Show the clusters of a server
    ///
    /// Uses the server's admin socket: run it on the server's machine, as root or as the server's user; or, with --server, from
    /// another machine with an administrator's certificate. The exit code is 1 if the server does not answer or does not know
    /// a cluster that was named.
    ///
    /// `tombolo clusters` is the old spelling of this command, and goes on working.
    #[command(after_long_help = examples::CLUSTER_LIST)]
    List(ClustersArgs),
    /// Set or remove a cluster's labels
    ///
    /// As with kubectl, NAME=VALUE sets a label and NAME- removes it. Names and values are those of Kubernetes' labels: a name may
    /// have a domain and a slash in front, and a value may be empty.
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
    ///
    /// For 90 days nobody can create a cluster of this name, and `tombolo cluster undelete` brings it back. The agents' certificates
    /// stay refused for ever.
    #[command(after_long_help = examples::CLUSTER_DELETE)]
    Delete(ClusterDelete),
    /// Bring a deleted cluster back, within 90 days
    ///
    /// It brings back the name, the labels, the networks, the addresses that its agents may advertise, its virtual address, and
    /// what policies and dial tokens allow in it.
    ///
    /// It does not bring back its agents. A deletion may have been meant for a stolen certificate, so each certificate that was issued
    /// before stays refused, and revoked agents stay revoked. Enrollment tokens and the recorded ServiceAccount are gone, too. Let
    /// each site enroll again (`tombolo token create`), or issue new certificates (`tombolo ca issue agent`).
    ///
    /// The role operator may do this, as it may delete, and the audit log has both.
    #[command(after_long_help = examples::CLUSTER_UNDELETE)]
    Undelete(ClusterUndelete),
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
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// A network to which its addresses belong, a DNS label; repeat for more
    #[arg(long = "network", value_name = "NETWORK")]
    pub(crate) networks: Vec<DnsLabel>,
    /// An address that its agents may advertise: HOST:PORT, or a CIDR; repeat for more
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) advertise: Vec<String>,
    #[command(flatten)]
    pub(crate) join: JoinArgs,
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
    #[arg(long = "network", value_name = "NETWORK")]
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

#[derive(Args)]
pub(crate) struct ClusterUndelete {
    /// The name of the cluster
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(Subcommand)]
pub(crate) enum AgentCommand {
    /// List the agents of all clusters, or of one: those that were enrolled, and those that are connected
    ///
    /// An agent with a certificate that was issued by hand has the state ByHand, and is listed while it is connected.
    #[command(after_long_help = examples::AGENT_LIST)]
    List(AgentList),
    /// Revoke an agent: refuse it from now on, and end its tunnels
    ///
    /// `tombolo agent restore` takes the revocation of one agent or of one certificate back. That of all agents of a cluster holds
    /// for ever: it asks for the cluster's name first, or needs --yes.
    ///
    /// Servers that share their records have it within a second. If one of them has not confirmed it by then, it is named with the
    /// time from which it refuses everybody, and the exit code is 1.
    #[command(after_long_help = examples::AGENT_REVOKE)]
    Revoke(AgentRevoke),
    /// Take the revocation of an agent back, if it was a mistake
    ///
    /// It brings back each certificate of this agent that has not expired, and the right to renew it. The agent connects again within a
    /// minute, without a new token. So restore it only if nobody else can have its key. If its machine was lost, enroll a new one.
    ///
    /// It does not bring back certificates that are revoked by their serial number (--serial does), and all that were revoked
    /// with --cluster or by the deletion of the cluster. Those stay refused: enroll the agent again (`tombolo token create`).
    ///
    /// The role operator may do this, as it may revoke, and the audit log has both.
    #[command(after_long_help = examples::AGENT_RESTORE)]
    Restore(AgentRestore),
}

#[derive(Args)]
pub(crate) struct AgentList {
    /// List only agents of this cluster
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: Option<ClusterId>,
    /// The output format; wide, json and yaml also say when the certificate was issued, and whether the agent is connected
    #[arg(long, short, value_name = "FORMAT")]
    pub(crate) output: Option<AgentsOutput>,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentsOutput {
    Wide,
    Json,
    Yaml,
}

#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token with which one agent of a cluster enrolls, once
    ///
    /// Prints the commands for a machine of the site: paste them into a shell there. They write the token and a complete agent.yaml
    /// into the current folder, with the addresses of the servers and the pin by which the agent knows them, and start the agent.
    /// With --dir the two files are written here, to be carried to the site, and only the last commands are printed. With -o helm one
    /// command is printed, the same as by `tombolo cluster create --print helm`.
    ///
    /// Name the callers of the cluster by --user and --group: the agent then may impersonate them, and nobody else. Without them it may
    /// impersonate those whose names begin with "tombolo:", or nobody with -o helm. The cluster decides what each caller may do there:
    /// --cluster-role binds the callers to a role of it.
    ///
    /// The addresses are tunnel.addresses and enrollment.address of the server's configuration. Sites must reach the first by UDP,
    /// or by TCP if their network blocks UDP, and the second by TCP.
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
    /// Print a Helm command, only the token, only the agent.yaml, or a Secret for `kubectl apply`, in place of the commands
    #[arg(long, short, value_name = "FORMAT")]
    pub(crate) output: Option<TokenOutput>,
    /// Write token and agent.yaml into this folder, which is made if it is missing
    #[arg(long, value_name = "DIR", conflicts_with = "output")]
    pub(crate) dir: Option<PathBuf>,
    /// Replace the files if they exist
    #[arg(long, requires = "dir")]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) site: SiteArgs,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenOutput {
    /// The command that installs the agents by the chart
    Helm,
    /// The token and nothing else
    Token,
    /// The agent's configuration, which reads the token from a file `token` beside it
    AgentConfig,
    /// A Secret with token, pin and enrollment address
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
    /// An agent, as `tombolo cluster list --output wide` shows it
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
    /// Do not ask, with --cluster. Without it, you type the cluster's name at the terminal
    #[arg(long, short, conflicts_with_all = ["agent", "serial"])]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) server: AdminServerArgs,
}

#[derive(Args)]
#[group(id = "restored-agent", required = true, multiple = false)]
pub(crate) struct AgentRestore {
    /// The agent, as it was revoked
    #[arg(value_name = "CLUSTER/AGENT", group = "restored-agent")]
    pub(crate) agent: Option<OneAgent>,
    /// One certificate, by its serial number in hexadecimal
    #[arg(long, value_name = "SERIAL", group = "restored-agent")]
    pub(crate) serial: Option<String>,
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
    #[error("{0:?} is not the name of a label: use a name such as stage or example.com/stage")]
    LabelName(String),
    #[error(
        "{0:?} is not the value of a label: use letters, digits, '-', '_' and '.', at most {LABEL_BYTES_MAX}"
    )]
    LabelValue(String),
    #[error("use CLUSTER/AGENT, as `tombolo cluster list --output wide` shows them")]
    Agent,
}

/// Parses NAME=VALUE by the rules of Kubernetes' labels.
fn label(text: &str) -> Result<(String, String), ArgumentError> {
    let (name, value) = text.split_once('=').ok_or(ArgumentError::Pair)?;
    if !is_label_value(value) {
        return Err(ArgumentError::LabelValue(value.to_owned()));
    }
    Ok((label_name(name)?, value.to_owned()))
}

fn label_name(text: &str) -> Result<String, ArgumentError> {
    if is_label_name(text) { Ok(text.to_owned()) } else { Err(ArgumentError::LabelName(text.to_owned())) }
}

impl FromStr for LabelChange {
    type Err = ArgumentError;

    fn from_str(text: &str) -> Result<Self, ArgumentError> {
        if text.contains('=') {
            return label(text).map(|(name, value)| Self::Set(name, value));
        }
        let name = text.strip_suffix('-').ok_or(ArgumentError::LabelChange)?;
        label_name(name).map(Self::Remove)
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
