//! `make demo SERVERS=3`: servers that share their records in etcd, of which one is killed under a watch.

use std::fs;
use std::time::{Duration, Instant};

use super::installer::{Installer, POLICY_EXAMPLE, Programs, SERVER_EXAMPLE, daemon};
use super::isolation::Isolation;
use super::live::{LiveOutput, until};
use super::network::{DemoNetwork, EDGES};
use super::probes;
use super::progress::Progress;
use super::setup::{Daemon, DemoSetup, start_cluster};
use super::several_addresses::ServerAddresses;
use super::tour::{STOP_GRACE, Tour};
use super::{DemoError, DemoOptions};
use crate::etcd::EtcdCluster;
use crate::kube::assets::Assets;
use crate::kube::kubectl::Kubectl;
use crate::process::Process;

/// The limit for a watch to show a change, with the time that a server's death takes to be noticed.
const GOES_ON_MAX: Duration = Duration::from_secs(60);

/// Sets everything up and shows it.
pub(super) async fn perform(
    setup: &mut DemoSetup,
    order: &DemoOptions,
    progress: &Progress,
) -> Result<(), DemoError> {
    let (programs, assets) = (Programs::find(order.bin_dir.as_deref())?, Assets::find()?);
    let began = Instant::now();
    let loopback = Isolation::Loopback { reason: String::new() };
    let DemoSetup { agents, servers, clusters, etcd, network, scratch, .. } = setup;
    let network = network.insert(DemoNetwork::prepare(&loopback, order.gateway_port).await?);
    let folder = scratch.path();
    let installer = Installer { programs, folder, progress };
    let addresses = ServerAddresses::all(order.servers, network.gateway).map_err(DemoError::Files)?;

    progress.say("starting two edge clusters, each a real etcd and kube-apiserver, and an etcd of three members for the servers");
    let [one, two] = [&network.edges[0], &network.edges[1]];
    let (one, two, shared) =
        tokio::join!(start_cluster(one, progress), start_cluster(two, progress), async {
            EtcdCluster::start().await
        });
    clusters.extend([one?, two?]);
    let etcd = etcd.insert(shared);

    progress.say("certificates: each server has one for callers and agents, and one for the other servers");
    let certificates = addresses
        .iter()
        .map(|server| server.id())
        .flat_map(|id| [("server", format!("--id {id} --name 127.0.0.1")), ("peer", format!("--id {id}"))]);
    installer.issue_for(certificates).await?;
    progress.say("all servers have this configuration, each with its own ports:");
    configure(&installer, etcd, &addresses)?;
    for address in &addresses {
        start(servers, &installer, *address).await?;
    }
    progress.say("each agent knows the address of every server:");
    let dialed: Vec<String> = addresses.iter().map(|server| server.tunnel.to_string()).collect();
    for (edge, (cluster, account)) in network.edges.iter().zip(&*clusters) {
        let process = installer.agent_of(&dialed.join(","), edge, cluster, account).await?;
        agents.push(Daemon { name: format!("tunnel-agent of {}", edge.name), process });
    }
    let kubectls = kubectls(&installer, &assets, &addresses).await?;
    for kubectl in &kubectls {
        Tour { progress, kubectl, folder }.connected().await?;
    }
    progress.done("everything is set up", began);

    progress.say("any server serves any cluster:");
    for (kubectl, server) in kubectls.iter().zip(&addresses) {
        progress.say(&format!("through {}:", server.id()));
        let tour = Tour { progress, kubectl, folder };
        for edge in EDGES {
            tour.run(&format!("--context {edge} get namespace default")).await?;
        }
    }
    kill_one_under_a_watch(servers, &installer, &kubectls, &addresses).await?;
    progress.say("the server comes back, and finds its records in etcd:");
    start(servers, &installer, addresses[0]).await?;
    Tour { progress, kubectl: &kubectls[0], folder }.connected().await?;
    progress.done("everything was shown", began);
    Ok(())
}

/// Commands to try in another terminal.
pub(super) fn print_next_steps(setup: &DemoSetup, progress: &Progress) {
    let folder = setup.scratch.path().display();
    progress.plain("\nTry it in another terminal, and kill servers meanwhile:\n");
    for server in &setup.servers {
        let id = server.name.trim_start_matches("the server ");
        progress.plain(&format!(
            "  kubectl --kubeconfig {folder}/{id}.kubeconfig --context {} get pods -A -w",
            EDGES[0]
        ));
    }
    progress.plain(&format!("  tail -f {folder}/*.log\n\nCtrl-C stops everything."));
}

