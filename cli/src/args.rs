//! The command line of `tombolo`: its arguments and help texts.

mod admin_endpoint;
mod ca;
mod caller_credential;
mod cluster_list;
mod clusters;
mod credential;
mod doctor;
mod examples;
mod groups;
mod join;
mod kubeconfig;
mod kubeconfig_copy;
mod node;
#[cfg(test)]
mod pages;
mod passthrough;
mod policies;
mod proxy;
mod server;
mod summarize;
mod tenant;
mod users;
mod vip;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

pub(crate) use admin_endpoint::{AdminEndpoint, RemoteAdmin};
pub(crate) use ca::{
    CaCommand, CaInit, CaIntermediate, CaRotate, CaSecrets, CaShow, IssueAdmin, IssueAgent, IssueCaller,
    IssueCommand, IssuePeer, IssueProxy, IssueServer, Placement,
};
pub(crate) use caller_credential::CallerCredentialArgs;
pub(crate) use cluster_list::{ClusterSort, ClustersArgs, ClustersOutput};
pub(crate) use clusters::{
    AgentCommand, AgentList, AgentRestore, AgentRevoke, AgentsOutput, AttestationCommand, AttestationOf,
    AttestationSetKeys, ClusterCheck, ClusterCommand, ClusterCreate, ClusterDelete, ClusterLabel,
    ClusterUndelete, ClusterUpdate, LabelChange, TokenCommand, TokenCreate, TokenList, TokenOutput,
    TokenRevoke,
};
pub(crate) use credential::CredentialArgs;
pub(crate) use doctor::{
    DoctorAgent, DoctorArgs, DoctorCaller, DoctorCommand, DoctorNode, DoctorOutput, DoctorServer,
};
pub(crate) use join::{CHART_DEFAULT, JoinArgs, PrintedCommand, RoleSubject, SiteArgs};
pub(crate) use kubeconfig::KubeconfigArgs;
pub(crate) use kubeconfig_copy::{ClusterKubeconfig, CopyOutput};
pub(crate) use node::{NodeCommand, NodeJoin, NodeJoinCommand, NodeReset, NodeRotateCa};
pub(crate) use passthrough::PassthroughArgs;
pub(crate) use policies::{PolicyCheck, PolicyCommand, PolicyExplain, PolicyOutput};
pub(crate) use proxy::ProxyArgs;
pub(crate) use server::{
    ServerCommand, ServerExport, ServerImport, ServerList, ServerRemove, ServerSort, ServersOutput,
};
pub(crate) use summarize::{SummarizeArgs, SummarizeOutput};
pub(crate) use tenant::{
    HostCluster, TenantCertificatesCommand, TenantCommand, TenantCreate, TenantDelete, TenantJoinCommand,
    TenantKubeconfig, TenantList, TenantOutput, TenantReached, TenantRegister, TenantRenew, TenantRotateCa,
    TenantStatus, TenantUpgrade,
};
pub(crate) use users::{
    DialTokenCommand, DialTokenCreate, DialTokenKubeconfig, DialTokenList, DialTokenRevoke, UserCommand,
    UserList, UserRestore, UserRevoke, UserTokenCommand, UserTokenCreate, UserTokenHash,
};
pub(crate) use vip::VipArgs;

/// The name by which kubectl starts the completion of this plugin.
const KUBECTL_COMPLETE: &str = "kubectl_complete-tombolo";

/// The command, and the name under which the program was started.
pub(crate) struct Invocation {
    pub(crate) command: Command,
    pub(crate) program: Program,
}

/// The name under which this program was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Tombolo,
    KubectlPlugin,
}

