//! What a run found: medians and spreads over rounds, as tables and as JSON.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::args::Rounds;
use crate::machine::Machine;
use crate::spread::Spread;
use crate::table::Table;
use crate::trial::{Figures, Ledger, Load};
use crate::way::Way;

/// A run's results.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    scenario: &'static str,
    version: &'static str,
    /// The release of Kubernetes, where a real one took part.
    kubernetes: Option<String>,
    machine: Machine,
    seed: u64,
    seconds_per_turn: u64,
    rounds: usize,
    /// Seconds since 1970.
    began: u64,
    ended: u64,
    /// Before anybody asked for anything.
    idle: Vec<Idle>,
    binaries: Vec<Binary>,
    results: Vec<Row>,
}

/// Resident memory of a way's daemons with their tunnels up, in bytes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Idle {
    way: String,
    server_bytes: u64,
    agent_bytes: u64,
}

/// A program's size.
#[derive(Debug, Serialize)]
pub struct Binary {
    name: String,
    bytes: u64,
}

/// One way under one load.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    load: Load,
    way: String,
    /// Requests or millions of bytes in a second.
    rate: Option<Spread>,
    /// The same divided by the first way's in the same round.
    rate_to_first: Option<Spread>,
    p50_ms: Option<Spread>,
    p99_ms: Option<Spread>,
    /// Milliseconds on top of the first way's in the same round.
    p50_added_ms: Option<Spread>,
    p99_added_ms: Option<Spread>,
    /// Microseconds a request, or seconds for 10^9 bytes.
    server_cpu: Option<Spread>,
    agent_cpu: Option<Spread>,
    figures: Vec<Figures>,
}

/// What a run is known to be before it ends.
#[derive(Debug)]
pub struct Heading {
    /// Which.
    pub scenario: &'static str,
    /// The release of Kubernetes, where a real one takes part.
    pub kubernetes: Option<String>,
    began: SystemTime,
    idle: Vec<Idle>,
    binaries: Vec<Binary>,
}

impl Heading {
    /// Of a run that begins now: with its programs, and with the memory of daemons that nobody has asked yet.
    ///
    /// # Errors
    /// Where a process has ended or a program is gone.
    pub fn new(scenario: &'static str, kubernetes: Option<String>, ways: &[Way]) -> io::Result<Self> {
        let idle = ways.iter().filter_map(|way| Some((way, way.daemons.as_ref()?)));
        let idle = idle.map(|(way, daemons)| {
            let (server_bytes, agent_bytes) = daemons.resident_bytes()?;
            Ok(Idle { way: way.name.clone(), server_bytes, agent_bytes })
        });
        let binaries = ["tunnel-server", "tunnel-agent", "tombolo"].map(|name| {
            let bytes = fs::metadata(::tests::binaries::binary(name))?.len();
            Ok(Binary { name: name.to_owned(), bytes })
        });
        Ok(Self {
            scenario,
            kubernetes,
            began: SystemTime::now(),
            idle: idle.collect::<io::Result<_>>()?,
            binaries: binaries.into_iter().collect::<io::Result<_>>()?,
        })
    }
}

impl Report {
    /// Of a run that ends now.
    pub fn new(heading: Heading, rounds: &Rounds, ledger: &Ledger) -> Self {
        let Heading { scenario, kubernetes, began, idle, binaries } = heading;
        let rows = (0..ledger.loads.len())
            .flat_map(|load| (0..ledger.ways.len()).map(move |way| Row::new(ledger, load, way)));
        Self {
            scenario,
            version: env!("CARGO_PKG_VERSION"),
            kubernetes,
            machine: Machine::here(),
            seed: rounds.seed,
            seconds_per_turn: rounds.seconds,
            rounds: ledger.rounds.len(),
            began: seconds(began),
            ended: seconds(SystemTime::now()),
            idle,
            binaries,
            results: rows.collect(),
        }
    }

    /// Prints the tables, and writes the JSON where it is wanted.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn publish(&self, json: Option<&Path>) -> io::Result<()> {
        println!("{}", self.text());
        match json {
            Some(path) => fs::write(path, serde_json::to_string_pretty(self)? + "\n"),
            None => Ok(()),
        }
    }

    fn text(&self) -> String {
        let Machine { cores, cpu, kernel, load_average, .. } = &self.machine;
        let mut text = format!(
            "{}: medians (lowest to highest) of {} rounds of {} s, seed {}\n{cores} cores, {cpu}, Linux {kernel}, \
             load average at the end {load_average}\n",
            self.scenario, self.rounds, self.seconds_per_turn, self.seed
        );
        for rows in self.results.chunk_by(|one, next| one.load == next.load) {
            text += &format!("\n{}\n{}", rows[0].load.words(), table(rows).text());
        }
        let mut memory = Table::new(&["idle, resident MB", "server", "agent"]);
        for Idle { way, server_bytes, agent_bytes } in &self.idle {
            memory.row(vec![way.clone(), megabytes(*server_bytes), megabytes(*agent_bytes)]);
        }
        let binaries: Vec<String> = self
            .binaries
            .iter()
            .map(|Binary { name, bytes }| format!("{name} {} MB", megabytes(*bytes)))
            .collect();
        text + &format!("\n{}\nbinaries: {}", memory.text(), binaries.join(", "))
    }
}

