//! `loadtest leak`: whether everything that requests and reconnects take is given back.

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
use linksim::dice::Dice;

/// How long everything may take to be given back: the agent keeps an idle connection to its API server for 60 s, and
/// QUIC remembers a closed connection for three probe timeouts.
const RETURN_MAX: Duration = Duration::from_secs(150);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Servers that the agent reconnects to; it may have eight, and the gateway's is one.
const FLAPPERS: u32 = 7;
/// Agents without an API server that reconnect to the server.
const RECONNECTING: u32 = 10;
/// The longest that one of them stays.
const STAYS_MAX_MS: u64 = 100;
/// A tenth of everything warms up: allocators, tables and pools reach the size that they keep.
const WARM_UP_SHARE: u64 = 10;
/// Threads come and go with what is read from files: tokio keeps one for 10 s after its last work.
const THREADS_MORE_MAX: f64 = 2.0;
/// What may fail of the requests that nobody gave up: a caller who resets much is sent away by HTTP/2's own limits.
const FAILED_PERCENT_MAX: f64 = 1.0;

/// LeakFlags of `loadtest leak`.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeakFlags {
    /// Requests in all
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    pub requests: u64,

    /// Of 100 requests, how many are given up at a moment drawn by chance
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub cancel_percent: u64,

    /// Callers at once, half of them over HTTP/1.1
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub callers: u32,

    /// Tunnels that agents open and lose at the server, and as many again that one agent opens and loses
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub reconnects: u64,

    /// How much more resident memory each daemon may have afterwards; the slots of an agent's 128 streams alone keep 57 KiB
    /// each after large uploads
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub memory_mib: u64,
}

/// What a daemon holds.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct DaemonUsage {
    resident_bytes: u64,
    open_files: usize,
    /// Gauges of what is held, summed over their labels.
    gauges: BTreeMap<String, f64>,
}

/// One daemon, before and after.
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
    /// Seconds and resident bytes of server and agent.
    memory: Vec<(f64, u64, u64)>,
}

/// Everything that is kept busy.
struct LeakTest {
    tunneled: TunnelRig,
    daemons: Daemons,
    flappers: FlappingServers,
    agents: Vec<Agent>,
    menu: RequestMix,
    began: Instant,
    memory: Vec<(f64, u64, u64)>,
    progress: Progress,
}

/// Measures.
///
/// # Errors
/// Any that stands in the way of a report.
pub async fn run(flags: &LeakFlags, seed: u64) -> Result<Report, Box<dyn Error>> {
    let heading = Heading::new("leak", seed, flags)?;
    let scratch = Scratch::new("tombolo-loadtest-")?;
    let target = Target::start(scratch.path(), 8).await;
    let kubeconfig = scratch.path().join("target.kubeconfig");
    target.write_kubeconfig(&kubeconfig)?;
    let mut stage = LeakTest::set(flags, &ApiServer::Kubeconfig(kubeconfig), seed).await?;

    // Every agent comes once at least, because the server remembers every cluster that it has met.
    let reconnects = (flags.reconnects / WARM_UP_SHARE).max(flags.reconnects.min(u64::from(RECONNECTING)));
    stage.churn(flags, flags.requests / WARM_UP_SHARE, reconnects, seed).await?;
    let before = stage.rested().await?;
    let warm_up = stage.flappers.closed();
    let (requests, failure) = stage.churn(flags, flags.requests, flags.reconnects, seed + 1).await?;
    let began = Instant::now();
    let after = stage.returned(&before).await?;
    let [server, agent] =
        before.into_iter().zip(after).collect::<Vec<_>>().try_into().map_err(|_| "two daemons")?;
    let results = LeakResults {
        requests,
        failure,
        server_reconnects: flags.reconnects,
        agent_reconnects: stage.flappers.closed() - warm_up,
        daemons: [
            DaemonChange { name: "server", before: server.0, after: server.1 },
            DaemonChange { name: "agent", before: agent.0, after: agent.1 },
        ],
        seconds_to_return: began.elapsed().as_secs_f64(),
        memory: stage.memory,
    };
    Ok(results.report(heading, flags)?)
}

impl LeakTest {
    async fn set(flags: &LeakFlags, api_server: &ApiServer, seed: u64) -> Result<Self, Box<dyn Error>> {
        let progress = Progress::new();
        progress.say("starting");
        let mut tunneled = TunnelRig::start(api_server, 0, "").await;
        let flappers = FlappingServers::start(tunneled.rig(), &cluster(0), FLAPPERS, seed)?;
        tunneled.add_agent(api_server, flappers.addresses()).await;
        let agents = issue(tunneled.rig(), "leak", RECONNECTING, seed).await?;
        let destination = tunneled.destination(Http::Two).await;
        let uri = |path: &str| destination.uri(&format!("/clusters/{}{path}", cluster(0)));
        let (small, bulk) = (uri(SMALL), uri(BULK));
        let menu = RequestMix { destination, small, bulk, cancel_percent: flags.cancel_percent };
        let (daemons, memory) = (tunneled.daemons(), Vec::new());
        Ok(Self { tunneled, daemons, flappers, agents, menu, began: Instant::now(), memory, progress })
    }

