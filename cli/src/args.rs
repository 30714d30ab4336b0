//! The command line: what may be said, and how help explains it.

mod at_server;
mod copied;
mod examples;
mod fleet;
mod passthrough;
mod users;
mod vip;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{ArgAction, ArgGroup, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use policy::Target;
use policy::action::Verb;
use proto::ClusterId;
use proto::spiffe::TRUST_DOMAIN_DEFAULT;
use trust::Role;

pub(crate) use at_server::{AtServer, Place, Remote};
pub(crate) use copied::{CopyPlace, OwnKubeconfig};
pub(crate) use fleet::{
    Agent, AgentList, AgentRevoke, Attestation, AttestationOf, AttestationSetKeys, Cluster, ClusterCheck,
    ClusterCreate, ClusterDelete, ClusterLabel, ClusterUpdate, LabelChange, Token, TokenCreate, TokenList,
    TokenOutput, TokenRevoke,
};
pub(crate) use passthrough::Passthrough;
pub(crate) use users::{
    DialToken, DialTokenCreate, DialTokenKubeconfig, DialTokenList, DialTokenRevoke, User as Users, UserList,
    UserRestore, UserRevoke, UserToken, UserTokenCreate, UserTokenHash,
};
pub(crate) use vip::Vip;

use crate::names::{GatewayUrl, Group, HostSuffix, Label, ServerName, TrustDomain, User, Validity};

/// What was asked for, and under which name.
pub(crate) struct Invocation {
    pub(crate) command: Command,
    pub(crate) program: Program,
}

/// The name under which this binary was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Tombolo,
    KubectlPlugin,
}

/// Certificates and kubeconfigs for Tombolo, which reaches edge Kubernetes clusters through tunnels.
#[derive(Parser)]
#[command(name = "tombolo", version, after_long_help = examples::TOMBOLO)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Make certificate authorities, issue certificates and look at them
    #[command(subcommand, after_long_help = examples::CA)]
    Ca(Ca),
    /// Write a kubeconfig that reaches clusters through the gateway
    ///
    /// Works offline. One context per cluster, named as the cluster; the first becomes the current one.
    ///
    /// --gateway, --ca, --cert with --key or --token-file, and --host-names may stand in
    /// ~/.config/tombolo/config.yaml (in $XDG_CONFIG_HOME if set; another file with TOMBOLO_CONFIG) as gateway,
    /// certificateAuthority, clientCertificate, clientKey, tokenFile, hostSuffix; paths there are relative to the
    /// file. A TOMBOLO_ variable (TOMBOLO_CLIENT_KEY, ...) wins over the file, a flag over both; certificate, key and
    /// token file are taken together from the first place that names one of them.
    #[command(after_long_help = examples::KUBECONFIG)]
    Kubeconfig(Kubeconfig),
    /// Serve a cluster's own kubeconfig, by its control-plane IP, until Ctrl-C
    ///
    /// For a kubeconfig of the cluster itself, such as kubeadm's admin.conf: prints where a copy of it is, in which
    /// nothing is changed but proxy-url. TLS goes from kubectl to the cluster's own API server, which sees the kubeconfig's own
    /// user. The copy is yours alone, and gone at the end; who has not read it is not let in.
    ///
    /// The policy must let you dial the API server's address, the server let the cluster advertise it (`tombolo cluster
    /// update`), and its agent serve it. Where the gateway is and who you are is found as for `tombolo kubeconfig`.
    ///
    /// The port answers HTTP CONNECT and SOCKS5, and lets in who says user and password of the copy's proxy-url. kubectl can do
    /// both. Other programs may know one of them; SOCKS5 has no words for why it refuses, which is then printed here.
    ///
    /// Clusters may have one address: give each its own KUBECACHEDIR, as is printed, because kubectl remembers what it has
    /// discovered by the address alone.
    ///
    /// With --network the port is for all clusters of that network (`tombolo cluster update --network`) and no other: an address
    /// means the one of them that has it and where you may dial it. What several have is refused, with their names. The copy then
    /// has the proxy for each of its clusters that https protects and that has none yet.
    #[command(after_long_help = examples::PROXY)]
    Proxy(Proxy),
    /// Write a cluster's own kubeconfig for the server's passthrough, where TLS ends at the API server
    ///
    /// Nothing is changed but the server's name. It is written only where it would work: this shakes hands through the passthrough,
    /// and if the API server's certificate does not have the name, says which flag gives it one.
    #[command(after_long_help = examples::PASSTHROUGH)]
    Passthrough(Passthrough),
    /// Write a cluster's own kubeconfig for an address that the server has for it (vip), or for the Service of that
    ///
    /// Nothing is changed but the server, and tls-server-name, by which the API server proves to be the same. Works offline:
    /// the copy is for where the address is reached, such as pods of the cluster that has the Service.
    #[command(after_long_help = examples::VIP)]
    Vip(Vip),
    /// Show the clusters of a server
    ///
    /// Asks the server's admin socket, so run it there, as root or as the server's user; or, with --server, from another
    /// machine with an administrator's certificate. Ends with 1 if the server does
    /// not answer or does not know a cluster that was named.
    #[command(after_long_help = examples::CLUSTERS)]
    Clusters(Clusters),
    /// Print what an agent may do in its cluster, for kubectl apply
    ///
    /// A ServiceAccount and its RBAC, made from the agent's own configuration: whom it may assert, and what it may read,
    /// with a reason for each rule. The agent needs the same names in its own file and in this.
    #[command(after_long_help = examples::RBAC)]
    Rbac(Rbac),
    /// Make, describe and delete clusters at a server
    #[command(subcommand, after_long_help = examples::CLUSTER)]
    Cluster(Cluster),
    /// Make tokens by which agents enroll at a server
    #[command(subcommand, after_long_help = examples::TOKEN)]
    Token(Token),
    /// Show and refuse agents at a server
    #[command(subcommand, after_long_help = examples::AGENT)]
    Agent(Agent),
    /// Make the tokens with which callers come in, and refuse callers at a server
    #[command(subcommand, after_long_help = examples::USER)]
    User(Users),
    /// Check what stands between you and your cluster, or what a daemon needs, and say what to do
    ///
    /// Without a subcommand: your kubeconfig, certificate or token, and the way through the gateway to the cluster. One
    /// line for each check: ok, warning or failed. Ends with 1 if a check failed.
    #[command(after_long_help = examples::DOCTOR)]
    Doctor(Doctor),
    /// Check a policy, and ask what it decides
    #[command(subcommand, after_long_help = examples::POLICY)]
    Policy(Policy),
    /// Look at a server's audit log
    #[command(subcommand, after_long_help = examples::AUDIT)]
    Audit(Audit),
    /// Print a script that completes this command in a shell
    #[command(after_long_help = examples::COMPLETION)]
    Completion(Completion),
    /// Print the version
    #[command(after_long_help = examples::VERSION)]
    Version,
}

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

