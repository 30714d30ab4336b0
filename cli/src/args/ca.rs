//! The words of `tombolo ca`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use proto::ClusterId;
use proto::spiffe::TRUST_DOMAIN_DEFAULT;
use trust::Role;

use super::examples;
use crate::names::{Group, HostSuffix, Label, ServerName, TrustDomain, User, Validity};

#[derive(Subcommand)]
pub(crate) enum Ca {
    /// Make the roots for servers, agents, callers and administrators, and what issues below them
    ///
    /// Writes server-ca, agent-ca, caller-ca and admin-ca as .crt and .key, to a directory that only you can enter,
    /// and for each an intermediate that issues certificates (.sealed) with the key that opens them (sealing.key); all
    /// roots, signed, in trust.bundle.
    /// Roots are valid for 10 years and never overwritten; their keys are needed for new intermediates only: move
    /// them to where no network is.
    #[command(after_long_help = examples::CA_INIT)]
    Init(CaInit),
    /// Make an intermediate, which issues certificates while its root is offline
    ///
    /// Needs the root's .crt and .key. The intermediate is valid for 3 years, for one role, and signs no other CA. Its
    /// key is encrypted; the sealing key is made if it is not there.
    #[command(after_long_help = examples::CA_INTERMEDIATE)]
    Intermediate(CaIntermediate),
    /// Exchange a root, with a time in which the old one and the new one hold
    ///
    /// Makes a new root beside the old one, an intermediate for which both vouch, and a trust bundle that the old root has
    /// signed. Agents that connect meanwhile learn the new root by themselves. --finish drops the old one,
    /// of servers not before 90 days have passed.
    #[command(after_long_help = examples::CA_ROTATE)]
    Rotate(CaRotate),
    /// Issue a certificate with its key
    #[command(subcommand, after_long_help = examples::CA_ISSUE)]
    Issue(Issue),
    /// Show whom the certificates of a PEM file name, and for how long; or what a trust bundle holds
    #[command(after_long_help = examples::CA_SHOW)]
    Show(CaShow),
}

#[derive(Args)]
pub(crate) struct CaInit {
    /// Where the authority is to live; created with mode 0700
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// First part of the SPIFFE URIs in all certificates
    #[arg(long, value_name = "DOMAIN", default_value = TRUST_DOMAIN_DEFAULT)]
    pub(crate) trust_domain: TrustDomain,
    /// Make the roots alone, and each intermediate later by `ca intermediate`
    #[arg(long)]
    pub(crate) roots_only: bool,
}

#[derive(Args)]
pub(crate) struct CaIntermediate {
    /// The authority, made by `ca init`
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// What it issues certificates for: server, agent, caller or admin
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Role,
    /// Where to write it [default: ROLE-intermediate.sealed in the authority's directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// The file with the key that opens it [default: sealing.key in the authority's directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) sealing_key: Option<PathBuf>,
    /// Replace the one that is already there
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args)]
pub(crate) struct CaRotate {
    /// The authority, made by `ca init`
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Whose root: server, agent, caller or admin
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Role,
    /// End the exchange: drop the old root
    #[arg(long)]
    pub(crate) finish: bool,
    /// End it although agents that were off since it began may still come back within the renewal grace of 90 days
    #[arg(long, requires = "finish")]
    pub(crate) early: bool,
}

#[derive(Subcommand)]
pub(crate) enum Issue {
    /// For a tunnel-server: its gateway and its listener for tunnels
    ///
    /// Writes server.crt and server.key (with --id: ID-server.crt and ID-server.key).
    #[command(after_long_help = examples::ISSUE_SERVER)]
    Server(IssueServer),
    /// For a tunnel-agent: names its cluster
    ///
    /// Writes CLUSTER-agent.crt and CLUSTER-agent.key (with --id: CLUSTER.ID-agent.crt and CLUSTER.ID-agent.key).
    #[command(after_long_help = examples::ISSUE_AGENT)]
    Agent(IssueAgent),
    /// For a person or program that calls the gateway
    ///
    /// Writes USER-caller.crt and USER-caller.key; characters that do not suit a file's name become '-' there.
    #[command(after_long_help = examples::ISSUE_CALLER)]
    Caller(IssueCaller),
    /// For a server's proxy listener, below a CA of its own
    ///
    /// Writes proxy.crt and proxy.key, and the first time proxy-ca.crt and proxy-ca.key: a CA that vouches for this one DNS name and
    /// for no address, because it comes to stand in kubeconfigs beside the clusters' own CAs.
    #[command(after_long_help = examples::ISSUE_PROXY)]
    Proxy(IssueProxy),
    /// For a person who runs the server
    ///
    /// Writes NAME-admin.crt and NAME-admin.key.
    #[command(after_long_help = examples::ISSUE_ADMIN)]
    Admin(IssueAdmin),
}

/// Where from and where to, for every kind of certificate.
#[derive(Args)]
pub(crate) struct Placement {
    /// The authority, made by `ca init`
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Where to write the files, created if need be [default: the authority's directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// How long it is valid, in m, h or d [default: server and agent 90d, caller and admin 30d; at most 365d, server 824d]
    #[arg(long, value_name = "TIME")]
    pub(crate) validity: Option<Validity>,
    /// Replace files that are already there
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args)]
pub(crate) struct IssueServer {
    #[command(flatten)]
    pub(crate) placement: Placement,
    /// DNS name or IP address under which the server is reached; repeat for more
    #[arg(long = "name", value_name = "HOST", required = true)]
    pub(crate) names: Vec<ServerName>,
    /// DNS name under which each cluster has a host name of its own; adds SUFFIX and *.SUFFIX
    #[arg(long, value_name = "SUFFIX")]
    pub(crate) suffix: Option<HostSuffix>,
    /// Which server this is, a DNS label [default: made from the first name]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<Label>,
}

#[derive(Args)]
pub(crate) struct IssueAgent {
    #[command(flatten)]
    pub(crate) placement: Placement,
    /// The cluster that the agent speaks for, a DNS label
    #[arg(long, value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    /// Which of the cluster's agents this is, a DNS label [default: 8 random hexadecimal digits]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<Label>,
}

#[derive(Args)]
pub(crate) struct IssueCaller {
    #[command(flatten)]
    pub(crate) placement: Placement,
    /// Who the caller is, at most 64 characters
    #[arg(long, value_name = "USER")]
    pub(crate) user: User,
    /// A group that the caller belongs to, at most 64 characters; repeat for more
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<Group>,
}

#[derive(Args)]
pub(crate) struct IssueProxy {
    #[command(flatten)]
    pub(crate) placement: Placement,
    /// DNS name under which the proxy listener is reached
    #[arg(long, value_name = "HOST")]
    pub(crate) name: ServerName,
}

#[derive(Args)]
pub(crate) struct IssueAdmin {
    #[command(flatten)]
    pub(crate) placement: Placement,
    /// Who the administrator is, a DNS label
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Label,
}

#[derive(Args)]
pub(crate) struct CaShow {
    /// A PEM file with certificates, or a trust bundle
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}
