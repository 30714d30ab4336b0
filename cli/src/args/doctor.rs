//! The words of `tombolo doctor`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::examples;

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