impl Row {
    fn new(ledger: &Ledger, load: usize, way: usize) -> Self {
        let of = |way: usize| ledger.rounds.iter().map(move |round| round[load][way]);
        let spread = |figure: fn(&Figures) -> Option<f64>| Spread::of(of(way).filter_map(|one| figure(&one)));
        // Round by round, so that whatever else the machine did then cancels out.
        let beside = |figure: fn(&Figures) -> Option<f64>, compare: fn(f64, f64) -> f64| {
            let pairs = of(way).zip(of(0));
            Spread::of(pairs.filter_map(|(one, first)| Some(compare(figure(&one)?, figure(&first)?))))
        };
        Self {
            load: ledger.loads[load],
            way: ledger.ways[way].clone(),
            rate: spread(Figures::rate),
            rate_to_first: beside(Figures::rate, |one, first| one / first),
            p50_ms: spread(Figures::p50_ms),
            p99_ms: spread(Figures::p99_ms),
            p50_added_ms: beside(Figures::p50_ms, |one, first| one - first),
            p99_added_ms: beside(Figures::p99_ms, |one, first| one - first),
            server_cpu: spread(Figures::server_cpu),
            agent_cpu: spread(Figures::agent_cpu),
            figures: of(way).collect(),
        }
    }
}

impl Figures {
    #[expect(
        clippy::unnecessary_wraps,
        reason = "one of several that are passed as the same kind of function"
    )]
    fn rate(&self) -> Option<f64> {
        match *self {
            Self::Small { per_second, .. } => Some(per_second),
            Self::Bulk { mb_per_second, .. } => Some(mb_per_second),
        }
    }

    fn p50_ms(&self) -> Option<f64> {
        match *self {
            Self::Small { p50_ms, .. } => Some(p50_ms),
            Self::Bulk { .. } => None,
        }
    }

    fn p99_ms(&self) -> Option<f64> {
        match *self {
            Self::Small { p99_ms, .. } => Some(p99_ms),
            Self::Bulk { .. } => None,
        }
    }

    fn server_cpu(&self) -> Option<f64> {
        match *self {
            Self::Small { server_cpu_us, .. } => server_cpu_us,
            Self::Bulk { server_cpu_s_per_gb, .. } => server_cpu_s_per_gb,
        }
    }

    fn agent_cpu(&self) -> Option<f64> {
        match *self {
            Self::Small { agent_cpu_us, .. } => agent_cpu_us,
            Self::Bulk { agent_cpu_s_per_gb, .. } => agent_cpu_s_per_gb,
        }
    }
}

/// The rows of one load.
fn table(rows: &[Row]) -> Table {
    let cell = |spread: Option<Spread>, digits: usize| {
        spread.map_or_else(
            || "-".to_owned(),
            |Spread { median, min, max }| format!("{median:.digits$} ({min:.digits$}-{max:.digits$})"),
        )
    };
    let is_bulk = matches!(rows[0].load, Load::Bulk { .. });
    let mut table = if is_bulk {
        Table::new(&["", "MB/s", "x first", "server CPU s/GB", "agent CPU s/GB"])
    } else {
        Table::new(&["", "per s", "x first", "server CPU us", "agent CPU us", "p50 ms", "p99 ms", "p50 + ms"])
    };
    let cpu_digits = if is_bulk { 2 } else { 0 };
    for row in rows {
        let mut cells = vec![
            row.way.clone(),
            cell(row.rate, 0),
            cell(row.rate_to_first, 2),
            cell(row.server_cpu, cpu_digits),
            cell(row.agent_cpu, cpu_digits),
        ];
        if !is_bulk {
            cells.extend([cell(row.p50_ms, 2), cell(row.p99_ms, 2), cell(row.p50_added_ms, 2)]);
        }
        table.row(cells);
    }
    table
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_within_each_round_so_that_a_slow_minute_does_not_show() {
        let figures = |per_second| Figures::Small {
            per_second,
            p50_ms: 1000.0 / per_second,
            p99_ms: 1.0,
            server_cpu_us: None,
            agent_cpu_us: None,
        };
        let round = |slowness: f64| vec![vec![figures(100.0 / slowness), figures(50.0 / slowness)]];
        let ledger = Ledger {
            loads: vec![Load::Small { callers: 1 }],
            ways: vec!["direct".to_owned(), "tunnel".to_owned()],
            rounds: vec![round(1.0), round(10.0), round(3.0)],
        };
        let row = Row::new(&ledger, 0, 1);
        assert_eq!(row.rate_to_first, Some(Spread { median: 0.5, min: 0.5, max: 0.5 }));
        assert_eq!(row.p50_added_ms.map(|added| added.median.round()), Some(30.0));
        assert_eq!(row.server_cpu, None);
    }
}
