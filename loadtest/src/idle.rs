//! `loadtest idle`: memory and CPU time of a server for each idle tunnel.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ::tests::cpu_time::cpu_time;
use ::tests::rig::Rig;
use ::tests::scratch::Scratch;
use clap::Args;
use serde::Serialize;
use tokio::time::sleep;

use crate::agents::{Agent, AgentError, OpenTunnel, issue};
use crate::caller::Caller;
use crate::process::settled_bytes;
use crate::progress::Progress;
use crate::report::{Heading, Report};
use crate::rounds::seconds;
use crate::route::Http;
use crate::scrape::Gauges;
use crate::svg::{Labels, Line, lines};
use crate::table::{Table, megabytes};
use crate::target::Target;

/// Most memory of the server for each idle tunnel, in KiB.
pub const TUNNEL_KIB_MAX: f64 = 60.0;
/// Fewest tunnels for which the bound is checked. With fewer, the memory that the process needs once distorts
/// the quotient.
pub const BOUND_FROM: u32 = 500;
/// Number of steps after which memory is measured.
const STEPS: u32 = 4;
/// Longest wait until the server's gauge has the right number of tunnels.
const COUNTED_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The flags of `loadtest idle`.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IdleFlags {
    /// Agents, each with a certificate, a socket and a tunnel of its own
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub agents: u32,

    /// Agents that dial at once
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub batch: u32,

    /// Time in which the server's CPU time is measured while all tunnels are idle
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = seconds)]
    pub seconds: f64,
}

/// The figures of the report.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct IdleResults {
    tunnels: u32,
    issue_seconds: f64,
    connect_seconds: f64,
    /// The number of tunnels and the server's resident bytes after each step.
    memory: Vec<(u32, u64)>,
    /// The growth of the server's memory, divided by all tunnels.
    kib_per_tunnel: f64,
    /// The growth for the second half of the tunnels, after the memory that is needed once.
    kib_per_tunnel_second_half: f64,
    /// CPU time of the server in microseconds per second for each tunnel.
    cpu_us_per_tunnel_second: f64,
    /// Resident bytes after all tunnels were closed.
    bytes_left: u64,
    /// Memory of a plain TLS server for each idle HTTP/2 connection, in KiB.
    direct_kib_per_connection: f64,
}

/// Runs the scenario, and reports its figures.
///
/// # Errors
/// Every error that prevents a report.
pub async fn run(flags: &IdleFlags, seed: u64) -> Result<Report, Box<dyn Error>> {
    let heading = Heading::new("idle", seed, flags)?;
    let progress = Progress::new();
    let mut rig = Rig::start_logging("info", "").await;
    let server = rig.server().id().expect("the server runs");

    progress.show(&format!("issuing {} certificates", flags.agents));
    let began = Instant::now();
    let mut agents = issue(&rig, "idle", flags.agents, seed).await?;
    let mut results = IdleResults { tunnels: flags.agents, ..IdleResults::default() };
    results.issue_seconds = began.elapsed().as_secs_f64();

    results.memory.push((0, settled_bytes(server).await?));
    let mut open = Vec::new();
    let step = flags.agents.div_ceil(STEPS) as usize;
    for agents in agents.chunks_mut(step) {
        let began = Instant::now();
        for batch in agents.chunks_mut(flags.batch as usize) {
            progress.show(&format!("{} of {} tunnels", open.len(), flags.agents));
            open.extend(connect(&rig, batch).await?);
        }
        wait_for_count(&rig, rig.probes(), open.len()).await?;
        results.connect_seconds += began.elapsed().as_secs_f64();
        progress.show(&format!("{} tunnels: waiting until the server's memory rests", open.len()));
        results.memory.push((open.len() as u32, settled_bytes(server).await?));
    }

    progress.show(&format!("{} tunnels at rest for {} s", open.len(), flags.seconds));
    let before = cpu_time(server)?;
    let began = Instant::now();
    sleep(Duration::from_secs_f64(flags.seconds)).await;
    let used = (cpu_time(server)? - before).as_secs_f64() / began.elapsed().as_secs_f64();
    results.cpu_us_per_tunnel_second = used * 1e6 / f64::from(flags.agents);
    wait_for_count(&rig, rig.probes(), open.len()).await?;
    results.memory.push((flags.agents, settled_bytes(server).await?));

    progress.show("all leave");
    futures::future::join_all(open.into_iter().map(OpenTunnel::leave)).await;
    wait_for_count(&rig, rig.probes(), 0).await?;
    results.bytes_left = settled_bytes(server).await?;
    results.divide();
    progress.show(&format!("{} idle connections at a plain TLS server", flags.agents));
    results.direct_kib_per_connection = direct(flags.agents).await?;
    Ok(results.report(heading)?)
}

