//! The report of a run: tables for people, JSON for programs, plots for documents.

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

/// The flags of every scenario.
#[derive(Debug, Clone, Args)]
pub struct Output {
    /// Seed of everything that is random
    #[arg(long, value_name = "N", default_value_t = 1, global = true)]
    pub seed: u64,

    /// Write every figure with its seed, machine, versions and configuration to this file
    #[arg(long, value_name = "FILE", global = true)]
    pub json: Option<PathBuf>,

    /// Write plots (SVG) to this directory, which is created if it is missing
    #[arg(long, value_name = "DIR", global = true)]
    pub plots: Option<PathBuf>,

    /// End the run after this time
    #[arg(long, value_name = "MINUTES", default_value_t = 120, global = true, value_parser = clap::value_parser!(u64).range(1..=1440))]
    pub give_up_minutes: u64,
}

/// The results of one scenario.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    #[serde(flatten)]
    heading: Heading,
    /// The time in seconds since 1970.
    ended: u64,
    machine: Machine,
    results: Value,
    /// The missed bounds, as sentences; empty if all hold.
    missed: Vec<String>,
    #[serde(skip)]
    tables: Vec<(String, Table)>,
    #[serde(skip)]
    plots: Vec<Plot>,
}

/// The description of a run, known at its beginning.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Heading {
    scenario: &'static str,
    version: &'static str,
    /// The output of `git describe` for the sources, if it is known.
    commit: String,
    /// `release` or `debug`: the build profile of loadtest and of the programs in its directory.
    profile: &'static str,
    /// The release of Kubernetes, if a real API server takes part.
    kubernetes: Option<String>,
    seed: u64,
    configuration: Value,
    binaries: Vec<Binary>,
    /// The time in seconds since 1970.
    began: u64,
}

/// The size of a program in bytes.
#[derive(Debug, Serialize)]
struct Binary {
    name: String,
    bytes: u64,
}

impl Heading {
    /// Describes a run of the daemons that begins now.
    ///
    /// # Errors
    /// A program is missing.
    pub fn new(scenario: &'static str, seed: u64, configuration: &impl Serialize) -> io::Result<Self> {
        Self::of_programs(scenario, seed, configuration, &["tunnel-server", "tunnel-agent", "tombolo"])
    }

    /// Describes a run of these programs that begins now.
    ///
    /// # Errors
    /// A program is missing.
    pub fn of_programs(
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

    /// Adds the release of the real Kubernetes.
    #[must_use]
    pub fn with_kubernetes(self, release: &str) -> Self {
        Self { kubernetes: Some(release.to_owned()), ..self }
    }
}

impl Report {
    /// Begins the report of a run that ends now.
    ///
    /// # Errors
    /// The results cannot be written as JSON, which is a bug.
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

    /// Adds a table with a title.
    #[must_use]
    pub fn table(mut self, title: impl Into<String>, table: Table) -> Self {
        self.tables.push((title.into(), table));
        self
    }

    /// Adds plots to the report.
    #[must_use]
    pub fn plots(mut self, plots: impl IntoIterator<Item = Plot>) -> Self {
        self.plots.extend(plots);
        self
    }

    /// Adds missed bounds, as sentences.
    #[must_use]
    pub fn missed(mut self, missed: impl IntoIterator<Item = String>) -> Self {
        self.missed.extend(missed);
        self
    }

    /// The missed bounds, as sentences.
    pub fn misses(&self) -> &[String] {
        &self.missed
    }

    /// The seed of the run.
    pub fn seed(&self) -> u64 {
        self.heading.seed
    }

    /// The report as Markdown: the machine, the tables, and the missed bounds.
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
                text += "\nMissed bounds:\n\n";
                text.extend(missed.iter().map(|missed| format!("* {missed}\n")));
            }
        }
        text
    }

    /// The report as text for a terminal.
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
    /// Prints the tables of all reports, and writes JSON and plots if the flags ask for them. The JSON of one
    /// scenario is an object, that of several an object with `reports`.
    ///
    /// # Errors
    /// A file cannot be written.
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

/// The commit of the sources. Programs that are older than the sources are refused elsewhere.
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