#[derive(Args)]
pub(crate) struct Kubeconfig {
    #[arg(long, value_name = "URL", help = "Where the gateway is: https://HOST[:PORT]")]
    pub(crate) gateway: Option<GatewayUrl>,
    /// Certificates that vouch for the gateway (server-ca.crt)
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Your certificate
    #[arg(long, value_name = "FILE", requires = "key", conflicts_with = "token_file")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of your certificate
    #[arg(long, value_name = "FILE", requires = "cert", conflicts_with = "token_file")]
    pub(crate) key: Option<PathBuf>,
    /// A file with your bearer token, in place of a certificate
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// A cluster to reach; repeat for more
    #[arg(long = "cluster", value_name = "CLUSTER", required = true)]
    pub(crate) clusters: Vec<ClusterId>,
    /// Reach clusters as CLUSTER.SUFFIX, for tools that drop the path of a server's URL
    #[arg(long, value_name = "SUFFIX")]
    pub(crate) host_names: Option<HostSuffix>,
    /// Copy certificates, key and token into the kubeconfig; if false, it names their files
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
    /// Write this file, with mode 0600, instead of printing
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the output file if it is already there
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
}

#[derive(Args)]
pub(crate) struct Proxy {
    #[arg(long, value_name = "URL", help = "Where the gateway is: https://HOST[:PORT]")]
    pub(crate) gateway: Option<GatewayUrl>,
    /// Certificates that vouch for the gateway (server-ca.crt)
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Your certificate for the gateway
    #[arg(long, value_name = "FILE", requires = "key", conflicts_with = "token_file")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of your certificate
    #[arg(long, value_name = "FILE", requires = "cert", conflicts_with = "token_file")]
    pub(crate) key: Option<PathBuf>,
    /// A file with your bearer token for the gateway, in place of a certificate
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The cluster to reach
    #[arg(long, value_name = "CLUSTER", required_unless_present = "network")]
    pub(crate) cluster: Option<ClusterId>,
    /// The network to reach, in place of one cluster: the cluster of it that has the address is meant
    #[arg(long, value_name = "NETWORK", conflicts_with = "cluster")]
    pub(crate) network: Option<Label>,
    /// The cluster's own kubeconfig, which is not changed; with --network, of one or more clusters of that
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// Its context to use [default: its current-context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Where to listen, on this machine alone; port 0 for a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Have the copy come by SOCKS5 in place of HTTP CONNECT; the port serves both
    #[arg(long)]
    pub(crate) socks5: bool,
    /// Write the copy here, with mode 0600, instead of a temporary directory
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the output file if it is already there
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
}

