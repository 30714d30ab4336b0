//! The arguments of `tombolo ca`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use proto::ClusterId;
use proto::spiffe::TRUST_DOMAIN_DEFAULT;
use trust::Role;

use super::examples;
use crate::names::{Group, HostSuffix, Label, ServerName, TrustDomain, User, Validity};

#[derive(Subcommand)]
pub(crate) enum CaCommand {
    /// Make the root CAs for servers, agents, callers, administrators and peers, with their intermediate CAs
    ///
    /// Writes server-ca, agent-ca, caller-ca, admin-ca and peer-ca as .crt and .key to a directory that only you can enter. For each
    /// root it writes an encrypted intermediate that issues certificates (.sealed); sealing.key decrypts the intermediates.
    /// trust.bundle has all roots, signed. Peers are servers that dial other servers of the same installation.
    ///
    /// Roots are valid for 10 years and are never overwritten. Their keys are needed only for new intermediates: move them to a
    /// machine without a network.
    ///
    /// An authority that an earlier version made has no root of the role peer. There, this command adds it and signs a new
    /// trust.bundle, for which it needs server-ca.key. Nothing else is changed.
    #[command(after_long_help = examples::CA_INIT)]
    Init(CaInit),
    /// Make an intermediate CA, which issues certificates while its root is offline
    ///
    /// Needs the root's .crt and .key. The intermediate is valid for 3 years and for one role, and cannot sign another CA. Its
    /// key is encrypted with the sealing key, which is made if it does not exist.
    #[command(after_long_help = examples::CA_INTERMEDIATE)]
    Intermediate(CaIntermediate),
    /// Rotate a root CA, with a time in which the old and the new root are both trusted
    ///
    /// Makes a new root beside the old one, an intermediate that both have signed, and a trust bundle that the old root has
    /// signed. Agents that connect in this time learn the new root by themselves. --finish drops the old root; for servers
    /// not before 90 days have passed.
    #[command(after_long_help = examples::CA_ROTATE)]
    Rotate(CaRotate),
    /// Print the server's files as two Secrets, for kubectl apply
    ///
    /// One Secret has the server's certificate and key, the CAs, the trust bundle, and the sealed intermediate that issues agents'
    /// certificates. The other has the sealing key, which decrypts the intermediate: one of the two alone issues no certificate.
    /// Give few people the right to read both. The roots' keys are in neither.
    ///
    /// If `ca issue peer` made a certificate for this server's id, the first Secret has it, too, as peer.crt and peer.key, with
    /// peer-ca.crt and server-ca.crt.
    ///
    /// With more than one --id, the first Secret has the certificates of all these servers, as ID-server.crt, ID-server.key,
    /// ID-peer.crt and ID-peer.key. So do the pods of the chart find theirs, whose ids are tunnel-server-0 and so on.
    #[command(after_long_help = examples::CA_SECRETS)]
    Secrets(CaSecrets),
    /// Issue a certificate with its key
    #[command(subcommand, after_long_help = examples::CA_ISSUE)]
    Issue(IssueCommand),
    /// Show the names and dates of the certificates in a PEM file, or the roots in a trust bundle
    #[command(after_long_help = examples::CA_SHOW)]
    Show(CaShow),
}

#[derive(Args)]
pub(crate) struct CaInit {
    /// The directory of the new authority; created with mode 0700
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The trust domain in the SPIFFE URIs of all certificates
    #[arg(long, value_name = "DOMAIN", default_value = TRUST_DOMAIN_DEFAULT)]
    pub(crate) trust_domain: TrustDomain,
    /// Make only the roots; make each intermediate later by `ca intermediate`
    #[arg(long)]
    pub(crate) roots_only: bool,
}

