//! The arguments of `tombolo doctor`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::examples;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DoctorArgs {
    #[command(subcommand)]
    pub(crate) command: Option<DoctorCommand>,
    #[command(flatten)]
    pub(crate) caller: DoctorCaller,
    /// The output format, in place of lines for people; json has the keys failed, exitCode, and checks with check, result, message,
    /// advice and help
    #[arg(long, short, value_name = "FORMAT", global = true)]
    pub(crate) output: Option<DoctorOutput>,
}

#[derive(Args)]
pub(crate) struct DoctorCaller {
    /// The kubeconfig [default: the first of $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context to use [default: its current-context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

#[derive(Subcommand)]
pub(crate) enum DoctorCommand {
    /// Check what a tunnel-server needs, on its machine
    ///
    /// Checks files, certificates and their dates, the signer with which agents enroll, ports, the admin socket, and readiness. Where
    /// several servers share their records, checks etcd too, and compares sessions, clocks, policies and trust bundles of all servers.
    /// Changes nothing; the server may run or not.
    #[command(after_long_help = examples::DOCTOR_SERVER)]
    Server(DoctorServer),
    /// Check what a tunnel-agent needs, where it runs
    ///
    /// Checks files, certificates and their dates, the agent's identity, its enrollment, each server by QUIC and by HTTP/2, the
    /// clock, and the agent's rights at the API server. A carrier that is blocked while the other works is a warning. Give it the
    /// flags --config, --kubeconfig and --context with which the agent is started.
    ///
    /// The connection to a server ends before a tunnel begins, so a running agent is not disturbed. Tokens are only checked: a
    /// token that is good stays unused. The server logs both as checks.
    #[command(after_long_help = examples::DOCTOR_AGENT)]
    Agent(DoctorAgent),
    /// Check what node-lb needs, on its worker
    ///
    /// Checks files and their dates, each API server of the configuration with its certificate, the clock, kubelet's right to read the
    /// cluster's list of API servers, node-lb's own port, and its readiness. Run it as root, because kubelet's certificate is root's.
    /// Changes nothing; node-lb may run or not.
    #[command(after_long_help = examples::DOCTOR_NODE)]
    Node(DoctorNode),
}

#[derive(Args)]
pub(crate) struct DoctorServer {
    /// The configuration file of the server
    #[arg(long, value_name = "FILE", default_value = "/etc/tombolo/server.yaml")]
    pub(crate) config: PathBuf,
    /// The server's name among its like, if the server is started with this flag; it replaces each $(serverId) in the file
    #[arg(long, value_name = "NAME", env = "TOMBOLO_SERVER_SERVER_ID")]
    pub(crate) server_id: Option<String>,
}

#[derive(Args)]
pub(crate) struct DoctorAgent {
    /// The configuration file of the agent
    #[arg(long, value_name = "FILE", default_value = "/etc/tombolo/agent.yaml")]
    pub(crate) config: PathBuf,
    /// The kubeconfig of the cluster's API server, if the agent is started with this flag; it wins over apiServer in the file
    #[arg(long, value_name = "FILE", env = "TOMBOLO_AGENT_KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of that kubeconfig [default: its current-context]
    #[arg(long, value_name = "NAME", env = "TOMBOLO_AGENT_CONTEXT", requires = "kubeconfig")]
    pub(crate) context: Option<String>,
}

#[derive(Args)]
pub(crate) struct DoctorNode {
    /// The configuration file of node-lb
    #[arg(long, value_name = "FILE", default_value = "/etc/tombolo/node-lb.yaml")]
    pub(crate) config: PathBuf,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DoctorOutput {
    Json,
}
