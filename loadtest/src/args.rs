//! What a person types.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

const EXAMPLES: &str = "\
Build everything in release first, in one go; loadtest runs what lies beside it:
  cargo build --release -p tunnel-server -p tunnel-agent -p cli -p loadtest

Examples:
  Which runtime layout the daemons should have:
  target/release/loadtest layout --json layout.json
  The same with two clusters, and with a thousand callers:
  target/release/loadtest layout --clusters 2 --callers 1,64,1000
  What a small GET pays on its way to a real API server:
  target/release/loadtest get --json get.json

All ways take turns within each round, in an order drawn anew, so that what else the
machine does meets all of them alike. Believe ratios of one run and medians over rounds,
never one timing, and no figure that was not taken beside the one it is compared with.";

/// Callers through gateway and tunnel beside callers who go direct
///
/// Starts everything it measures on loopback, from certificates to processes, and removes it. Any failed request ends
/// the run: figures of a run with errors say nothing.
#[derive(Debug, Parser)]
#[command(name = "loadtest", version, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    pub scenario: Scenario,
}

/// What is measured.
#[derive(Debug, Subcommand)]
pub enum Scenario {
    /// Compare runtime layouts of both daemons on the thinnest path: gateway, tunnel, an API server that does nothing
    Layout(LayoutFlags),
    /// Compare a small GET through gateway and tunnel with the same GET at the same real kube-apiserver
    Get(GetFlags),
    /// Serve as the API server of `layout`, by itself, until killed
    Target(TargetFlags),
}

/// Flags of `loadtest layout`.
#[derive(Debug, Args)]
pub struct LayoutFlags {
    #[command(flatten)]
    pub rounds: Rounds,

    /// How many callers ask at once, each over an HTTP/2 connection of its own
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [1, 64], value_parser = callers())]
    pub callers: Vec<u32>,

    /// Layouts to compare, each for server and agent: what `runtime.layout` and `runtime.threads` would say
    #[arg(
        long, value_name = "LAYOUT:THREADS,…", value_delimiter = ',', value_parser = parse_layout,
        default_value = "shared:2,shared:1,perCore:2,perCore:1"
    )]
    pub layouts: Vec<Layout>,

    /// Clusters behind each gateway, each with a tunnel and an agent of its own; callers are dealt to them in turn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub clusters: u32,

    /// Size of the bulk download, 0 for none
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub bulk_mib: u32,
}

/// Flags of `loadtest get`.
#[derive(Debug, Args)]
pub struct GetFlags {
    #[command(flatten)]
    pub rounds: Rounds,

    /// How many callers ask at once, each over an HTTP/2 connection of its own
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [1, 13, 64], value_parser = callers())]
    pub callers: Vec<u32>,
}

/// Flags of `loadtest target`.
#[derive(Debug, Args)]
pub struct TargetFlags {
    /// Its certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub certificate: PathBuf,

    /// Its key, PEM
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,

    /// What a GET of a path that ends with `/bulk` answers, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    pub bulk_mib: u32,
}

/// How long everything goes on, and where the figures go.
#[derive(Debug, Args)]
pub struct Rounds {
    /// Rounds that count; one more warms up
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,

    /// How long each way is asked in each round, per number of callers
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,

    /// Begin no further round after so long, and report those that are done
    #[arg(long, value_name = "MINUTES", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub limit_minutes: u64,

    /// Draws the order of the ways in each round
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Write every round's figures, the machine and the versions to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The `runtime` of both daemons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// `shared` or `perCore`, as their configuration spells it.
    pub name: String,
    /// Worker threads, or homes.
    pub threads: u32,
}

fn callers() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=4000)
}

fn parse_layout(text: &str) -> Result<Layout, String> {
    let usage = || "write shared:N or perCore:N, such as perCore:2".to_owned();
    let (name, threads) = text.split_once(':').ok_or_else(usage)?;
    let threads = threads.parse().ok().filter(|threads| (1..=256).contains(threads)).ok_or_else(usage)?;
    if !["shared", "perCore"].contains(&name) {
        return Err(usage());
    }
    Ok(Layout { name: name.to_owned(), threads })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_a_known_name_and_a_number_of_threads() {
        assert_eq!(parse_layout("perCore:2"), Ok(Layout { name: "perCore".to_owned(), threads: 2 }));
        for wrong in ["perCore", "percore:2", "shared:0", "shared:257", "shared:", ":1"] {
            assert!(parse_layout(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_flags_fit_together() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
