//! All processes of the demo, and the order in which they start and stop.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::by_address::Offices;
use super::denial;
use super::installer::{GROUP, Installer, Programs};
use super::isolation::Isolation;
use super::network::{DemoNetwork, EDGES, Edge};
use super::outage;
use super::probes;
use super::progress::Progress;
use super::shell_pod::{POD, ShellPod};
use super::tour::Tour;
use super::{DemoError, DemoOptions, is_on_path};
use crate::etcd::EtcdCluster;
use crate::kube::account::AgentAccount;
use crate::kube::assets::Assets;
use crate::kube::kubectl::Kubectl;
use crate::kube::{ClusterError, EdgeCluster};
use crate::process::{Process, ProcessError};
use crate::scratch::Scratch;

/// The limit for a daemon to end: its drain grace period and some time to exit.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// The exit code of a daemon that cut off what still ran at the end of its grace.
const GRACE_EXCEEDED: i32 = 3;

/// Everything that was started so far. Fields are dropped in this order, which kills them.
#[derive(Debug)]
pub(super) struct DemoSetup {
    pub(super) agents: Vec<Daemon>,
    pub(super) servers: Vec<Daemon>,
    offices: Option<Offices>,
    pod: Option<ShellPod>,
    pub(super) clusters: Vec<(EdgeCluster, AgentAccount)>,
    /// The store that several servers share.
    pub(super) etcd: Option<EtcdCluster>,
    pub(super) network: Option<DemoNetwork>,
    pub(super) scratch: Scratch,
}

#[derive(Debug)]
pub(super) struct Daemon {
    pub(super) name: String,
    pub(super) process: Process,
}

impl DemoSetup {
    pub(super) fn new(scratch: Scratch) -> Self {
        Self {
            agents: Vec::new(),
            servers: Vec::new(),
            offices: None,
            pod: None,
            clusters: Vec::new(),
            etcd: None,
            network: None,
            scratch,
        }
    }

    /// Sets everything up and shows it.
    pub(super) async fn perform(
        &mut self,
        isolation: &Isolation,
        order: &DemoOptions,
        progress: &Progress,
    ) -> Result<(), DemoError> {
        let (programs, assets) = (Programs::find(order.bin_dir.as_deref())?, Assets::find()?);
        let began = Instant::now();
        let Self { agents, servers, offices, pod, clusters, network, scratch, .. } = self;
        let network = network.insert(DemoNetwork::prepare(isolation, order.gateway_port).await?);
        let folder = scratch.path();
        let installer = Installer { programs, folder, progress };

        progress.say("starting two edge clusters, each a real etcd and kube-apiserver");
        let [one, two] = [&network.edges[0], &network.edges[1]];
        let (one, two) = tokio::try_join!(start_cluster(one, progress), start_cluster(two, progress))?;
        clusters.extend([one, two]);

        progress.say("certificates for the server, the agents and one caller");
        installer.issue().await?;
        let kubeconfig = installer.kubeconfig(network.gateway).await?;

        progress.say(
            "the server has the configuration and the policy of deploy/examples, here without comments:",
        );
        installer.configure_server()?;
        start_server(servers, &installer, network).await?;
        progress.say("each cluster has an agent, which runs at the site and dials the server:");
        for (edge, (cluster, account)) in network.edges.iter().zip(&*clusters) {
            let process = installer.agent(network, edge, cluster, account).await?;
            agents.push(Daemon { name: format!("tunnel-agent of {}", edge.name), process });
        }
        let kubectl = Kubectl::new(assets.kubectl, kubeconfig);
        let tour = Tour { progress, kubectl: &kubectl, folder };
        tour.connected().await?;
        progress.done("everything is set up", began);
        tour.two_clusters(network).await?;
        tour.watch().await?;
        tour.server(network).await?;

        let (first, second) = (&clusters[0].0, &clusters[1].0);
        *pod = Some(ShellPod::start(&network.edges[0], first, folder, progress).await?);
        outage::show(&tour, &network.first_link(&agents[0].process), first).await?;

        let before = process_id(servers);
        denial::show(&tour, &installer).await?;
        same_server(before, process_id(servers), progress)?;

        if let Some(prepared) = Offices::prepare(&tour, &installer, network, [first, second]).await? {
            tour.say("virtual IPs are read at the start, so this takes a restart; the agents dial again by themselves:");
            if let Some(old) = servers.pop() {
                ended_well(old.name, old.process.stop(STOP_GRACE).await)?;
            }
            start_server(servers, &installer, network).await?;
            tour.connected().await?;
            prepared.show(&tour).await?;
            *offices = Some(prepared);
        }
        progress.done("everything was shown", began);
        Ok(())
    }

    /// Prints commands to try in another terminal.
    pub(super) fn print_next_steps(&self, isolation: &Isolation, progress: &Progress) {
        let folder = self.scratch.path().display();
        progress.plain("\nTry it in another terminal:\n");
        if let Some(kubectl) = Assets::find().ok().filter(|_| !is_on_path("kubectl")) {
            let programs = kubectl.kubectl.parent().unwrap_or(&kubectl.kubectl).display().to_string();
            progress.plain(&format!("  export PATH=\"$PATH:{programs}\""));
        }
        progress.plain(&format!("  export KUBECONFIG={folder}/kubeconfig"));
        for edge in EDGES {
            progress.plain(&format!("  kubectl --context {edge} get pods -A"));
        }
        progress.plain(&format!("  kubectl --context {} exec -i {POD} -- sh", EDGES[0]));
        // Namespaces of a user namespace are not entered from outside.
        if let (Some(offices), Isolation::Namespaces) = (&self.offices, isolation) {
            for command in offices.commands() {
                progress.plain(&format!("  {command}"));
            }
        }
        if let Some(network) = &self.network {
            progress.plain(&format!("  curl http://{}/metrics", network.probes));
        }
        progress.plain(&format!("  tail -f {folder}/*.log\n\nCtrl-C stops everything."));
    }