/// Writes each server's configuration, and shows that of the first one.
fn configure(
    installer: &Installer<'_>,
    etcd: &EtcdCluster,
    servers: &[ServerAddresses],
) -> Result<(), DemoError> {
    let folder = installer.folder;
    fs::write(folder.join("policy.yaml"), POLICY_EXAMPLE).map_err(DemoError::Files)?;
    for server in servers {
        let path = folder.join(format!("{}.yaml", server.id()));
        let text = SERVER_EXAMPLE
            .replace("pki/server.crt", "pki/$(serverId)-server.crt")
            .replace("pki/server.key", "pki/$(serverId)-server.key")
            .replace("0.0.0.0:8444", &server.enrollment.to_string());
        let peering = format!(
            "peering:\n  listen: {0}\n  address: {0}\n  certificateFile: pki/$(serverId)-peer.crt\n  \
             keyFile: pki/$(serverId)-peer.key\n  peerCAFile: pki/peer-ca.crt\n  serverCAFile: pki/server-ca.crt\n",
            server.peering
        );
        fs::write(&path, format!("{text}\n{}{peering}", etcd.section(""))).map_err(DemoError::Files)?;
        if server.number == 0 {
            installer.progress.file(&path).map_err(DemoError::Files)?;
        }
    }
    Ok(())
}

async fn start(
    servers: &mut Vec<Daemon>,
    installer: &Installer<'_>,
    addresses: ServerAddresses,
) -> Result<(), DemoError> {
    let (since, id) = (Instant::now(), addresses.id());
    let socket = installer.folder.join(format!("{id}/admin.sock")).display().to_string();
    let server =
        daemon(&installer.programs.server, &installer.folder.join(format!("{id}.yaml")), addresses.probes)
            .arguments(["--server-id".to_owned(), id.clone()])
            .arguments(["--gateway-listen".to_owned(), addresses.gateway.to_string()])
            .arguments(["--tunnel-listen".to_owned(), addresses.tunnel.to_string()])
            .arguments(["--admin-socket".to_owned(), socket]);
    installer.progress.command(&format!("{} &", server.command_line()));
    let mut process = Process::start(&server, &installer.folder.join(format!("{id}.log"))).await?;
    let ready = probes::ready(&mut process, addresses.probes).await;
    servers.push(Daemon { name: format!("the server {id}"), process });
    ready?;
    installer.progress.done(&format!("{id} is ready: callers at https://{}", addresses.gateway), since);
    Ok(())
}

/// A kubeconfig and a kubectl for each server.
async fn kubectls(
    installer: &Installer<'_>,
    assets: &Assets,
    servers: &[ServerAddresses],
) -> Result<Vec<Kubectl>, DemoError> {
    let mut kubectls = Vec::new();
    for server in servers {
        let made = installer.kubeconfig(server.gateway).await?;
        let path = installer.folder.join(format!("{}.kubeconfig", server.id()));
        fs::rename(made, &path).map_err(DemoError::Files)?;
        kubectls.push(Kubectl::new(assets.kubectl.clone(), path));
    }
    Ok(kubectls)
}

/// A watch through the last server, and a change through the one before, while the first server is killed.
async fn kill_one_under_a_watch(
    servers: &mut Vec<Daemon>,
    installer: &Installer<'_>,
    kubectls: &[Kubectl],
    addresses: &[ServerAddresses],
) -> Result<(), DemoError> {
    let (progress, folder) = (installer.progress, installer.folder);
    // The first server is killed, so neither is that one.
    let (writer, watcher) = (&kubectls[1], &kubectls[kubectls.len() - 1]);
    let watcher_id = addresses[addresses.len() - 1].id();
    progress.say(&format!(
        "a watch of each cluster through {watcher_id}, and then the server {} is killed:",
        addresses[0].id()
    ));
    let mut watches = Vec::new();
    for edge in EDGES {
        Tour { progress, kubectl: writer, folder }.apply(edge, "greeting: before").await?;
        let words =
            format!("--context {edge} get configmaps site -w -o jsonpath={{.data.greeting}}{{\"\\n\"}}");
        progress.command(&format!("kubectl {words} &"));
        let path = folder.join(format!("{edge}-several.out"));
        let process = watcher.start(&words.split(' ').collect::<Vec<_>>(), &path).await?;
        let mut output = LiveOutput::new(edge, &path);
        let claim = format!("the watch of {edge} should show its object");
        until(&mut [&mut output], progress, GOES_ON_MAX, &claim, |outputs| {
            outputs[0].has(|line| line == "before")
        })
        .await?;
        watches.push((edge, process, output));
    }
    let mut killed = servers.remove(0);
    killed.process.kill();
    progress.say(&format!("killed {}, without a warning", killed.name));
    let since = Instant::now();
    for (edge, process, mut output) in watches {
        Tour { progress, kubectl: writer, folder }.apply(edge, "greeting: after").await?;
        let claim = format!("the watch of {edge} should go on");
        until(&mut [&mut output], progress, GOES_ON_MAX, &claim, |outputs| {
            outputs[0].has(|line| line == "after")
        })
        .await?;
        process.stop(STOP_GRACE).await?;
    }
    progress.done("both watches went on, with one server less", since);
    Ok(())
}
