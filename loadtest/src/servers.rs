//! `loadtest servers`: what idle agents with tunnels to several servers cost each server, and etcd.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ::tests::cpu_time::cpu_time_of;
use ::tests::etcd::EtcdCluster;
use ::tests::members::{join, join_first};
use ::tests::rig::{Peer, Rig};
use clap::Args;
use serde::Serialize;
use tokio::time::sleep;

use crate::agents::{Agent, AgentError, OpenTunnel, issue};
use crate::idle::{BOUND_FROM, TUNNEL_KIB_MAX, wait_for_count};
use crate::process::settled_bytes;
use crate::progress::Progress;
use crate::report::{Heading, Report};
use crate::rounds::seconds;
use crate::table::{Table, megabytes};

/// Most memory of a server for each tunnel that another server has, in bytes.
const TOLD_BYTES_MAX: f64 = 400.0;
/// Most dials of an agent for a tunnel, and the pause between two of them.
const DIALS_MAX: u32 = 20;
const REDIAL_AFTER: Duration = Duration::from_millis(500);

/// Most CPU time of all servers and of etcd at rest, in cores.
const IDLE_CORES_MAX: f64 = 0.5;

/// The flags of `loadtest servers`.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServersFlags {
    /// Servers that share their records in an etcd of three members
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=20))]
    pub servers: u32,

    /// Agents, each with a certificate and a tunnel to two of the servers
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub agents: u32,

    /// Agents that dial at once
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub batch: u32,

    /// Time in which CPU time and the revision of etcd are measured while all tunnels are idle
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    pub seconds: f64,
}

/// The figures of the report.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ServersResults {
    servers: u32,
    agents: u32,
    connect_seconds: f64,
    /// The first server's growth for each cluster with a tunnel to another server.
    bytes_per_cluster: f64,
    /// The first server's growth for each tunnel that it has, once it knows the cluster.
    kib_per_tunnel: f64,
    /// The second server's growth for each of these tunnels, once it knows the cluster.
    bytes_per_told_tunnel: f64,
    /// Resident bytes of each server with all tunnels.
    resident: Vec<u64>,
    /// CPU time of all servers at rest, in cores.
    servers_cores: f64,
    /// CPU time of all members of etcd at rest, in cores.
    etcd_cores: f64,
    /// Changes in etcd at rest.
    revisions: i64,
}

/// The servers and their etcd.
struct Installation {
    rig: Rig,
    peers: Vec<Peer>,
    etcd: EtcdCluster,
}

/// Runs the scenario, and reports its figures.
///
/// # Errors
/// Every error that prevents a report.
pub async fn run(flags: &ServersFlags, seed: u64) -> Result<Report, Box<dyn Error>> {
    let heading = Heading::new("servers", seed, flags)?;
    let progress = Progress::new();
    let installation = Installation::start(flags.servers).await;
    progress.show(&format!("issuing {} certificates", flags.agents));
    let mut agents = issue(&installation.rig, "idle", flags.agents, seed).await?;
    let mut results =
        ServersResults { servers: flags.servers, agents: flags.agents, ..ServersResults::default() };

    // The first tunnels are to the last server, and leave a record of each cluster at every server. The second ones are to
    // the first server. So its growth is all of own tunnels, and that of the second server all of told ones.
    let batch = flags.batch as usize;
    let (addresses, last) = (installation.addresses(), flags.servers as usize - 1);
    let first = |_| addresses[last];
    let mut expected = vec![0; flags.servers as usize];
    expected[last] = agents.len();
    let empty = installation.settled().await?;
    let mut open =
        installation.connect(&mut agents, batch, first, &expected, &progress, &mut results).await?;
    let told = installation.settled().await?;
    let second = |_| addresses[0];
    // The memory that a server takes once, for a thread or a table, is not that of a tunnel: the second half shows it.
    let half = agents.len() / 2;
    expected[0] = half;
    let (begin, rest) = agents.split_at_mut(half);
    open.extend(installation.connect(begin, batch, second, &expected, &progress, &mut results).await?);
    let half_open = installation.settled().await?;
    expected[0] = flags.agents as usize;
    open.extend(installation.connect(rest, batch, second, &expected, &progress, &mut results).await?);
    let all = installation.settled().await?;
    let growth = |before: &[u64], after: &[u64], server: usize, tunnels: usize| {
        after[server].saturating_sub(before[server]) as f64 / tunnels as f64
    };
    let rest = expected[0] - half;
    results.bytes_per_cluster = growth(&empty, &told, 0, expected[0]);
    results.kib_per_tunnel = growth(&half_open, &all, 0, rest) / 1024.0;
    results.bytes_per_told_tunnel = growth(&half_open, &all, 1, rest);
    results.resident = all;

    progress.show(&format!("{} tunnels at rest for {} s", open.len(), flags.seconds));
    installation.rest(Duration::from_secs_f64(flags.seconds), &mut results).await?;
    installation.counted(&expected).await?;
    futures::future::join_all(open.into_iter().map(OpenTunnel::leave)).await;
    Ok(results.report(heading)?)
}

/// Lets agents dial, a batch at a time. `server` is the address for the agent of a number.
async fn connect(
    agents: &mut [Agent],
    batch: usize,
    server: impl Fn(usize) -> SocketAddr,
    progress: &Progress,
) -> Result<Vec<OpenTunnel>, AgentError> {
    let (mut open, all) = (Vec::new(), agents.len());
    for agents in agents.chunks_mut(batch) {
        progress.show(&format!("{} of {all} tunnels", open.len()));
        let first = open.len();
        let dials = agents.iter_mut().enumerate();
        let dials = dials.map(|(number, agent)| dial(agent, server(first + number)));
        open.extend(futures::future::try_join_all(dials).await?);
    }
    Ok(open)
}