#[derive(Args)]
pub(crate) struct Clusters {
    /// Only these clusters
    #[arg(value_name = "CLUSTER")]
    pub(crate) names: Vec<ClusterId>,
    /// Go on: show a cluster again whenever it changes, until Ctrl-C
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// How to show them; wide, json and yaml name each tunnel, and with --watch also show new measurements
    #[arg(long, short, value_name = "FORMAT")]
    pub(crate) output: Option<ClustersOutput>,
    #[command(flatten)]
    pub(crate) server: AtServer,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClustersOutput {
    Wide,
    Json,
    Yaml,
    Name,
}

#[derive(Args)]
pub(crate) struct Rbac {
    /// The agent's configuration
    #[arg(long, value_name = "FILE", default_value = "/etc/tombolo/agent.yaml")]
    pub(crate) agent_config: PathBuf,
    /// How far the agent's rights go
    #[arg(long, value_name = "PROFILE", default_value = "named")]
    pub(crate) profile: Profile,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// The names that its configuration lists
    Named,
    /// Anybody: its token is worth as much as cluster-admin
    Open,
    /// The names that its configuration lists, by constrained impersonation (Kubernetes 1.36)
    Constrained,
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Doctor {
    #[command(subcommand)]
    pub(crate) part: Option<DoctorPart>,
    #[command(flatten)]
    pub(crate) caller: DoctorCaller,
    /// How to show what was found
    #[arg(long, short, value_name = "FORMAT", global = true)]
    pub(crate) output: Option<DoctorOutput>,
}

#[derive(Args)]
pub(crate) struct DoctorCaller {
    /// The kubeconfig [default: the first of $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context in it [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

#[derive(Subcommand)]
pub(crate) enum DoctorPart {
    /// Check what a tunnel-server needs, on its machine
    ///
    /// Files, certificates and their dates, ports, the admin socket, readiness. Changes nothing, whether the server runs
    /// or not.
    #[command(after_long_help = examples::DOCTOR_SERVER)]
    Server(DoctorServer),
    /// Check what a tunnel-agent needs, where it runs
    ///
    /// Files, certificates and their dates, its identity, each server by QUIC, the clock, and its rights at the API
    /// server. The dial ends before a tunnel begins, so a running agent is not disturbed; the server's log names it.
    #[command(after_long_help = examples::DOCTOR_AGENT)]
    Agent(DoctorAgent),
}

#[derive(Args)]
pub(crate) struct DoctorServer {
    /// The server's configuration
    #[arg(long, value_name = "FILE", default_value = "/etc/tombolo/server.yaml")]
    pub(crate) config: PathBuf,
}

#[derive(Args)]
pub(crate) struct DoctorAgent {
    /// The agent's configuration
    #[arg(long, value_name = "FILE", default_value = "/etc/tombolo/agent.yaml")]
    pub(crate) config: PathBuf,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DoctorOutput {
    Json,
}

#[derive(Subcommand)]
pub(crate) enum Policy {
    /// Say what is wrong in a policy, with the line, or that nothing is
    ///
    /// A server takes a policy exactly if this finds nothing. Ends with 1 if something is wrong.
    #[command(after_long_help = examples::POLICY_CHECK)]
    Check(PolicyCheck),
    /// Say whether a policy allows something, and which rule decides
    ///
    /// Asks the file, not a server. What is asked is a resource with its verb, or a path as a caller sends it, or a host
    /// and port that is dialed, or another identity. Ends with 0 if it is allowed, 1 if it is not, 2 if nothing could be decided.
    #[command(after_long_help = examples::POLICY_EXPLAIN)]
    Explain(Box<PolicyExplain>),
}

#[derive(Args)]
pub(crate) struct PolicyCheck {
    /// The policy
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Args)]
pub(crate) struct PolicyExplain {
    /// The policy
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: PathBuf,
    /// How somebody came in: client-certificate, token, dial-token, oidc:NAME, token-review:NAME or way-in:NAME
    #[arg(long, value_name = "METHOD", value_parser = policy::method)]
    pub(crate) method: String,
    /// Who that is, with the prefix of the method
    #[arg(long, value_name = "USER")]
    pub(crate) user: String,
    /// A group, with the prefix of the method; repeat for more
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// Which cluster is asked
    #[arg(long, value_name = "CLUSTER")]
    pub(crate) cluster: ClusterId,
    /// Labels that the server keeps for the cluster; repeat for more
    #[arg(long, value_name = "KEY=VALUE", value_parser = label, value_delimiter = ',')]
    pub(crate) labels: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) asked: PolicyAsked,
    /// How to say it
    #[arg(long, short, value_name = "FORMAT")]
    pub(crate) output: Option<PolicyOutput>,
}

/// What is asked for, in one of four ways.
#[derive(Args)]
#[group(id = "asked", skip)]
#[command(group(ArgGroup::new("way").args(["resource", "path", "target", "as_user"]).required(true)))]
pub(crate) struct PolicyAsked {
    /// What is done with the resource: get, list, watch, create, connect and so on
    #[arg(long, value_name = "VERB", requires = "resource")]
    pub(crate) verb: Option<Verb>,
    /// A resource in the plural, perhaps with a subresource: pods/log
    #[arg(long, value_name = "RESOURCE", requires = "verb")]
    pub(crate) resource: Option<String>,
    /// The resource's API group; empty for the core group
    #[arg(long, value_name = "GROUP", default_value = "", requires = "resource")]
    pub(crate) api_group: String,
    /// The resource's namespace [default: none, or all together]
    #[arg(long, value_name = "NAMESPACE", requires = "resource")]
    pub(crate) namespace: Option<String>,
    /// A path of the cluster's API with its query
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    /// The method with which the path is asked
    #[arg(long, value_name = "METHOD", default_value = "GET", requires = "path")]
    pub(crate) http_method: http::Method,
    /// What is dialed from within the cluster
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) target: Option<Target>,
    /// A user whom that somebody wants to be taken for, as by kubectl --as
    #[arg(long = "as", value_name = "USER")]
    pub(crate) as_user: Option<String>,
    /// A group that goes with it, as by kubectl --as-group; repeat for more
    #[arg(long = "as-group", value_name = "GROUP", requires = "as_user")]
    pub(crate) as_groups: Vec<String>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyOutput {
    Json,
}

#[derive(Subcommand)]
pub(crate) enum Audit {
    /// Say whether an audit log is as its server wrote it
    ///
    /// With the chain's key, audit-chain.key in the server's state directory, every line is held against the one before it;
    /// with the public key of its checkpoints, everything up to the last of them. Whether the end was cut off is seen by
    /// checkpoints that were sent elsewhere in time. Ends with 0 if all is as it was written, 1 if it is not, and 2 if that
    /// cannot be said.
    #[command(after_long_help = examples::AUDIT_VERIFY)]
    Verify(AuditVerify),
}

#[derive(Args)]
pub(crate) struct AuditVerify {
    /// The log's directory, or its files in the order of their lines
    #[arg(value_name = "DIR|FILE", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// The key of the chain
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// The checkpoints [default: checkpoints.jsonl in DIR]
    #[arg(long, value_name = "FILE", requires = "public_key")]
    pub(crate) checkpoints: Option<PathBuf>,
    /// The public key of the checkpoints: a copy of the server's audit.pub
    #[arg(long, value_name = "FILE")]
    pub(crate) public_key: Option<PathBuf>,
    /// How to say it
    #[arg(long, short, value_name = "FORMAT")]
    pub(crate) output: Option<AuditOutput>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuditOutput {
    Json,
}

#[derive(Args)]
pub(crate) struct Completion {
    pub(crate) shell: Shell,
}

/// Reads the command line of this process; prints help or a usage error and exits where that is the answer.
pub(crate) fn parse() -> Invocation {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let program = Program::of(arguments.first().map(OsString::as_os_str).map(Path::new));
    let mut command = command(program);
    let parsed = command
        .try_get_matches_from_mut(arguments)
        .and_then(|matches| CommandLine::from_arg_matches(&matches))
        .map_err(|error| error.format(&mut command));
    match parsed {
        Ok(CommandLine { command }) => Invocation { command, program },
        Err(error) => error.exit(),
    }
}

/// The whole command, its usage and examples in the words of `program`.
pub(crate) fn command(program: Program) -> clap::Command {
    let command = CommandLine::command();
    match program {
        Program::Tombolo => command.bin_name("tombolo"),
        Program::KubectlPlugin => spoken_by_kubectl(command).bin_name("kubectl tombolo"),
    }
}

impl Program {
    fn of(started_as: Option<&Path>) -> Self {
        match started_as.and_then(Path::file_stem).and_then(|stem| stem.to_str()) {
            Some("kubectl-tombolo") => Self::KubectlPlugin,
            Some(_) | None => Self::Tombolo,
        }
    }

    /// What a shell looks for on its path.
    pub(crate) fn file_name(self) -> &'static str {
        match self {
            Self::Tombolo => "tombolo",
            Self::KubectlPlugin => "kubectl-tombolo",
        }
    }
}

fn label(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').ok_or("not KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn spoken_by_kubectl(command: clap::Command) -> clap::Command {
    let examples = command
        .get_after_long_help()
        .map(|text| text.to_string().replace("  tombolo ", "  kubectl tombolo "));
    let command = match examples {
        Some(examples) => command.after_long_help(examples),
        None => command,
    };
    command.mut_subcommands(spoken_by_kubectl)
}
