//! `tombolo node join`: makes a machine a worker of a cluster, or gives it the load balancer alone for kubeadm's join.

use std::fs;
use std::io;
use std::path::PathBuf;

use api_servers::list::NODE_LB_API_SERVERS_MAX;
use daemon::Scope;

use super::cluster_info::ClusterInfo;
use super::cri::{CriError, Runtime};
use super::discovery::{self, DiscoveryError};
use super::facts::{self, FactsError};
use super::journal::{Journal, JournalError, Step};
use super::kubelet::{self, Kubelet, KubeletConfiguration, KubeletError};
use super::load_balancer::{self, CaError};
use super::machine::{self, MachineError};
use super::programs::ProgramError;
use super::systemd::{KUBELET_UNIT, NODE_LB_UNIT, systemctl};
use super::waiting::{self, WaitError};
use crate::args::NodeJoin;
use crate::files::{self, NewFile, ReadError};
use crate::names::BootstrapToken;
use crate::print;
use crate::runtime::{self, RuntimeError};

/// The error if the machine is no worker yet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeJoinError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error("{0} API servers are named, and node-lb takes at most {NODE_LB_API_SERVERS_MAX}")]
    TooMany(usize),
    #[error("neither --token nor --token-file is given")]
    NoToken,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{0} holds no bootstrap token")]
    TokenFile(PathBuf),
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    Facts(#[from] FactsError),
    #[error(transparent)]
    ContainerRuntime(#[from] CriError),
    #[error(transparent)]
    Kubelet(#[from] KubeletError),
    #[error(transparent)]
    Ca(#[from] CaError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Wait(#[from] WaitError),
    #[error("cannot remove {0}, which holds the token")]
    Remove(PathBuf, #[source] io::Error),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

/// The worker that a machine becomes: the load balancer, and kubelet unless kubeadm sets that up.
struct Worker<'a> {
    args: &'a NodeJoin,
    info: ClusterInfo,
    load_balancer: Vec<NewFile>,
    kubelet: Option<KubeletPart>,
}

/// kubelet's part of a join.
struct KubeletPart {
    name: String,
    socket: PathBuf,
    files: Vec<NewFile>,
}

/// Joins, or goes on with an interrupted join. Returns the lines that say what was reached.
pub(crate) fn join(args: &NodeJoin) -> Result<Vec<String>, NodeJoinError> {
    let token = token(args)?;
    if args.api_servers.len() > NODE_LB_API_SERVERS_MAX {
        return Err(NodeJoinError::TooMany(args.api_servers.len()));
    }
    let mut journal = Journal::open(&args.root)?;
    preflight(args, &journal)?;
    print::note("asking the API servers for their cluster")?;
    runtime::run(async |scope| {
        let info = discovery::discover(&args.api_servers, &token, &args.ca_hash, scope).await?;
        let kubelet =
            if args.only_lb { None } else { Some(kubelet_part(args, &info, &token, &journal, scope).await?) };
        let load_balancer = load_balancer::files(args, &info)?;
        let worker = Worker { args, info, load_balancer, kubelet };
        if args.dry_run {
            return Ok(worker.shown(&token));
        }
        worker.set_up(&mut journal, scope).await
    })?
}

/// The token of the command line, or that of the file.
fn token(args: &NodeJoin) -> Result<BootstrapToken, NodeJoinError> {
    match (&args.token, &args.token_file) {
        (Some(token), _) => Ok(token.clone()),
        (None, Some(path)) => {
            files::read(path)?.trim().parse().map_err(|_| NodeJoinError::TokenFile(path.clone()))
        }
        (None, None) => Err(NodeJoinError::NoToken),
    }
}

/// Refuses a machine that cannot be joined, before anything is asked or written.
fn preflight(args: &NodeJoin, journal: &Journal) -> Result<(), MachineError> {
    if args.dry_run {
        return Ok(());
    }
    machine::can_join(&args.root, journal)?;
    if args.no_start {
        return Ok(());
    }
    machine::can_run_node_lb(&args.root, journal)?;
    if args.only_lb { Ok(()) } else { machine::can_run_kubelet(&args.root, journal) }
}

/// Checks what kubelet needs on this machine and in the cluster, and makes its files. Nothing is written.
async fn kubelet_part(
    args: &NodeJoin,
    info: &ClusterInfo,
    token: &BootstrapToken,
    journal: &Journal,
    scope: &Scope,
) -> Result<KubeletPart, NodeJoinError> {
    let name = machine::name(args.node_name.as_deref())?;
    let program = machine::kubelet(&args.root)?;
    let socket = machine::runtime(args.cri_socket.as_deref())?;
    let is_ours = journal.has(&Step::unit(KUBELET_UNIT));
    let facts = facts::ask(&args.api_servers, info, token, (&name, is_ours), scope).await?;
    kubelet::check_skew(&program.version, &facts.version)?;
    let resolver = machine::resolver_of_pods();
    let configuration = KubeletConfiguration::new(&facts.kubelet_config, &socket, resolver)?;
    // An image gets its runtime and its swap when it boots.
    if !args.no_start {
        if !configuration.takes_swap() {
            machine::has_no_swap()?;
        }
        let mut runtime = Runtime::connect(&socket, scope).await?;
        print::note(&format!("the container runtime is {}", print::visible(&runtime.version().await?)))?;
        if let Some(driver) = runtime.cgroup_driver().await? {
            configuration.check_driver(driver)?;
        }
    }
    let kubelet =
        Kubelet { root: &args.root, program, name: name.clone(), address: args.node_ip, configuration };
    Ok(KubeletPart { name, socket, files: kubelet.files(token) })
}

impl Worker<'_> {
    /// The files as lines, for a dry run, without the token's secret.
    fn shown(&self, token: &BootstrapToken) -> Vec<String> {
        let kubelet = self.kubelet.iter().flat_map(|kubelet| &kubelet.files);
        let all = self.load_balancer.iter().chain(kubelet);
        all.flat_map(|file| {
            let text = String::from_utf8_lossy(&file.contents).replace(token.secret(), "****");
            std::iter::once(format!("# {}", file.path.display()))
                .chain(text.lines().map(str::to_owned))
                .collect::<Vec<_>>()
        })
        .collect()
    }

    /// Writes the files, starts the programs and waits for them.
    async fn set_up(self, journal: &mut Journal, scope: &Scope) -> Result<Vec<String>, NodeJoinError> {
        for file in self.load_balancer {
            journal.file(file)?;
        }
        load_balancer::state(self.args, journal)?;
        if let Some(kubelet) = &self.kubelet {
            note_kubelet(self.args, kubelet, journal)?;
        }
        let kubelet = self.kubelet.map(|kubelet| (kubelet.name, kubelet.files));
        let (name, files) = kubelet.map_or((None, Vec::new()), |(name, files)| (Some(name), files));
        for file in files {
            journal.file(file)?;
        }
        if self.args.no_start {
            return Ok(vec![not_started(name.is_some())]);
        }
        start(NODE_LB_UNIT, journal)?;
        waiting::relays(&self.info, scope).await?;
        let relays = format!("node-lb relays {} to the cluster's API servers", machine::LB);
        let Some(name) = name else { return Ok(vec![relays]) };
        start(KUBELET_UNIT, journal)?;
        waiting::has_certificate(&self.args.root).await?;
        remove_token(self.args)?;
        let node = waiting::node(&self.args.root, &name, &self.info, scope).await?;
        Ok(vec![relays, node])
    }
}

/// Notes what kubelet will write and start, and makes the folders that it expects.
fn note_kubelet(args: &NodeJoin, kubelet: &KubeletPart, journal: &mut Journal) -> Result<(), JournalError> {
    let (files, folders) = kubelet::later(&args.root);
    for folder in folders {
        journal.state(&folder)?;
    }
    for folder in [kubelet::STATIC_PODS, kubelet::VOLUME_PLUGINS] {
        journal.folder(&args.root.join(folder))?;
    }
    for file in files {
        journal.later(file)?;
    }
    journal.note(Step::Rules)?;
    journal.note(Step::Pods { socket: kubelet.socket.clone() })
}

/// Enables a unit, and starts it with the files as they are now.
fn start(unit: &str, journal: &mut Journal) -> Result<(), NodeJoinError> {
    journal.note(Step::unit(unit))?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["enable", unit])?;
    Ok(systemctl(&["restart", unit])?)
}

/// Removes the kubeconfig with the token, which kubelet needs no more.
fn remove_token(args: &NodeJoin) -> Result<(), NodeJoinError> {
    let path = args.root.join(kubelet::BOOTSTRAP);
    fs::remove_file(&path).map_err(|error| NodeJoinError::Remove(path, error))
}

fn not_started(has_kubelet: bool) -> String {
    let units = if has_kubelet { "node-lb kubelet" } else { "node-lb" };
    format!(
        "the files are written; start the machine's part by: systemctl daemon-reload && systemctl enable --now {units}"
    )
}
