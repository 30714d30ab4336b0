//! What a run found: tables for people, JSON for programs, plots for pages.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::machine::Machine;
use crate::svg::Plot;
use crate::table::Table;

/// What every scenario is told.
#[derive(Debug, Clone, Args)]
pub struct Output {
    /// Draws everything that is left to chance
    #[arg(long, value_name = "N", default_value_t = 1, global = true)]
    pub seed: u64,

    /// Write every figure with its seed, machine, versions and configuration to this file
    #[arg(long, value_name = "FILE", global = true)]
    pub json: Option<PathBuf>,

    /// Write plots (SVG) into this folder, which is made where it is missing
    #[arg(long, value_name = "DIR", global = true)]
    pub plots: Option<PathBuf>,

    /// End everything after so long, whatever runs
    #[arg(long, value_name = "MINUTES", default_value_t = 120, global = true, value_parser = clap::value_parser!(u64).range(1..=1440))]
    pub give_up_minutes: u64,
}

/// A scenario's results.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    #[serde(flatten)]
    heading: Heading,
    /// Seconds since 1970.
    ended: u64,
    machine: Machine,
    results: Value,
    /// Bounds that did not hold, as sentences; empty is good.
    missed: Vec<String>,
    #[serde(skip)]
    tables: Vec<(String, Table)>,
    #[serde(skip)]
    plots: Vec<Plot>,
}

/// What a run is known to be before it ends.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Heading {
    scenario: &'static str,
    version: &'static str,
    /// `git describe` of the sources, where they are known.
    commit: String,
    /// `release` or `debug`: how loadtest was built, and with it what lies beside it.
    profile: &'static str,
    /// The release of Kubernetes, where a real one took part.
    kubernetes: Option<String>,
    seed: u64,
    configuration: Value,
    binaries: Vec<Binary>,
    /// Seconds since 1970.
    began: u64,
}

/// A program's size.
#[derive(Debug, Serialize)]
struct Binary {
    name: String,
    bytes: u64,
}

impl Heading {
    /// Of a run that begins now.
    ///
    /// # Errors
    /// Where a program is gone.
    pub fn new(scenario: &'static str, seed: u64, configuration: &impl Serialize) -> io::Result<Self> {
        Self::of(scenario, seed, configuration, &["tunnel-server", "tunnel-agent", "tombolo"])
    }

    /// The same where other programs take part.
    ///
    /// # Errors
    /// Where a program is gone.
    pub fn of(
        scenario: &'static str,
        seed: u64,
        configuration: &impl Serialize,
        programs: &[&str],
    ) -> io::Result<Self> {
        let binaries = programs.iter().map(|&name| {
            let bytes = fs::metadata(::tests::binaries::binary(name))?.len();
            Ok(Binary { name: name.to_owned(), bytes })
        });
        Ok(Self {
            scenario,
            version: env!("CARGO_PKG_VERSION"),
            commit: commit(),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" },
            kubernetes: None,
            seed,
            configuration: serde_json::to_value(configuration)?,
            binaries: binaries.collect::<io::Result<_>>()?,
            began: now(),
        })
    }

    /// With a real Kubernetes of this release.
    #[must_use]
    pub fn with_kubernetes(self, release: &str) -> Self {
        Self { kubernetes: Some(release.to_owned()), ..self }
    }
}

impl Report {
    /// Of a run that ends now.
    ///
    /// # Errors
    /// Where the results cannot be written as JSON, which is a fault of ours.
    pub fn new(heading: Heading, results: &impl Serialize) -> io::Result<Self> {
        Ok(Self {
            heading,
            ended: now(),
            machine: Machine::here(),
            results: serde_json::to_value(results)?,
            missed: Vec::new(),
            tables: Vec::new(),
            plots: Vec::new(),
        })
    }

    /// Adds a table under a line of its own.
    #[must_use]
    pub fn table(mut self, title: impl Into<String>, table: Table) -> Self {
        self.tables.push((title.into(), table));
        self
    }

    /// Adds plots.
    #[must_use]
    pub fn plots(mut self, plots: impl IntoIterator<Item = Plot>) -> Self {
        self.plots.extend(plots);
        self
    }

    /// Adds sentences on bounds that did not hold.
    #[must_use]
    pub fn missed(mut self, missed: impl IntoIterator<Item = String>) -> Self {
        self.missed.extend(missed);
        self
    }

    /// Bounds that did not hold.
    pub fn misses(&self) -> &[String] {
        &self.missed
    }

    /// From which everything was drawn.
    pub fn seed(&self) -> u64 {
        self.heading.seed
    }

    /// The same for a page: what it was taken on, the tables, and what did not hold.
    pub fn markdown(&self) -> String {
        let Machine { cores, cpu, kernel, load_average, .. } = &self.machine;
        let Heading { commit, profile, began, .. } = &self.heading;
        let mut text = format!(
            "{}{} build of {commit}, {cores} cores ({cpu}), Linux {kernel}, {} s, load average at the end {load_average}.\n",
            profile[..1].to_uppercase(),
            &profile[1..],
            self.ended.saturating_sub(*began)
        );
        for (title, table) in &self.tables {
            text += &format!("\n{title}:\n\n{}", table.markdown());
        }
        match self.missed.as_slice() {
            [] => text += "\nEvery bound held.\n",
            missed => {
                text += "\nWhat did not hold:\n\n";
                text.extend(missed.iter().map(|missed| format!("* {missed}\n")));
            }
        }
        text
    }

    /// What a person reads.
    pub fn text(&self) -> String {
        let Machine { cores, cpu, kernel, load_average, .. } = &self.machine;
        let Heading { scenario, commit, seed, profile, began, .. } = &self.heading;
        let mut text = format!(
            "{scenario}: {commit}, seed {seed}, {} s\n{cores} cores, {cpu}, Linux {kernel}, load average at the \
             end {load_average}\n",
            self.ended.saturating_sub(*began)
        );
        if *profile == "debug" {
            text += "DEBUG BUILD: these figures say nothing about speed or memory. Build with --release.\n";
        }
        for (title, table) in &self.tables {
            text += &format!("\n{title}\n{}", table.text());
        }
        for missed in &self.missed {
            text += &format!("\nMISSED: {missed}");
        }
        text
    }

    fn write_plots(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        self.plots.iter().try_for_each(|plot| fs::write(folder.join(format!("{}.svg", plot.file)), &plot.svg))
    }
}

impl Output {
    /// Prints the tables of all reports, and writes JSON and plots where they are wanted: of one scenario as an object,
    /// of several as an object with `reports`.
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub fn publish(&self, reports: &[Report]) -> io::Result<()> {
        for report in reports {
            println!("{}", report.text());
            if let Some(folder) = &self.plots {
                report.write_plots(folder)?;
            }
        }
        let Some(path) = &self.json else { return Ok(()) };
        let json = match reports {
            [report] => serde_json::to_string_pretty(report)?,
            reports => serde_json::to_string_pretty(&serde_json::json!({ "reports": reports }))?,
        };
        fs::write(path, json + "\n")
    }
}

/// The commit of the sources: the programs are refused where they are older than those.
fn commit() -> String {
    let describe = ["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty", "--tags"];
    let said = std::process::Command::new("git").args(describe).output();
    match said {
        Ok(said) if said.status.success() => String::from_utf8_lossy(&said.stdout).trim().to_owned(),
        _ => "unknown commit".to_owned(),
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
