//! `loadtest all`: runs the usual scenarios one after the other, in full or in miniature.

use std::error::Error;

use clap::{Args, Command};
use serde::Serialize;

use crate::report::Report;
use crate::{bulk, get, idle, leak, node_lb, slow_readers, watches};

/// The flags of each scenario with `--quick`: enough to see that it works, too little for figures to quote.
const QUICK: [(&str, &str); 7] = [
    ("get", "--rounds 3 --seconds 0.5 --callers 1,64 --half-load 64"),
    ("bulk", "--rounds 3 --mib 64"),
    ("watches", "--watches 200 --events 3"),
    ("slow-readers", "--rounds 1 --seconds 1 --slow-readers 13"),
    ("idle", "--agents 200 --seconds 5"),
    ("leak", "--requests 5000 --reconnects 50 --memory-mib 64"),
    ("node-lb", "--rounds 3 --seconds 0.5 --mib 64 --trials 1 --idle-seconds 10 --parts rates,rest,faults"),
];

/// The flags of `loadtest all`.
#[derive(Debug, Clone, Args, Serialize)]
pub struct AllFlags {
    /// Run everything in miniature: minutes instead of half an hour, for a look and not for a record
    #[arg(long)]
    pub quick: bool,

    /// Run only the scenarios of these names
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', default_values_t = names(), value_parser = QUICK.map(|(name, _)| name))]
    pub scenarios: Vec<String>,
}

/// Runs the scenario, and reports its figures.
///
/// # Errors
/// The first error that prevents a report.
pub async fn run(flags: &AllFlags, seed: u64) -> Result<Vec<Report>, Box<dyn Error>> {
    let mut reports = Vec::new();
    for (name, quick) in QUICK {
        if !flags.scenarios.iter().any(|wanted| wanted == name) {
            continue;
        }
        let words = if flags.quick { quick } else { "" };
        reports.push(match name {
            "get" => get::run(&parse_flags(words)?, seed).await?,
            "bulk" => bulk::run(&parse_flags(words)?, seed).await?,
            "watches" => watches::run(&parse_flags(words)?, seed).await?,
            "slow-readers" => slow_readers::run(&parse_flags(words)?, seed).await?,
            "idle" => idle::run(&parse_flags(words)?, seed).await?,
            "leak" => leak::run(&parse_flags(words)?, seed).await?,
            _ => node_lb::run(&parse_flags(words)?, seed).await?,
        });
    }
    Ok(reports)
}

/// Parses the flags of a scenario from a command line.
fn parse_flags<F: Args>(words: &str) -> Result<F, clap::Error> {
    let words = std::iter::once("loadtest").chain(words.split_whitespace());
    F::from_arg_matches(&F::augment_args(Command::new("loadtest")).try_get_matches_from(words)?)
}

fn names() -> Vec<String> {
    QUICK.map(|(name, _)| name.to_owned()).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_parses_its_quick_flags() {
        for (name, words) in QUICK {
            for words in [words, ""] {
                let understood = match name {
                    "get" => parse_flags::<get::GetFlags>(words).map(drop),
                    "bulk" => parse_flags::<bulk::BulkFlags>(words).map(drop),
                    "watches" => parse_flags::<watches::WatchesFlags>(words).map(drop),
                    "slow-readers" => parse_flags::<slow_readers::SlowReadersFlags>(words).map(drop),
                    "idle" => parse_flags::<idle::IdleFlags>(words).map(drop),
                    "leak" => parse_flags::<leak::LeakFlags>(words).map(drop),
                    _ => parse_flags::<node_lb::NodeLbFlags>(words).map(drop),
                };
                understood.unwrap_or_else(|error| panic!("{name} {words}: {error}"));
            }
        }
    }
}