    /// Requests and reconnects at once, until there were so many of each.
    async fn churn(
        &mut self,
        flags: &LeakFlags,
        requests: u64,
        reconnects: u64,
        seed: u64,
    ) -> Result<(RequestCounts, Option<String>), Box<dyn Error>> {
        let asking = CancelingCallers::begin(&self.menu, flags.callers, requests, seed);
        let gateway = self.tunneled.rig().gateway();
        let mut coming = JoinSet::new();
        let share = reconnects.div_ceil(u64::from(RECONNECTING));
        let mut left = reconnects;
        for (number, agent) in std::mem::take(&mut self.agents).into_iter().enumerate() {
            let (count, rng) = (share.min(left), Dice::new(seed.wrapping_add(number as u64)));
            left -= count;
            coming.spawn(come_and_go(agent, gateway, count, rng));
        }
        let closed = self.flappers.closed();
        self.flappers.flap(reconnects > 0);
        loop {
            let (tally, flapped) = (asking.tally(), self.flappers.closed() - closed);
            let asked = tally.answered + tally.given_up + tally.failed;
            self.progress
                .say(&format!("{asked} of {requests} requests, {flapped} of {reconnects} reconnects"));
            self.look()?;
            if asked >= requests && flapped >= reconnects {
                break;
            }
            sleep(LOOK_EVERY).await;
        }
        self.flappers.flap(false);
        while let Some(ended) = coming.join_next().await {
            self.agents.push(ended??);
        }
        Ok(asking.end().await)
    }

    /// Notes the memory of now.
    fn look(&mut self) -> io::Result<()> {
        let (server, agent) = self.daemons.resident_bytes()?;
        self.memory.push((self.began.elapsed().as_secs_f64(), server, agent));
        Ok(())
    }

    async fn held(&self) -> io::Result<[DaemonUsage; 2]> {
        let (server, agent) = self.tunneled.gauges().await;
        let of = |process, gauges: BTreeMap<String, f64>| {
            let (resident_bytes, open_files) = (resident_bytes(process)?, open_files(process)?);
            Ok::<_, io::Error>(DaemonUsage { resident_bytes, open_files, gauges })
        };
        let agents = self.daemons.agents[0];
        Ok([of(self.daemons.server, server.held())?, of(agents, agent.held())?])
    }

    /// What is held once all tunnels are up, nothing is being served, and memory rests.
    async fn rested(&mut self) -> io::Result<[DaemonUsage; 2]> {
        self.progress.say("waiting until everything rests");
        let deadline = Instant::now() + RETURN_MAX;
        loop {
            let held = self.held().await?;
            let [server, agent] = &held;
            let gauge = |held: &DaemonUsage, name: &str| held.gauges.get(name).copied().unwrap_or_default();
            let is_quiet = gauge(server, "tombolo_server_exchanges_active") == 0.0
                && gauge(agent, "tombolo_agent_exchanges_active") == 0.0
                && gauge(server, "tombolo_server_agents_connected") == 1.0
                && gauge(agent, "tombolo_agent_tunnels_connected") == f64::from(FLAPPERS + 1);
            if is_quiet || Instant::now() >= deadline {
                break;
            }
            sleep(LOOK_EVERY).await;
        }
        settled_bytes(self.daemons.server).await?;
        settled_bytes(self.daemons.agents[0]).await?;
        self.held().await
    }

    /// What is held when no more is held than before, or when that has taken too long.
    async fn returned(&mut self, before: &[DaemonUsage; 2]) -> io::Result<[DaemonUsage; 2]> {
        let deadline = Instant::now() + RETURN_MAX;
        self.rested().await?;
        loop {
            let now = self.held().await?;
            self.look()?;
            let left: Vec<String> =
                before.iter().zip(&now).flat_map(|(before, now)| left(before, now)).collect();
            if left.is_empty() || Instant::now() >= deadline {
                return Ok(now);
            }
            self.progress.say(&format!("waiting for {}", left.join(", ")));
            sleep(LOOK_EVERY).await;
        }
    }
}

/// Opens tunnels and leaves them, sometimes with a word and sometimes without, as another process or as the same.
async fn come_and_go(
    mut agent: Agent,
    server: std::net::SocketAddr,
    count: u64,
    mut rng: Dice,
) -> Result<Agent, AgentError> {
    for _ in 0..count {
        if rng.below(2) == 0 {
            agent.restart(&mut rng);
        }
        let tunnel = agent.connect(server).await?;
        sleep(Duration::from_millis(rng.below(STAYS_MAX_MS))).await;
        match rng.below(2) {
            0 => tunnel.leave().await,
            _ => drop(tunnel),
        }
    }
    Ok(agent)
}

/// What is held beyond what was held before, in words. Memory is another matter: allocators keep some.
fn left(before: &DaemonUsage, after: &DaemonUsage) -> Vec<String> {
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
            let memory = [before, after].map(|held| megabytes(held.resident_bytes));
            let files = [before, after].map(|held| held.open_files.to_string());
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
        let words =
            Labels { title: "Memory under requests, cancels and reconnects", x: "seconds", y: "MB resident" };
        let both = [line("tunnel-server", |look| look.1), line("tunnel-agent", |look| look.2)];
        let report = Report::new(heading, self)?.table(title, table).missed(self.missed(flags));
        Ok(report.plots([lines("leak-memory", words, &both, false, false)]))
    }

    fn missed(&self, flags: &LeakFlags) -> Vec<String> {
        let mut missed = Vec::new();
        for DaemonChange { name, before, after } in &self.daemons {
            missed.extend(left(before, after).into_iter().map(|left| format!("{name}: {left}")));
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
    fn less_than_before_is_returned_and_one_more_is_left() {
        let held = |files, active| DaemonUsage {
            resident_bytes: 0,
            open_files: files,
            gauges: BTreeMap::from([("exchanges_active".to_owned(), active)]),
        };
        assert!(left(&held(20, 0.0), &held(19, 0.0)).is_empty());
        assert_eq!(left(&held(20, 0.0), &held(21, 0.0)), ["open files 21 instead of 20"]);
        assert_eq!(left(&held(20, 0.0), &held(20, 1.0)), ["exchanges_active 1 instead of 0"]);
    }
}