/// Dials again after a refusal, as a real agent does: a server without news from etcd refuses for a moment.
async fn dial(agent: &mut Agent, server: SocketAddr) -> Result<OpenTunnel, AgentError> {
    for _ in 1..DIALS_MAX {
        match agent.connect(server).await {
            Err(AgentError::Dial(..)) => sleep(REDIAL_AFTER).await,
            connected => return connected,
        }
    }
    agent.connect(server).await
}

impl Installation {
    async fn start(servers: u32) -> Self {
        let etcd = EtcdCluster::start().await;
        let mut rig = Rig::start_logging("info", "").await;
        join_first(&mut rig, &etcd).await;
        let mut peers = Vec::new();
        for number in 1..servers {
            peers.push(join(&rig, &etcd, &format!("server-{number}")).await);
        }
        Self { rig, peers, etcd }
    }

    /// The address of each server for agents.
    fn addresses(&self) -> Vec<SocketAddr> {
        std::iter::once(self.rig.gateway()).chain(self.peers.iter().map(|peer| peer.gateway)).collect()
    }

    fn processes(&self) -> Vec<u32> {
        let of_peer = |peer: &Peer| peer.process.as_ref().and_then(|process| process.id()).expect("it runs");
        std::iter::once(self.rig.server_id()).chain(self.peers.iter().map(of_peer)).collect()
    }

    /// Opens a tunnel for each agent, and waits until the servers have as many as `expected`.
    async fn connect(
        &self,
        agents: &mut [Agent],
        batch: usize,
        server: impl Fn(usize) -> SocketAddr,
        expected: &[usize],
        progress: &Progress,
        results: &mut ServersResults,
    ) -> Result<Vec<OpenTunnel>, Box<dyn Error>> {
        let began = Instant::now();
        let open = connect(agents, batch, server, progress).await?;
        self.counted(expected).await?;
        results.connect_seconds += began.elapsed().as_secs_f64();
        progress.show("waiting until the memory of all servers rests");
        Ok(open)
    }

    async fn settled(&self) -> io::Result<Vec<u64>> {
        let mut all = Vec::new();
        for process in self.processes() {
            all.push(settled_bytes(process).await?);
        }
        Ok(all)
    }

    /// Waits until each server has this many tunnels.
    async fn counted(&self, expected: &[usize]) -> io::Result<()> {
        let probes = std::iter::once(self.rig.probes()).chain(self.peers.iter().map(|peer| peer.probes));
        for (probes, expected) in probes.zip(expected) {
            wait_for_count(&self.rig, probes, *expected).await?;
        }
        Ok(())
    }

    /// Measures what servers and etcd do while nothing happens.
    async fn rest(&self, time: Duration, results: &mut ServersResults) -> Result<(), Box<dyn Error>> {
        let (servers, members) = (self.processes(), self.etcd.process_ids());
        let before = (cpu_time_of(&servers)?, cpu_time_of(&members)?, self.etcd.revision().await);
        let began = Instant::now();
        sleep(time).await;
        let cores =
            |used: Duration, before: Duration| (used - before).as_secs_f64() / began.elapsed().as_secs_f64();
        results.servers_cores = cores(cpu_time_of(&servers)?, before.0);
        results.etcd_cores = cores(cpu_time_of(&members)?, before.1);
        results.revisions = self.etcd.revision().await - before.2;
        Ok(())
    }
}

impl ServersResults {
    fn report(&self, heading: Heading) -> io::Result<Report> {
        let mut table = Table::new(&["", ""]);
        let largest = self.resident.iter().max().copied().unwrap_or_default();
        for (name, value) in [
            ("connecting all tunnels, s", format!("{:.1}", self.connect_seconds)),
            ("bytes of a server per cluster of another", format!("{:.0}", self.bytes_per_cluster)),
            ("KiB of a server per own tunnel", format!("{:.1}", self.kib_per_tunnel)),
            ("bytes of a server per tunnel of another", format!("{:.0}", self.bytes_per_told_tunnel)),
            ("largest server with all tunnels, MB", megabytes(largest)),
            ("all servers at rest, cores", format!("{:.3}", self.servers_cores)),
            ("all members of etcd at rest, cores", format!("{:.3}", self.etcd_cores)),
            ("changes in etcd at rest", self.revisions.to_string()),
        ] {
            table.row(vec![name.to_owned(), value]);
        }
        let title = format!("{} servers, {} agents with two tunnels each", self.servers, self.agents);
        Ok(Report::new(heading, self)?.table(title, table).missed(self.missed()))
    }

    /// The bounds that do not hold, as sentences.
    fn missed(&self) -> Vec<String> {
        let is_many = self.agents >= BOUND_FROM;
        let cores = self.servers_cores + self.etcd_cores;
        [
            (is_many && self.kib_per_tunnel > TUNNEL_KIB_MAX).then(|| {
                format!("an own tunnel costs {:.1} KiB, more than {TUNNEL_KIB_MAX}", self.kib_per_tunnel)
            }),
            (is_many && self.bytes_per_told_tunnel > TOLD_BYTES_MAX).then(|| {
                let found = self.bytes_per_told_tunnel;
                format!("a tunnel of another server costs {found:.0} bytes, more than {TOLD_BYTES_MAX}")
            }),
            (cores > IDLE_CORES_MAX).then(|| {
                format!("servers and etcd use {cores:.2} cores at rest, more than {IDLE_CORES_MAX}")
            }),
            (self.revisions != 0)
                .then(|| format!("etcd has {} changes at rest, and none was wanted", self.revisions)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
