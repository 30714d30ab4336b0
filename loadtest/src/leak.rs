//! `loadtest leak`: checks that the daemons release everything that requests and reconnects have used.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use ::tests::rig::ApiServer;
use ::tests::scratch::Scratch;
use clap::Args;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::agents::{Agent, AgentError, issue};
use crate::canceling_callers::{CancelingCallers, RequestCounts, RequestMix};
use crate::flapping_servers::FlappingServers;
use crate::process::{open_files, resident_bytes, settled_bytes};
use crate::progress::Progress;
use crate::report::{Heading, Report};
use crate::rig::{TunnelRig, cluster};
use crate::route::{Daemons, Http};
use crate::svg::{Labels, Line, lines};
use crate::table::{Table, megabytes};
use crate::target::{BULK, SMALL, Target};
use linksim::rng::SeededRng;

/// Longest wait until everything is released. The agent keeps an idle connection to its API server for 60 s,
/// and QUIC keeps a closed connection for three probe timeouts.
const RETURN_MAX: Duration = Duration::from_secs(150);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Flapping servers of the agent. It may have eight servers, and the gateway is one.
const FLAPPING_SERVERS: u32 = 7;
/// Agents without an API server that reconnect to the server.
const RECONNECTING: u32 = 10;
/// Longest life of their tunnels, in milliseconds.
const TUNNEL_LIFE_MAX_MS: u64 = 100;
/// One part in this many warms up: allocators, tables and pools reach their lasting size.
const WARM_UP_SHARE: u64 = 10;
/// Threads that may be left. A daemon keeps every thread that it started for blocking calls, so as many stay
/// as such calls once ran together. A thread left by each reconnect would be more.
const THREADS_MORE_MAX: f64 = 16.0;
/// Largest percentage of uncancelled requests that may fail. HTTP/2's own limits disconnect a caller that
/// resets many streams.
const FAILED_PERCENT_MAX: f64 = 1.0;

/// The flags of `loadtest leak`.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeakFlags {
    /// Requests of all callers together
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    pub requests: u64,

    /// Percentage of requests that are cancelled at a random moment
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub cancel_percent: u64,

    /// Callers at once, half of them over HTTP/1.1
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub callers: u32,

    /// Tunnels that agents open and lose at the server, and as many that one agent opens and loses at
    /// flapping servers
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub reconnects: u64,

    /// Most growth of each daemon's resident memory; the slots of an agent's 128 streams alone keep 57 KiB
    /// each after large uploads
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub memory_mib: u64,
}

/// The resources that a daemon uses.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct DaemonUsage {
    resident_bytes: u64,
    open_files: usize,
    /// Gauges that count resources in use, summed over their labels.
    gauges: BTreeMap<String, f64>,
}

/// The usage of one daemon before and after the run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DaemonChange {
    name: &'static str,
    before: DaemonUsage,
    after: DaemonUsage,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LeakResults {
    requests: RequestCounts,
    /// One of the requests that failed.
    failure: Option<String>,
    server_reconnects: u64,
    agent_reconnects: u64,
    daemons: [DaemonChange; 2],
    seconds_to_return: f64,
    /// Seconds since the start, with the resident bytes of server and agent.
    memory: Vec<(f64, u64, u64)>,
}

/// The daemons under test, and the load on them.
struct LeakTest {
    tunneled: TunnelRig,
    daemons: Daemons,
    flapping: FlappingServers,
    agents: Vec<Agent>,
    mix: RequestMix,
    began: Instant,
    memory: Vec<(f64, u64, u64)>,
    progress: Progress,
}

/// Runs the scenario, and reports its figures.
///
/// # Errors
/// Every error that prevents a report.
pub async fn run(flags: &LeakFlags, seed: u64) -> Result<Report, Box<dyn Error>> {
    let heading = Heading::new("leak", seed, flags)?;
    let scratch = Scratch::new("tombolo-loadtest-")?;
    let target = Target::start(scratch.path(), 8).await;
    let mut test = LeakTest::start(flags, &target.api_server(scratch.path())?, seed).await?;

    // Every agent connects at least once, because the server keeps a record of every cluster that it has
    // seen.
    let reconnects = (flags.reconnects / WARM_UP_SHARE).max(flags.reconnects.min(u64::from(RECONNECTING)));
    test.churn(flags, flags.requests / WARM_UP_SHARE, reconnects, seed).await?;
    let before = test.settled_usage().await?;
    let warm_up = test.flapping.closed();
    let (requests, failure) = test.churn(flags, flags.requests, flags.reconnects, seed + 1).await?;
    let began = Instant::now();
    let after = test.released_usage(&before).await?;
    let [server, agent] =
        before.into_iter().zip(after).collect::<Vec<_>>().try_into().map_err(|_| "two daemons")?;
    let results = LeakResults {
        requests,
        failure,
        server_reconnects: flags.reconnects,
        agent_reconnects: test.flapping.closed() - warm_up,
        daemons: [
            DaemonChange { name: "server", before: server.0, after: server.1 },
            DaemonChange { name: "agent", before: agent.0, after: agent.1 },
        ],
        seconds_to_return: began.elapsed().as_secs_f64(),
        memory: test.memory,
    };
    Ok(results.report(heading, flags)?)
}

