//! What may be said of clusters and agents at a server's admin API.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use proto::ClusterId;

use super::at_server::AtServer;
use super::{Clusters, examples};
use crate::names::{Label as DnsLabel, Validity};

#[derive(Subcommand)]
pub(crate) enum Cluster {
    /// Make a cluster, so that its agents may come
    #[command(after_long_help = examples::CLUSTER_CREATE)]
    Create(ClusterCreate),
    /// Show the clusters: the same as `tombolo clusters`
    #[command(after_long_help = examples::CLUSTER_LIST)]
    List(Clusters),
    /// Set a cluster's labels, or take them away
    #[command(after_long_help = examples::CLUSTER_LABEL)]
    Label(ClusterLabel),
    /// Change a cluster's networks and what it may advertise
    ///
    /// What is given replaces all that was there; what is not given stays.
    #[command(after_long_help = examples::CLUSTER_UPDATE)]
    Update(ClusterUpdate),
    /// Check whether a kubeconfig of the cluster's own, kubeadm's admin.conf for one, reaches it by its control-plane IP
    ///
    /// Says which list lacks the address or name that the kubeconfig asks for, and what mends it. Policy is asked beside these: see
    /// `tombolo policy explain`. The exit code is 1 if it is not reached.
    #[command(after_long_help = examples::CLUSTER_CHECK)]
    Check(ClusterCheck),
    /// Delete a cluster: its tunnels end, its agents are refused, and its name stays reserved
    #[command(after_long_help = examples::CLUSTER_DELETE)]
    Delete(ClusterDelete),
    /// Show and change by what further pods of a cluster's agents prove themselves
    ///
    /// The first agent that enrolls with a token in a pod records its ServiceAccount and the keys of its issuer. Further pods of
    /// that account then need no token.
    #[command(subcommand, after_long_help = examples::CLUSTER_ATTESTATION)]
    Attestation(Attestation),
}

#[derive(Subcommand)]
pub(crate) enum Attestation {
    /// Show what is recorded
    #[command(after_long_help = examples::ATTESTATION_SHOW)]
    Show(AttestationOf),
    /// Record the keys of the issuer, in place of those that are recorded
    ///
    /// Where keys are replaced one after the other, agents bring the new one along themselves, at their next renewal. Where all are
    /// exchanged at once, nobody can tell whose they are but you.
    #[command(after_long_help = examples::ATTESTATION_SET_KEYS)]
    SetKeys(AttestationSetKeys),
    /// Forget account, issuer and keys; the next agent that enrolls with a token records its own
    #[command(after_long_help = examples::ATTESTATION_FORGET)]
    Forget(AttestationOf),
    /// Let pods prove themselves again, after `tombolo agent revoke --cluster` has put an end to it
    ///
    /// Pods that were put out by it come back when they are made anew (`kubectl rollout restart`), or at their next renewal.
    #[command(after_long_help = examples::ATTESTATION_REOPEN)]
    Reopen(AttestationOf),
}

#[derive(Args)]
pub(crate) struct AttestationOf {
    /// The cluster
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    #[command(flatten)]
    pub(crate) server: AtServer,
}

#[derive(Args)]
pub(crate) struct AttestationSetKeys {
    /// The cluster
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    /// A file with a JSON Web Key Set: what `kubectl get --raw /openid/v1/jwks` prints there
    #[arg(long, value_name = "FILE")]
    pub(crate) keys: PathBuf,
    #[command(flatten)]
    pub(crate) server: AtServer,
}

#[derive(Args)]
pub(crate) struct ClusterCreate {
    /// Its name, a DNS label
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    /// A label, as Kubernetes labels things; repeat for more
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) labels: Vec<(String, String)>,
    /// A network in which its addresses mean something, a DNS label; repeat for more
    #[arg(long = "network", value_name = "NETWORK")]
    pub(crate) networks: Vec<DnsLabel>,
    /// What its agents may advertise: HOST:PORT, or addresses as CIDR; repeat for more
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) advertise: Vec<String>,
    #[command(flatten)]
    pub(crate) server: AtServer,
}

#[derive(Args)]
pub(crate) struct ClusterLabel {
    /// The cluster
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    /// A label to set, or with a '-' behind its name one to take away
    #[arg(value_name = "NAME=VALUE|NAME-", required = true)]
    pub(crate) labels: Vec<LabelChange>,
    #[command(flatten)]
    pub(crate) server: AtServer,
}

#[derive(Args)]
pub(crate) struct ClusterUpdate {
    /// The cluster
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    /// A network in which its addresses mean something; repeat for more, empty for none
    #[arg(long = "network", value_name = "NETWORK", required_unless_present = "advertise")]
    pub(crate) networks: Option<Vec<String>>,
    /// What its agents may advertise: HOST:PORT, or addresses as CIDR; repeat for more, empty for nothing
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) advertise: Option<Vec<String>>,
    #[command(flatten)]
    pub(crate) server: AtServer,
}

