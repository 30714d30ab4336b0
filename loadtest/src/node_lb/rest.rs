//! Memory and CPU time of balancers at rest, and memory with many connections.

use std::error::Error;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ::tests::balancers::{Balancer, BalancerKind};
use ::tests::cpu_time::cpu_time_of;
use ::tests::pki::Authority;
use ::tests::scratch::Scratch;
use serde::Serialize;
use tokio::time::sleep;

use super::NodeLbFlags;
use super::start::{destination, start_here};
use crate::caller::Caller;
use crate::comparison::cell;
use crate::process::resident_bytes;
use crate::progress::Progress;
use crate::spread::Spread;
use crate::table::Table;
use crate::target::{SMALL, Target};

/// API servers before each balancer, plain TLS servers here.
const API_SERVERS: usize = 3;

/// Most resident memory of node-lb at rest, and with connections.
const IDLE_MIB_MAX: f64 = 10.0;
const CONNECTED_MIB_MAX: f64 = 15.0;

/// Most CPU time of node-lb at rest, in percent of a core.
const IDLE_PERCENT_MAX: f64 = 0.3;

/// The bounds of memory are those of a release build.
const IS_RELEASE: bool = !cfg!(debug_assertions);

/// The time after the last connection until memory is read.
const SETTLE: Duration = Duration::from_secs(2);

/// The figures of one balancer, over all trials.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RestRow {
    balancer: &'static str,
    idle_rss_mib: Option<Spread>,
    idle_pss_mib: Option<Spread>,
    connected_rss_mib: Option<Spread>,
    connected_pss_mib: Option<Spread>,
    /// CPU time at rest, in percent of a core.
    idle_percent: Option<Spread>,
}

/// The figures of one balancer in one trial.
#[derive(Debug, Clone, Copy)]
struct RestTrial {
    idle: MemoryInUse,
    connected: MemoryInUse,
    idle_percent: f64,
}

/// Memory of all processes of a balancer, in MiB.
#[derive(Debug, Clone, Copy)]
struct MemoryInUse {
    /// Resident memory, in which each process counts what it shares.
    rss_mib: f64,
    /// Memory in which what is shared counts by its share (`Pss`, proc_pid_smaps_rollup(5)).
    pss_mib: f64,
}

/// Starts all balancers anew for each trial. All are at rest at the same time.
///
/// # Errors
/// A balancer does not start, or a connection fails.
pub async fn measure(flags: &NodeLbFlags, kinds: &[BalancerKind]) -> Result<Vec<RestRow>, Box<dyn Error>> {
    let (scratch, authority) = (Scratch::new("tombolo-loadtest-")?, Authority::new("kubernetes"));
    let (mut targets, progress) = (Vec::new(), Progress::new());
    for number in 0..API_SERVERS {
        let folder = scratch.path().join(format!("target-{number}"));
        fs::create_dir(&folder)?;
        targets.push(Target::start_with(&authority, &folder, 1).await);
    }
    let addresses: Vec<SocketAddr> = targets.iter().map(|target| target.destination.address).collect();
    let mut trials: Vec<Vec<RestTrial>> = vec![Vec::new(); kinds.len()];
    for number in 1..=flags.trials {
        let mut balancers = Vec::new();
        for kind in kinds {
            balancers.push(start_here(*kind, &addresses, authority.certificate_pem()).await?);
        }
        progress.show(&format!("trial {number}/{}: at rest for {} s", flags.trials, flags.idle_seconds));
        sleep(SETTLE).await;
        let percents = at_rest(&balancers, Duration::from_secs_f64(flags.idle_seconds)).await?;
        for ((balancer, idle_percent), trials) in balancers.iter().zip(percents).zip(&mut trials) {
            progress.show(&format!("trial {number}/{}: {}", flags.trials, balancer.kind.name()));
            let idle = MemoryInUse::of(balancer)?;
            let connected = connected(balancer, authority.certificate_pem(), flags.connections).await?;
            trials.push(RestTrial { idle, connected, idle_percent });
        }
    }
    Ok(kinds.iter().zip(&trials).map(|(kind, trials)| RestRow::new(*kind, trials)).collect())
}