impl LeakTest {
    async fn start(flags: &LeakFlags, api_server: &ApiServer, seed: u64) -> Result<Self, Box<dyn Error>> {
        let progress = Progress::new();
        progress.show("starting");
        let mut tunneled = TunnelRig::start(api_server, 0, "").await;
        let flapping = FlappingServers::start(tunneled.rig(), &cluster(0), FLAPPING_SERVERS, seed)?;
        tunneled.add_agent(api_server, flapping.addresses()).await;
        let agents = issue(tunneled.rig(), "leak", RECONNECTING, seed).await?;
        let destination = tunneled.destination(Http::Two).await;
        let uri = |path: &str| destination.uri(&format!("/clusters/{}{path}", cluster(0)));
        let (small, bulk) = (uri(SMALL), uri(BULK));
        let mix = RequestMix { destination, small, bulk, cancel_percent: flags.cancel_percent };
        let (daemons, memory) = (tunneled.daemons(), Vec::new());
        Ok(Self { tunneled, daemons, flapping, agents, mix, began: Instant::now(), memory, progress })
    }

    /// Runs requests and reconnects concurrently, until there were this many of each.
    async fn churn(
        &mut self,
        flags: &LeakFlags,
        requests: u64,
        reconnects: u64,
        seed: u64,
    ) -> Result<(RequestCounts, Option<String>), Box<dyn Error>> {
        let callers = CancelingCallers::start(&self.mix, flags.callers, requests, seed);
        let gateway = self.tunneled.rig().gateway();
        let mut reconnecting = JoinSet::new();
        let share = reconnects.div_ceil(u64::from(RECONNECTING));
        let mut left = reconnects;
        for (number, agent) in std::mem::take(&mut self.agents).into_iter().enumerate() {
            let (count, rng) = (share.min(left), SeededRng::new(seed.wrapping_add(number as u64)));
            left -= count;
            reconnecting.spawn(reconnect_often(agent, gateway, count, rng));
        }
        let closed = self.flapping.closed();
        self.flapping.flap(reconnects > 0);
        loop {
            let (counts, flapped) = (callers.counts(), self.flapping.closed() - closed);
            let asked = counts.answered + counts.given_up + counts.failed;
            self.progress
                .show(&format!("{asked} of {requests} requests, {flapped} of {reconnects} reconnects"));
            self.sample_memory()?;
            if asked >= requests && flapped >= reconnects {
                break;
            }
            sleep(LOOK_EVERY).await;
        }
        self.flapping.flap(false);
        while let Some(ended) = reconnecting.join_next().await {
            self.agents.push(ended??);
        }
        Ok(callers.end().await)
    }

    /// Adds a sample of the daemons' memory.
    fn sample_memory(&mut self) -> io::Result<()> {
        let (server, agent) = self.daemons.resident_bytes()?;
        self.memory.push((self.began.elapsed().as_secs_f64(), server, agent));
        Ok(())
    }

    async fn usage(&self) -> io::Result<[DaemonUsage; 2]> {
        let (server, agent) = self.tunneled.gauges().await;
        let of = |process, gauges: BTreeMap<String, f64>| {
            let (resident_bytes, open_files) = (resident_bytes(process)?, open_files(process)?);
            Ok::<_, io::Error>(DaemonUsage { resident_bytes, open_files, gauges })
        };
        let agents = self.daemons.agents[0];
        Ok([of(self.daemons.server, server.in_use())?, of(agents, agent.in_use())?])
    }

    /// The usage once all tunnels are up, no request runs, and memory has settled.
    async fn settled_usage(&mut self) -> io::Result<[DaemonUsage; 2]> {
        self.progress.show("waiting until everything rests");
        let deadline = Instant::now() + RETURN_MAX;
        loop {
            let usage = self.usage().await?;
            let [server, agent] = &usage;
            let gauge = |usage: &DaemonUsage, name: &str| usage.gauges.get(name).copied().unwrap_or_default();
            let is_quiet = gauge(server, "tombolo_server_requests_active") == 0.0
                && gauge(agent, "tombolo_agent_requests_active") == 0.0
                && gauge(server, "tombolo_server_agents_connected") == 1.0
                && gauge(agent, "tombolo_agent_tunnels_connected") == f64::from(FLAPPING_SERVERS + 1);
            if is_quiet || Instant::now() >= deadline {
                break;
            }
            sleep(LOOK_EVERY).await;
        }
        settled_bytes(self.daemons.server).await?;
        settled_bytes(self.daemons.agents[0]).await?;
        self.usage().await
    }