    /// That every daemon still runs.
    pub(super) fn runs(&mut self) -> Result<(), DemoError> {
        for daemon in self.servers.iter_mut().chain(&mut self.agents) {
            if let Some(status) = daemon.process.ended() {
                return Err(DemoError::Ended { name: daemon.name.clone(), status });
            }
        }
        Ok(())
    }

    /// Gives each agent a fresh token, as kubelet does.
    pub(super) async fn rotate_tokens(&mut self) -> Result<(), DemoError> {
        for (_, account) in &mut self.clusters {
            account.rotate().await?;
        }
        Ok(())
    }

    /// The ends of the logs: of the daemons that have ended, or of all if none has.
    pub(super) fn tails(&mut self) -> String {
        let mut daemons: Vec<(bool, &mut Daemon)> = self
            .servers
            .iter_mut()
            .chain(&mut self.agents)
            .map(|daemon| (daemon.process.ended().is_some(), daemon))
            .collect();
        if daemons.iter().any(|(ended, _)| *ended) {
            daemons.retain(|(ended, _)| *ended);
        }
        let tail =
            |daemon: &Daemon| format!("--- end of the log of {}:\n{}\n", daemon.name, daemon.process.tail());
        daemons.iter().map(|(_, daemon)| tail(daemon)).collect()
    }

    /// Stops agents, server, clusters and networks, in this order. Goes on after an error and returns the
    /// first.
    ///
    /// With `others_watch` a daemon may end with requests that it had to cut off: they are the person's own.
    pub(super) async fn stop(self, progress: &Progress, others_watch: bool) -> Result<(), DemoError> {
        let Self { agents, servers, offices, pod, clusters, etcd, network, scratch } = self;
        let mut stopped = Ok(());
        for Daemon { name, process } in agents.into_iter().chain(servers) {
            let since = Instant::now();
            let ended = process.stop(STOP_GRACE).await;
            let cut_off =
                others_watch && ended.as_ref().is_ok_and(|status| status.code() == Some(GRACE_EXCEEDED));
            let remark = if cut_off { ", which cut off requests that still ran" } else { "" };
            progress.done(&format!("stopped {name}{remark}"), since);
            if !cut_off {
                stopped = stopped.and(ended_well(name, ended));
            }
        }
        drop((offices, pod));
        for ((cluster, _), name) in clusters.into_iter().zip(EDGES) {
            let since = Instant::now();
            let ended = cluster.stop().await.map_err(DemoError::from);
            progress.done(&format!("stopped kube-apiserver and etcd of {name}"), since);
            stopped = stopped.and(ended);
        }
        drop(etcd);
        drop(network);
        drop(scratch);
        stopped
    }
}

async fn start_server(
    servers: &mut Vec<Daemon>,
    installer: &Installer<'_>,
    network: &DemoNetwork,
) -> Result<(), DemoError> {
    let since = Instant::now();
    let process = installer.server(&network.cloud).await?;
    servers.push(Daemon { name: "tunnel-server".to_owned(), process });
    // What is not ready is stopped with all others.
    if let Some(server) = servers.last_mut() {
        probes::ready(&mut server.process, network.probes).await?;
    }
    let (gateway, dialed) = (network.gateway, network.cloud.dialed);
    let text = format!("tunnel-server is ready: callers at https://{gateway}, agents at {dialed}");
    installer.progress.done(&text, since);
    Ok(())
}

fn process_id(servers: &mut [Daemon]) -> Option<u32> {
    // An ended process has no ID.
    servers
        .first_mut()
        .and_then(|server| server.process.ended().map_or_else(|| server.process.id(), |_| None))
}

fn same_server(before: Option<u32>, now: Option<u32>, progress: &Progress) -> Result<(), DemoError> {
    if let Some(id) = before.filter(|_| before == now) {
        progress.say(&format!("the server is still process {id}: nothing was started again"));
        return Ok(());
    }
    let claim = "the server should be the same process as before the policy changed".to_owned();
    Err(DemoError::NotShown { claim, found: format!("{before:?} and then {now:?}") })
}

pub(super) fn ended_well(name: String, ended: Result<ExitStatus, ProcessError>) -> Result<(), DemoError> {
    let status = ended?;
    if status.success() {
        return Ok(());
    }
    Err(DemoError::Ended { name, status })
}

pub(super) async fn start_cluster(
    edge: &Edge,
    progress: &Progress,
) -> Result<(EdgeCluster, AgentAccount), DemoError> {
    let since = Instant::now();
    let cluster = EdgeCluster::start_at(edge.options.clone()).await?;
    let account = cluster.create_agent_account().await?;
    let group = format!("--group={GROUP}");
    let words = ["create", "clusterrolebinding", "tombolo-admins", "--clusterrole=cluster-admin", &group];
    let output = cluster.kubectl(&words).await.map_err(ClusterError::from)?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(DemoError::Refused { command: format!("kubectl {}", words.join(" ")), stderr });
    }
    let address = cluster.address();
    progress.done(
        &format!("{} is ready at {address}, and the group {GROUP} is its cluster-admin", edge.name),
        since,
    );
    Ok((cluster, account))
}