/// CPU time of each balancer without callers, in percent of a core.
async fn at_rest(balancers: &[Balancer], duration: Duration) -> io::Result<Vec<f64>> {
    let cpu_times =
        || balancers.iter().map(|one| cpu_time_of(&one.process_ids())).collect::<io::Result<Vec<_>>>();
    let (before, began) = (cpu_times()?, Instant::now());
    sleep(duration).await;
    let (after, elapsed) = (cpu_times()?, began.elapsed());
    let percent = |(after, before): (Duration, Duration)| {
        (after - before).as_secs_f64() * 100.0 / elapsed.as_secs_f64()
    };
    Ok(after.into_iter().zip(before).map(percent).collect())
}

/// Memory while so many callers have a connection, over which each has sent one request.
async fn connected(
    balancer: &Balancer,
    ca_pem: &str,
    connections: u32,
) -> Result<MemoryInUse, Box<dyn Error>> {
    let destination = destination(balancer, ca_pem);
    let uri = destination.uri(SMALL);
    let mut callers = Vec::new();
    for _ in 0..connections {
        let mut caller = Caller::connect(&destination).await?;
        caller.get(&uri).await?;
        callers.push(caller);
    }
    sleep(SETTLE).await;
    let memory = MemoryInUse::of(balancer)?;
    if let Some(ended) = callers.iter().position(Caller::is_over) {
        return Err(format!("{}: connection {ended} has ended", balancer.kind.name()).into());
    }
    Ok(memory)
}

/// The figures as a table, with its title.
pub fn table(rows: &[RestRow], flags: &NodeLbFlags) -> (String, Table) {
    let connected = format!("RSS MiB, {} connections", flags.connections);
    let mut table =
        Table::new(&["", "RSS MiB idle", "PSS MiB idle", &connected, "PSS MiB", "CPU idle, % of a core"]);
    for row in rows {
        table.row(vec![
            row.balancer.to_owned(),
            cell(row.idle_rss_mib, 1),
            cell(row.idle_pss_mib, 1),
            cell(row.connected_rss_mib, 1),
            cell(row.connected_pss_mib, 1),
            cell(row.idle_percent, 2),
        ]);
    }
    (format!("at rest for {} s, {} trials", flags.idle_seconds, flags.trials), table)
}

/// The bounds that do not hold, as sentences.
pub fn missed(rows: &[RestRow]) -> Vec<String> {
    let Some(row) = rows.iter().find(|row| row.balancer == BalancerKind::NodeLb.name()) else {
        return Vec::new();
    };
    let bounds = [
        ("resident MiB at rest", row.idle_rss_mib, IDLE_MIB_MAX),
        ("resident MiB with connections", row.connected_rss_mib, CONNECTED_MIB_MAX),
        ("CPU at rest, in percent of a core", row.idle_percent, IDLE_PERCENT_MAX),
    ];
    let missed = bounds.into_iter().filter(|_| IS_RELEASE).filter_map(|(what, found, limit)| {
        let median = found?.median;
        (median > limit).then(|| format!("{what}: {median:.2}, at most {limit} was wanted"))
    });
    missed.collect()
}

impl RestRow {
    fn new(kind: BalancerKind, trials: &[RestTrial]) -> Self {
        let spread = |figure: fn(&RestTrial) -> f64| Spread::of(trials.iter().map(figure));
        Self {
            balancer: kind.name(),
            idle_rss_mib: spread(|trial| trial.idle.rss_mib),
            idle_pss_mib: spread(|trial| trial.idle.pss_mib),
            connected_rss_mib: spread(|trial| trial.connected.rss_mib),
            connected_pss_mib: spread(|trial| trial.connected.pss_mib),
            idle_percent: spread(|trial| trial.idle_percent),
        }
    }
}

impl MemoryInUse {
    fn of(balancer: &Balancer) -> io::Result<Self> {
        let (mut rss, mut pss) = (0, 0);
        for process in balancer.process_ids() {
            rss += resident_bytes(process)?;
            let rollup = fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
            pss +=
                proportional_bytes(&rollup).ok_or_else(|| io::Error::other("no Pss in its smaps_rollup"))?;
        }
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        Ok(Self { rss_mib: mib(rss), pss_mib: mib(pss) })
    }
}

/// Parses `Pss` in bytes, proc_pid_smaps_rollup(5).
fn proportional_bytes(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_read_by_its_share() {
        let rollup = "Rss:  9000 kB\nPss_Dirty: 5 kB\nPss:    \t 1234 kB\n";
        assert_eq!(proportional_bytes(rollup), Some(1234 * 1024));
        assert_eq!(proportional_bytes("Rss: 9000 kB\n"), None);
    }
}