    /// The usage once it is no more than before, or after `RETURN_MAX`.
    async fn released_usage(&mut self, before: &[DaemonUsage; 2]) -> io::Result<[DaemonUsage; 2]> {
        let deadline = Instant::now() + RETURN_MAX;
        self.settled_usage().await?;
        loop {
            let now = self.usage().await?;
            self.sample_memory()?;
            let left: Vec<String> =
                before.iter().zip(&now).flat_map(|(before, now)| leaked(before, now)).collect();
            if left.is_empty() || Instant::now() >= deadline {
                return Ok(now);
            }
            self.progress.show(&format!("waiting for {}", left.join(", ")));
            sleep(LOOK_EVERY).await;
        }
    }
}

/// Opens and loses tunnels, with or without a close, as a new agent process or as the same.
async fn reconnect_often(
    mut agent: Agent,
    server: std::net::SocketAddr,
    count: u64,
    mut rng: SeededRng,
) -> Result<Agent, AgentError> {
    for _ in 0..count {
        if rng.below(2) == 0 {
            agent.restart(&mut rng);
        }
        let tunnel = agent.connect(server).await?;
        sleep(Duration::from_millis(rng.below(TUNNEL_LIFE_MAX_MS))).await;
        match rng.below(2) {
            0 => tunnel.leave().await,
            _ => drop(tunnel),
        }
    }
    Ok(agent)
}

/// Describes each resource of which more is in use than before. Memory is checked elsewhere, because
/// allocators keep some.
fn leaked(before: &DaemonUsage, after: &DaemonUsage) -> Vec<String> {
    let mut left = Vec::new();
    if after.open_files > before.open_files {
        left.push(format!("open files {} instead of {}", after.open_files, before.open_files));
    }
    for (name, &now) in &after.gauges {
        let then = before.gauges.get(name).copied().unwrap_or_default();
        let more_max = if name.ends_with("_threads") { THREADS_MORE_MAX } else { 0.0 };
        if now > then + more_max {
            left.push(format!("{name} {now} instead of {then}"));
        }
    }
    left
}

impl LeakResults {
    fn report(&self, heading: Heading, flags: &LeakFlags) -> io::Result<Report> {
        let RequestCounts { answered, given_up, failed } = self.requests;
        let mut table = Table::new(&["", "before", "after"]);
        for DaemonChange { name, before, after } in &self.daemons {
            let memory = [before, after].map(|usage| megabytes(usage.resident_bytes));
            let files = [before, after].map(|usage| usage.open_files.to_string());
            let mut row =
                |what: &str, [then, now]: [String; 2]| table.row(vec![format!("{name}: {what}"), then, now]);
            row("resident, MB", memory);
            row("open files", files);
            for (gauge, now) in &after.gauges {
                let then = before.gauges.get(gauge).copied().unwrap_or_default();
                row(gauge, [then.to_string(), now.to_string()]);
            }
        }
        let title = format!(
            "{answered} requests answered, {given_up} given up, {failed} failed; {} reconnects at the server, {} of the \
             agent; all returned after {:.0} s",
            self.server_reconnects, self.agent_reconnects, self.seconds_to_return
        );
        let line = |name: &str, of: fn(&(f64, u64, u64)) -> u64| Line {
            name: name.to_owned(),
            points: self.memory.iter().map(|look| (look.0, of(look) as f64 / 1e6)).collect(),
        };
        let labels =
            Labels { title: "Memory under requests, cancels and reconnects", x: "seconds", y: "MB resident" };
        let both = [line("tunnel-server", |look| look.1), line("tunnel-agent", |look| look.2)];
        let report = Report::new(heading, self)?.table(title, table).missed(self.missed(flags));
        Ok(report.plots([lines("leak-memory", labels, &both, false, false)]))
    }

    fn missed(&self, flags: &LeakFlags) -> Vec<String> {
        let mut missed = Vec::new();
        for DaemonChange { name, before, after } in &self.daemons {
            missed.extend(leaked(before, after).into_iter().map(|left| format!("{name}: {left}")));
            let grew = after.resident_bytes.saturating_sub(before.resident_bytes);
            if grew > flags.memory_mib << 20 {
                let (mib, most) = (grew >> 20, flags.memory_mib);
                missed.push(format!("{name}: {mib} MiB more memory than before, and not at most {most}"));
            }
        }
        let wanted = (self.requests.answered + self.requests.failed).max(1);
        if self.requests.failed as f64 * 100.0 / wanted as f64 > FAILED_PERCENT_MAX {
            let why = self.failure.clone().unwrap_or_default();
            missed.push(format!("{} of {wanted} requests failed; one: {why}", self.requests.failed));
        }
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_than_before_is_leaked() {
        let usage = |files, active| DaemonUsage {
            resident_bytes: 0,
            open_files: files,
            gauges: BTreeMap::from([("requests_active".to_owned(), active)]),
        };
        assert!(leaked(&usage(20, 0.0), &usage(19, 0.0)).is_empty());
        assert_eq!(leaked(&usage(20, 0.0), &usage(21, 0.0)), ["open files 21 instead of 20"]);
        assert_eq!(leaked(&usage(20, 0.0), &usage(20, 1.0)), ["requests_active 1 instead of 0"]);
    }
}
