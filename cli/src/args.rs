//! The command line: what may be said, and how help explains it.

mod at_server;
mod ca;
mod copied;
mod doctor;
mod examples;
mod fleet;
mod kubeconfig;
mod passthrough;
mod policies;
mod proxy;
mod users;
mod vip;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use proto::ClusterId;

pub(crate) use at_server::{AtServer, Place, Remote};
pub(crate) use ca::{
    Ca, CaInit, CaIntermediate, CaRotate, CaShow, Issue, IssueAdmin, IssueAgent, IssueCaller, IssueProxy,
    IssueServer, Placement,
};
pub(crate) use copied::{CopyPlace, OwnKubeconfig};
pub(crate) use doctor::{Doctor, DoctorAgent, DoctorCaller, DoctorOutput, DoctorPart, DoctorServer};
pub(crate) use fleet::{
    Agent, AgentList, AgentRevoke, Attestation, AttestationOf, AttestationSetKeys, Cluster, ClusterCheck,
    ClusterCreate, ClusterDelete, ClusterLabel, ClusterUpdate, LabelChange, Token, TokenCreate, TokenList,
    TokenOutput, TokenRevoke,
};
pub(crate) use kubeconfig::Kubeconfig;
pub(crate) use passthrough::Passthrough;
pub(crate) use policies::{Policy, PolicyCheck, PolicyExplain, PolicyOutput};
pub(crate) use proxy::Proxy;
pub(crate) use users::{
    DialToken, DialTokenCreate, DialTokenKubeconfig, DialTokenList, DialTokenRevoke, User as Users, UserList,
    UserRestore, UserRevoke, UserToken, UserTokenCreate, UserTokenHash,
};
pub(crate) use vip::Vip;

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