/// Tombolo connects kubectl to Kubernetes clusters at the edge, through tunnels that agents there keep to a server in the cloud
///
/// This command is for callers, who use kubectl, for operators, who run the server, and for sites, where agents run.
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
    Ca(CaCommand),
    /// Write a kubeconfig that reaches clusters through the gateway
    ///
    /// Works offline. The kubeconfig has one context per cluster, with the cluster's name; the first becomes the current one.
    ///
    /// Defaults for --gateway, --ca, --cert, --key, --token-file and --host-names may be in
    /// ~/.config/tombolo/config.yaml ($XDG_CONFIG_HOME/tombolo/config.yaml if that is set; TOMBOLO_CONFIG names another
    /// file), with the keys gateway, certificateAuthority, clientCertificate, clientKey, tokenFile and hostSuffix. Paths in
    /// the file are relative to it. A TOMBOLO_ variable (TOMBOLO_CLIENT_KEY, ...) overrides the file, and a flag overrides
    /// both. Certificate, key and token file are taken together from the first source that names one of them.
    #[command(after_long_help = examples::KUBECONFIG)]
    Kubeconfig(KubeconfigArgs),
    /// Hand your credential for the gateway to kubectl and other programs, as an exec plugin
    ///
    /// `tombolo kubeconfig --exec` writes a kubeconfig that runs this. It prints an ExecCredential of
    /// client.authentication.k8s.io/v1 and nothing else. The files are read each time, so a new certificate or token is used as soon
    /// as it is there.
    ///
    /// Programs keep the credential until it expires: with the certificate, or with the token if that is a JWT. Another token says
    /// nothing of its end, so it is read again after a minute. In a pod the token is a projected one of its ServiceAccount.
    ///
    /// The files are found as for `tombolo kubeconfig`.
    #[command(after_long_help = examples::CREDENTIAL)]
    Credential(CredentialArgs),
    /// Serve a local proxy for a cluster's own kubeconfig, until Ctrl-C
    ///
    /// For a kubeconfig of the cluster itself, such as kubeadm's admin.conf, with its control-plane address. Writes a copy of it
    /// that differs only in proxy-url, and prints its path. TLS goes from kubectl to the cluster's own API server, which sees the
    /// kubeconfig's own user. Only you can read the copy, which is removed at the end.
    ///
    /// The policy must allow you to dial the API server's address, the server must allow the cluster to advertise it (`tombolo
    /// cluster update --advertise`), and the agent must serve it. The gateway's URL and your credential are found as for
    /// `tombolo kubeconfig`.
    ///
    /// The port serves HTTP CONNECT and SOCKS5, to clients that send the user and password of the copy's proxy-url. kubectl
    /// supports both; other programs may support one of them. SOCKS5 has no error texts, so they are printed here.
    ///
    /// Several clusters may have the same address. Use the KUBECACHEDIR that is printed for each, because kubectl keys its
    /// discovery cache by the address alone.
    ///
    /// With --network, the port reaches all clusters of that network (`tombolo cluster update --network`) and no others. An
    /// address leads to the one cluster that has it and in which you may dial it. An address that several clusters have is
    /// refused, with their names. The copy then has the proxy for each https cluster that has no proxy yet.
    #[command(after_long_help = examples::PROXY)]
    Proxy(ProxyArgs),
    /// Write a copy of a cluster's own kubeconfig for the server's passthrough, where TLS ends at the API server
    ///
    /// Only the server's name is changed. This command first connects through the passthrough, and writes the copy only if the
    /// API server's certificate has the name. If not, it prints the flag that adds the name to the certificate.
    #[command(after_long_help = examples::PASSTHROUGH)]
    Passthrough(PassthroughArgs),
    /// Write a copy of a cluster's own kubeconfig for the virtual address (VIP) of the cluster, or for its Service
    ///
    /// Only the server is changed, and tls-server-name, so that the API server is verified by its old name. Works offline: the
    /// copy is for machines that reach the address, such as pods of the cluster that has the Service.
    #[command(after_long_help = examples::VIP)]
    Vip(VipArgs),
    /// Count and add up objects in one cluster or in all clusters of a set, where they are
    ///
    /// Each cluster's agent reads the list under your own identity, and sends counts, sums and a few names in place of the objects. You
    /// need the right to list them. Clusters without an answer are named, and are in no figure.
    ///
    /// Paths are those of `kubectl wait --for=jsonpath`, without `..`: `.status.phase`, `.spec.containers[*].image`.
    #[command(after_long_help = examples::SUMMARIZE)]
    Summarize(Box<SummarizeArgs>),
    /// The old spelling of `tombolo cluster list`
    #[command(hide = true, after_long_help = examples::CLUSTERS)]
    Clusters(ClustersArgs),
    /// Print the RBAC of an agent in its cluster, for kubectl apply
    ///
    /// Prints a ServiceAccount and its roles, generated from the agent's own configuration: which users and groups it may
    /// impersonate and what it may read, with a reason for each rule. Generate it again when that configuration changes.
    #[command(after_long_help = examples::RBAC)]
    Rbac(RbacArgs),
    /// Make a machine a worker of a cluster, by a load balancer for its API servers
    #[command(subcommand, after_long_help = examples::NODE)]
    Node(NodeCommand),
    /// Make control planes of other clusters as pods of a host cluster, and keep them
    #[command(subcommand, after_long_help = examples::TENANT)]
    Tenant(TenantCommand),
    /// List, create, change and delete clusters at a server
    #[command(subcommand, after_long_help = examples::CLUSTER)]
    Cluster(ClusterCommand),
    /// Create tokens with which agents enroll at a server
    #[command(subcommand, after_long_help = examples::TOKEN)]
    Token(TokenCommand),
    /// List, revoke and restore agents at a server
    #[command(subcommand, after_long_help = examples::AGENT)]
    Agent(AgentCommand),
    /// Create tokens for callers, and revoke callers at a server
    #[command(subcommand, after_long_help = examples::USER)]
    User(UserCommand),
    /// List servers, back up their records, and restore them on the same or another machine
    #[command(subcommand, after_long_help = examples::SERVER)]
    Server(ServerCommand),
    /// Check your access to a cluster, or what a daemon needs, and advise how to fix it
    ///
    /// Without a subcommand, checks your kubeconfig, your certificate or token, and the way through the gateway to the cluster.
    /// Prints one line for each check: its result (ok, warning or failed), its name, what was found, and what to do. The names
    /// stay the same in later versions.
    #[command(after_long_help = examples::DOCTOR)]
    Doctor(DoctorArgs),
    /// Check a policy file, and explain its decisions
    #[command(subcommand, after_long_help = examples::POLICY)]
    Policy(PolicyCommand),
    /// Verify a server's audit log
    #[command(subcommand, after_long_help = examples::AUDIT)]
    Audit(AuditCommand),
    /// Print a completion script for a shell
    #[command(after_long_help = examples::COMPLETION)]
    Completion(CompletionArgs),
    /// Write the manual pages of all commands to a directory, for packages
    #[command(hide = true, after_long_help = examples::MAN)]
    Man(ManArgs),
    /// Print the version of this program
    #[command(after_long_help = examples::VERSION)]
    Version,
}

