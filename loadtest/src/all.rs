//! `loadtest all`: every scenario after the other, as for a record or, in miniature, for a look.

use std::error::Error;

use clap::{Args, Command};
use serde::Serialize;

use crate::report::Report;
use crate::{bulk, get, idle, leak, slow_readers, watches};

/// What `--quick` says to each scenario: enough to see that all is well, too little to quote.
const QUICK: [(&str, &str); 6] = [
    ("get", "--rounds 3 --seconds 0.5 --callers 1,64 --half-load 64"),
    ("bulk", "--rounds 3 --mib 64"),
    ("watches", "--watches 200 --events 3"),
    ("slow-readers", "--rounds 1 --seconds 1 --slow-readers 13"),
    ("idle", "--agents 200 --seconds 5"),
    ("leak", "--requests 5000 --reconnects 50 --memory-mib 64"),
];

/// AllFlags of `loadtest all`.
#[derive(Debug, Clone, Args, Serialize)]
pub struct AllFlags {
    /// Everything in miniature: minutes instead of half an hour, for a look and not for a record
    #[arg(long)]
    pub quick: bool,

    /// Only these
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',', default_values_t = names(), value_parser = QUICK.map(|(name, _)| name))]
    pub scenarios: Vec<String>,
}

/// Measures.
///
/// # Errors
/// The first that stands in the way of a report.
pub async fn run(flags: &AllFlags, seed: u64) -> Result<Vec<Report>, Box<dyn Error>> {
    let mut reports = Vec::new();
    for (name, quick) in QUICK {
        if !flags.scenarios.iter().any(|wanted| wanted == name) {
            continue;
        }
        let words = if flags.quick { quick } else { "" };
        reports.push(match name {
            "get" => get::run(&of(words)?, seed).await?,
            "bulk" => bulk::run(&of(words)?, seed).await?,
            "watches" => watches::run(&of(words)?, seed).await?,
            "slow-readers" => slow_readers::run(&of(words)?, seed).await?,
            "idle" => idle::run(&of(words)?, seed).await?,
            _ => leak::run(&of(words)?, seed).await?,
        });
    }
    Ok(reports)
}

/// A scenario's flags as a person would have typed them.
fn of<F: Args>(words: &str) -> Result<F, clap::Error> {
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
    fn what_quick_says_is_understood_by_every_scenario() {
        for (name, words) in QUICK {
            for words in [words, ""] {
                let understood = match name {
                    "get" => of::<get::GetFlags>(words).map(drop),
                    "bulk" => of::<bulk::BulkFlags>(words).map(drop),
                    "watches" => of::<watches::WatchesFlags>(words).map(drop),
                    "slow-readers" => of::<slow_readers::SlowReadersFlags>(words).map(drop),
                    "idle" => of::<idle::IdleFlags>(words).map(drop),
                    _ => of::<leak::LeakFlags>(words).map(drop),
                };
                understood.unwrap_or_else(|error| panic!("{name} {words}: {error}"));
            }
        }
    }
}