#[derive(Args)]
pub(crate) struct ClusterCheck {
    /// The cluster
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    /// The kubeconfig
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// A context of it [default: its current-context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    #[command(flatten)]
    pub(crate) server: AtServer,
}

#[derive(Args)]
pub(crate) struct ClusterDelete {
    /// The cluster
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    #[command(flatten)]
    pub(crate) server: AtServer,
}

#[derive(Subcommand)]
pub(crate) enum Agent {
    /// Show the agents that were enrolled
    #[command(after_long_help = examples::AGENT_LIST)]
    List(AgentList),
    /// Refuse an agent from now on, and end its tunnels
    #[command(after_long_help = examples::AGENT_REVOKE)]
    Revoke(AgentRevoke),
}

#[derive(Args)]
pub(crate) struct AgentList {
    /// Only of this cluster
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: Option<ClusterId>,
    #[command(flatten)]
    pub(crate) server: AtServer,
}

#[derive(Subcommand)]
pub(crate) enum Token {
    /// Make a token that enrolls one agent of a cluster, once
    ///
    /// It is shown once. Whoever has it becomes an agent of the cluster: carry it in a file, never on a command line.
    #[command(after_long_help = examples::TOKEN_CREATE)]
    Create(TokenCreate),
    /// Show the tokens that are kept, without what makes them tokens
    #[command(after_long_help = examples::TOKEN_LIST)]
    List(TokenList),
    /// Take a token away
    #[command(after_long_help = examples::TOKEN_REVOKE)]
    Revoke(TokenRevoke),
}

#[derive(Args)]
pub(crate) struct TokenCreate {
    /// The cluster that the agent will speak for; it must be there (tombolo cluster create)
    #[arg(long, value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    /// How long the token holds, from 1m to 1h
    #[arg(long, value_name = "TIME", default_value = "15m")]
    pub(crate) ttl: Validity,
    /// Print the token alone, or a Secret for `kubectl apply`, in place of what to do with it
    #[arg(long, short, value_name = "FORMAT")]
    pub(crate) output: Option<TokenOutput>,
    #[command(flatten)]
    pub(crate) server: AtServer,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenOutput {
    Token,
    Manifest,
}

#[derive(Args)]
pub(crate) struct TokenList {
    #[command(flatten)]
    pub(crate) server: AtServer,
}

#[derive(Args)]
pub(crate) struct TokenRevoke {
    /// The token's id, as `tombolo token list` shows it
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) server: AtServer,
}

#[derive(Args)]
#[group(id = "whom", required = true, multiple = false)]
pub(crate) struct AgentRevoke {
    /// One agent
    #[arg(value_name = "CLUSTER/AGENT", group = "whom")]
    pub(crate) agent: Option<OneAgent>,
    /// All agents of a cluster whose certificates were issued before now; no further pod of it proves itself until `tombolo cluster
    /// attestation reopen`
    #[arg(long, value_name = "CLUSTER", group = "whom")]
    pub(crate) cluster: Option<ClusterId>,
    /// One certificate, by its serial number in hexadecimal
    #[arg(long, value_name = "SERIAL", group = "whom")]
    pub(crate) serial: Option<String>,
    #[command(flatten)]
    pub(crate) server: AtServer,
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

#[derive(Debug, thiserror::Error)]
pub(crate) enum NotSaid {
    #[error("use NAME=VALUE")]
    Pair,
    #[error("use NAME=VALUE to set a label, or NAME- to take it away")]
    LabelChange,
    #[error("use CLUSTER/AGENT, as `tombolo clusters --output wide` shows them")]
    Agent,
}

fn pair(text: &str) -> Result<(String, String), NotSaid> {
    let (name, value) = text.split_once('=').ok_or(NotSaid::Pair)?;
    Ok((name.to_owned(), value.to_owned()))
}

impl FromStr for LabelChange {
    type Err = NotSaid;

    fn from_str(text: &str) -> Result<Self, NotSaid> {
        if let Ok((name, value)) = pair(text) {
            return Ok(Self::Set(name, value));
        }
        let name = text.strip_suffix('-').ok_or(NotSaid::LabelChange)?;
        Ok(Self::Remove(name.to_owned()))
    }
}

impl FromStr for OneAgent {
    type Err = NotSaid;

    fn from_str(text: &str) -> Result<Self, NotSaid> {
        let (cluster, instance) = text.split_once('/').ok_or(NotSaid::Agent)?;
        let cluster = cluster.parse().map_err(|_| NotSaid::Agent)?;
        Ok(Self { cluster, instance: instance.to_owned() })
    }
}