#[derive(Args)]
pub(crate) struct RbacArgs {
    /// The configuration file of the agent
    #[arg(long, value_name = "FILE", default_value = "/etc/tombolo/agent.yaml")]
    pub(crate) agent_config: PathBuf,
    /// The users and groups that the agent may impersonate
    #[arg(long, value_name = "PROFILE", default_value = "named")]
    pub(crate) profile: Profile,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// The names in its configuration
    Named,
    /// Anybody; the agent's token then has as much power as cluster-admin
    Open,
    /// The names in its configuration, by constrained impersonation (Kubernetes 1.36)
    Constrained,
}

#[derive(Subcommand)]
pub(crate) enum AuditCommand {
    /// Verify that an audit log is as its server wrote it
    ///
    /// With the key of the chain (audit-chain.key in the server's state directory), every line is verified against the line
    /// before it. Checkpoints show whether lines at the end were cut off. Those beside the log are compared with any key, but an
    /// attacker who cuts the log can cut them, too: only checkpoints that were copied to another machine before, and their public
    /// key, show every cut. The exit code is 0 if the log is unchanged, 1 if it was changed, and 2 if it could not be verified.
    #[command(after_long_help = examples::AUDIT_VERIFY)]
    Verify(AuditVerify),
}

#[derive(Args)]
pub(crate) struct AuditVerify {
    /// The log's directory, or its files in the order of their lines
    #[arg(value_name = "DIR|FILE", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// The key of the chain: the server's audit-chain.key
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// The checkpoints, best a copy from another machine [default: checkpoints.jsonl in DIR or beside the files]
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoints: Option<PathBuf>,
    /// The public key of the checkpoints: a copy of the server's audit.pub
    #[arg(long, value_name = "FILE")]
    pub(crate) public_key: Option<PathBuf>,
    /// The output format, in place of lines for people
    #[arg(long, short, value_name = "FORMAT")]
    pub(crate) output: Option<AuditOutput>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuditOutput {
    Json,
}

#[derive(Args)]
pub(crate) struct CompletionArgs {
    pub(crate) shell: Shell,
}

#[derive(Args)]
pub(crate) struct ManArgs {
    /// The directory to write the pages to; it is made if it is missing
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// The words that kubectl asks to complete, if it has started this program for that: by the name
/// `kubectl_complete-tombolo`, as kubectl looks for a plugin's completion.
pub(crate) fn words_to_complete() -> Option<Vec<String>> {
    let mut arguments = std::env::args_os();
    let started_as = PathBuf::from(arguments.next()?);
    (started_as.file_stem()? == KUBECTL_COMPLETE)
        .then(|| arguments.map(|word| word.to_string_lossy().into_owned()).collect())
}

/// Parses the command line of this process. Prints help or a usage error and exits if that is the result.
pub(crate) fn parse() -> Invocation {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let program = Program::from_path(arguments.first().map(OsString::as_os_str).map(Path::new));
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

/// The command with its usage and examples for the name `program`.
pub(crate) fn command(program: Program) -> clap::Command {
    let command = groups::with_groups(CommandLine::command());
    match program {
        Program::Tombolo => command.bin_name("tombolo"),
        Program::KubectlPlugin => with_kubectl_examples(command).bin_name("kubectl tombolo"),
    }
}

impl Program {
    fn from_path(started_as: Option<&Path>) -> Self {
        match started_as.and_then(Path::file_stem).and_then(|stem| stem.to_str()) {
            Some("kubectl-tombolo") => Self::KubectlPlugin,
            Some(_) | None => Self::Tombolo,
        }
    }

    /// The file name of the program, by which a shell finds it.
    pub(crate) fn file_name(self) -> &'static str {
        match self {
            Self::Tombolo => "tombolo",
            Self::KubectlPlugin => "kubectl-tombolo",
        }
    }
}

fn with_kubectl_examples(command: clap::Command) -> clap::Command {
    let examples = command
        .get_after_long_help()
        .map(|text| text.to_string().replace("  tombolo ", "  kubectl tombolo "));
    let command = match examples {
        Some(examples) => command.after_long_help(examples),
        None => command,
    };
    command.mut_subcommands(with_kubectl_examples)
}

#[cfg(test)]
mod reference_page {
    use super::{Program, command};

    #[test]
    fn the_reference_has_every_command() {
        let mut command = command(Program::Tombolo);
        command.build();
        let page = reference::commands_page(include_str!("args/reference_head.md"), &command);
        reference::compare("tombolo.md", &page);
    }
}