/// Lets all agents of a batch dial concurrently.
async fn connect(rig: &Rig, batch: &mut [Agent]) -> Result<Vec<OpenTunnel>, AgentError> {
    futures::future::try_join_all(batch.iter_mut().map(|agent| agent.connect(rig.gateway()))).await
}

/// Waits until the gauge of the server with these probes has this many tunnels.
///
/// # Errors
/// It never has.
pub async fn wait_for_count(rig: &Rig, probes: SocketAddr, tunnels: usize) -> io::Result<()> {
    let deadline = Instant::now() + COUNTED_MAX;
    loop {
        let gauges = Gauges::parse(&rig.metrics(probes).await);
        let connected = gauges.sum("tombolo_server_agents_connected");
        if connected == tunnels as f64 {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let said = format!("the server counts {connected} tunnels and not {tunnels}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, said));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Measures the memory of a plain TLS server for each idle HTTP/2 connection, in KiB.
async fn direct(connections: u32) -> Result<f64, Box<dyn Error>> {
    let scratch = Scratch::new("tombolo-loadtest-")?;
    let target = Target::start(scratch.path(), 1).await;
    let route = target.direct(Http::Two);
    let before = settled_bytes(target.id()).await?;
    let mut callers = Vec::new();
    for _ in 0..connections {
        callers.push(Caller::connect(&route.destination).await?);
    }
    let after = settled_bytes(target.id()).await?;
    Ok(kib(before, after) / f64::from(connections))
}

impl IdleResults {
    fn divide(&mut self) {
        let (first, middle) = (self.memory[0], self.memory[self.memory.len() / 2]);
        let last = self.memory[self.memory.len() - 1];
        let share = |from: (u32, u64), to: (u32, u64)| {
            kib(from.1, to.1) / f64::from(to.0.saturating_sub(from.0).max(1))
        };
        self.kib_per_tunnel = share(first, last);
        self.kib_per_tunnel_second_half = share(middle, last);
    }

    fn report(&self, heading: Heading) -> io::Result<Report> {
        let mut table = Table::new(&["", ""]);
        let rows = [
            ("KiB of the server per idle tunnel", format!("{:.1}", self.kib_per_tunnel)),
            ("the same, second half of them", format!("{:.1}", self.kib_per_tunnel_second_half)),
            (
                "KiB of a plain TLS server per idle connection",
                format!("{:.1}", self.direct_kib_per_connection),
            ),
            ("CPU us of the server per tunnel and second", format!("{:.1}", self.cpu_us_per_tunnel_second)),
            ("server at first, MB", megabytes(self.memory[0].1)),
            ("with all tunnels, MB", megabytes(self.memory[self.memory.len() - 1].1)),
            ("when all have left, MB", megabytes(self.bytes_left)),
            ("issuing certificates, s", format!("{:.1}", self.issue_seconds)),
            ("connecting, s", format!("{:.1}", self.connect_seconds)),
        ];
        for (name, value) in rows {
            table.row(vec![name.to_owned(), value]);
        }
        let worst = self.kib_per_tunnel.max(self.kib_per_tunnel_second_half);
        let missed = (self.tunnels >= BOUND_FROM && worst > TUNNEL_KIB_MAX)
            .then(|| format!("an idle tunnel costs the server {worst:.1} KiB, more than {TUNNEL_KIB_MAX}"));
        let points = self.memory.iter().map(|&(tunnels, bytes)| (f64::from(tunnels), bytes as f64 / 1e6));
        let labels = Labels { title: "The server's memory by idle tunnels", x: "tunnels", y: "MB resident" };
        let line = Line { name: "tunnel-server".to_owned(), points: points.collect() };
        let report = Report::new(heading, self)?.table(format!("{} idle tunnels", self.tunnels), table);
        Ok(report.missed(missed).plots([lines("idle-memory", labels, &[line], false, false)]))
    }
}

fn kib(from: u64, to: u64) -> f64 {
    (to as f64 - from as f64) / 1024.0
}