#[derive(Args)]
pub(crate) struct CaIntermediate {
    /// The authority, made by `ca init`
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The role of the certificates that it issues: server, agent, caller, admin or peer
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Role,
    /// The file to write [default: ROLE-intermediate.sealed in the authority's directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// The file with the key that decrypts it [default: sealing.key in the authority's directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) sealing_key: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args)]
pub(crate) struct CaRotate {
    /// The authority, made by `ca init`
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The role of the root: server, agent, caller, admin or peer
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Role,
    /// Finish the rotation: drop the old root
    #[arg(long)]
    pub(crate) finish: bool,
    /// Finish although agents that were off since the beginning may still come back within the renewal grace of 90 days
    #[arg(long, requires = "finish")]
    pub(crate) early: bool,
}

#[derive(Args)]
pub(crate) struct CaSecrets {
    /// The authority, made by `ca init`, with the certificate of `ca issue server`
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The namespace of the server
    #[arg(long, short, value_name = "NAMESPACE", default_value = "tombolo-system")]
    pub(crate) namespace: Label,
    /// The id with which the server's certificate was issued, if it was issued with --id; repeat it for the servers of a StatefulSet
    #[arg(long, value_name = "ID")]
    pub(crate) id: Vec<Label>,
}

#[derive(Subcommand)]
pub(crate) enum IssueCommand {
    /// For a tunnel-server: its gateway and its tunnel listener
    ///
    /// Writes server.crt and server.key (with --id: ID-server.crt and ID-server.key).
    #[command(after_long_help = examples::ISSUE_SERVER)]
    Server(IssueServer),
    /// For a tunnel-agent of a cluster
    ///
    /// Writes CLUSTER-agent.crt and CLUSTER-agent.key (with --id: CLUSTER.ID-agent.crt and CLUSTER.ID-agent.key).
    #[command(after_long_help = examples::ISSUE_AGENT)]
    Agent(IssueAgent),
    /// For a person or program that calls the gateway
    ///
    /// Writes USER-caller.crt and USER-caller.key; characters that do not suit a file name become '-'.
    #[command(after_long_help = examples::ISSUE_CALLER)]
    Caller(IssueCaller),
    /// For a server's proxy listener, from a CA of its own
    ///
    /// Writes proxy.crt and proxy.key, and the first time proxy-ca.crt and proxy-ca.key. This CA may sign for this one DNS name
    /// and for no address, because kubeconfigs will have it beside the clusters' own CAs.
    #[command(after_long_help = examples::ISSUE_PROXY)]
    Proxy(IssueProxy),
    /// For an administrator of the server
    ///
    /// Writes NAME-admin.crt and NAME-admin.key.
    #[command(after_long_help = examples::ISSUE_ADMIN)]
    Admin(IssueAdmin),
    /// For a tunnel-server that dials the other servers of its installation
    ///
    /// Writes ID-peer.crt and ID-peer.key. The server shows this certificate to other servers only. Callers and agents see the one of
    /// `ca issue server`.
    #[command(after_long_help = examples::ISSUE_PEER)]
    Peer(IssuePeer),
}

/// The flags that every kind of certificate has.
#[derive(Args)]
pub(crate) struct Placement {
    /// The authority, made by `ca init`
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The directory to write to, created if it is missing [default: the authority's directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// The lifetime of the certificate, in m, h or d [default: server, agent and peer 90d, caller and admin 30d; at most 365d, server 824d]
    #[arg(long, value_name = "TIME")]
    pub(crate) validity: Option<Validity>,
    /// Replace the files if they exist
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args)]
pub(crate) struct IssueServer {
    #[command(flatten)]
    pub(crate) placement: Placement,
    /// A DNS name or IP address of the server; repeat for more
    #[arg(long = "name", value_name = "HOST", required = true)]
    pub(crate) names: Vec<ServerName>,
    /// The DNS name under which each cluster has a host name of its own; adds SUFFIX and *.SUFFIX
    #[arg(long, value_name = "SUFFIX")]
    pub(crate) suffix: Option<HostSuffix>,
    /// The server's id, a DNS label [default: made from the first name]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<Label>,
}

#[derive(Args)]
pub(crate) struct IssueAgent {
    #[command(flatten)]
    pub(crate) placement: Placement,
    /// The agent's cluster, a DNS label
    #[arg(long, value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    /// The agent's id within its cluster, a DNS label [default: 8 random hexadecimal digits]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<Label>,
}

#[derive(Args)]
pub(crate) struct IssueCaller {
    #[command(flatten)]
    pub(crate) placement: Placement,
    /// The caller's user name, at most 64 characters
    #[arg(long, value_name = "USER")]
    pub(crate) user: User,
    /// A group of the caller, at most 64 characters; repeat for more
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<Group>,
}

#[derive(Args)]
pub(crate) struct IssueProxy {
    #[command(flatten)]
    pub(crate) placement: Placement,
    /// The DNS name of the proxy listener
    #[arg(long, value_name = "HOST")]
    pub(crate) name: ServerName,
}

#[derive(Args)]
pub(crate) struct IssueAdmin {
    #[command(flatten)]
    pub(crate) placement: Placement,
    /// The administrator's name, a DNS label
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Label,
}

#[derive(Args)]
pub(crate) struct IssuePeer {
    #[command(flatten)]
    pub(crate) placement: Placement,
    /// The server's id, a DNS label: `serverId` of its configuration, and the id in its own certificate
    #[arg(long, value_name = "ID")]
    pub(crate) id: Label,
}

#[derive(Args)]
pub(crate) struct CaShow {
    /// A PEM file with certificates, or a trust bundle
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}
