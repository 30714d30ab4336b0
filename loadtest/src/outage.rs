//! `loadtest outage`: interrupts links under traffic, and measures how soon that is noticed, what resumes,
//! and when the first byte arrives.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::tests::carrier::Carrier;
use ::tests::lab::{self, Lab};
use ::tests::outage::{LINK, OutageOutcome, OutagePlan, OutageSite, Tunnels};
use clap::Args;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::sleep_until;

use crate::outage::bounds::tables;
use crate::outage::plots::plots;
use crate::progress::Progress;
use crate::report::{Heading, Report};

mod bounds;
mod docs_section;
mod memory;
mod plots;

/// Sites that are built at once. Most of the time is spent waiting for other programs.
const BUILT_AT_ONCE: usize = 4;

/// The flags of `loadtest outage`.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutageFlags {
    /// Lengths of the outages, in seconds
    #[arg(long, value_name = "SECONDS,…", value_delimiter = ',', default_value = "3,30,120,290,310",
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub lengths: Vec<u64>,

    /// Outages of each length; every second one has a new source port afterwards
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub trials: u32,

    /// Outages of each length beyond the limit, after which nothing resumes
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub trials_beyond: u32,

    /// Longest outage that a stream survives, in seconds: the agents' `tunnel.outageLimitSeconds`; the
    /// server's is 300
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(9..=300))]
    pub limit: u64,

    /// Impairments of every link, in the syntax of `linksim --help`
    #[arg(long, value_name = "WORDS", default_value = LINK)]
    pub link: String,

    /// Milliseconds between the beginnings of two outages; interrupted links cost nothing, but all others
    /// share the machine's CPU
    #[arg(long, value_name = "MS", default_value_t = 1500, value_parser = clap::value_parser!(u64).range(0..=600_000))]
    pub every: u64,

    /// Carrier of the agents' tunnels; with http2 every agent keeps its source port, because a new one ends a
    /// TCP connection
    #[arg(long, value_name = "CARRIER", default_value = "quic", value_parser = ["quic", "http2"])]
    pub carrier: String,

    /// Write the results into the section on outages of this page, which is about QUIC
    #[arg(long, value_name = "FILE", conflicts_with = "carrier")]
    #[serde(skip)]
    pub write: Option<PathBuf>,
}

impl OutageFlags {
    fn is_over_tcp(&self) -> bool {
        Carrier::named(&self.carrier) == Some(Carrier::Http2)
    }
}

/// Runs all outages, most of them concurrently, each at a site of its own.
pub async fn run(flags: &OutageFlags, seed: u64) -> Result<Report, Box<dyn Error>> {
    let heading = Heading::new("outage", seed, flags)?;
    let plans = plans(flags, seed);
    let conditions = flags.clone();
    // The lab blocks a thread of its own. Its processes end with this process.
    let outcomes = tokio::task::spawn_blocking(move || {
        lab::run(async |lab: &Lab| trials(lab, plans, &conditions).await)
    });
    let outcomes = outcomes.await??;
    let limit = Duration::from_secs(flags.limit);
    let mut report = Report::new(heading, &outcomes)?;
    for (title, table) in tables(&outcomes, limit).into_iter().chain([memory::table(&outcomes)]) {
        report = report.table(title, table);
    }
    let report =
        report.plots(plots(&outcomes, limit)).missed(bounds::missed(&outcomes, limit, flags.is_over_tcp()));
    if let Some(page) = &flags.write {
        docs_section::write(page, flags, &report)?;
    }
    Ok(report)
}

// The longest outages begin first, so that all have begun before they end.
fn plans(flags: &OutageFlags, seed: u64) -> Vec<OutagePlan> {
    let mut lengths = flags.lengths.clone();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    lengths.dedup();
    let of = |length: u64| {
        let trials = if length < flags.limit { flags.trials } else { flags.trials_beyond };
        (0..trials).map(move |trial| (length, trial))
    };
    let number = |(at, (length, trial)): (u64, (u64, u32))| OutagePlan {
        length: Duration::from_secs(length),
        new_port: trial % 2 == 1 && !flags.is_over_tcp(),
        seed: seed.wrapping_mul(100_000).wrapping_add(at),
    };
    (0..).zip(lengths.into_iter().flat_map(of)).map(number).collect()
}

async fn trials(lab: &Lab, plans: Vec<OutagePlan>, flags: &OutageFlags) -> Vec<OutageOutcome> {
    let (every, link) = (Duration::from_millis(flags.every), &flags.link);
    let more = format!("tunnel: {{ outageLimitSeconds: {} }}\ncarrier: {}", flags.limit, flags.carrier);
    let rig = lab.rig_logging("info", "").await;
    let tunnels = Tunnels::of(&rig).await;
    let (progress, slots) = (Progress::new(), Arc::new(Semaphore::new(BUILT_AT_ONCE)));
    let count = plans.len();
    let building = plans.iter().enumerate().map(|(at, plan)| {
        let (slots, progress, rig, more) = (Arc::clone(&slots), &progress, &rig, &more);
        async move {
            let _slot = slots.acquire_owned().await.expect("nobody closes it");
            progress.show(&format!("building site {} of {count}", at + 1));
            OutageSite::build(lab, rig, &format!("{at}"), link, plan.seed, more).await
        }
    });
    let sites = futures::future::join_all(building).await;
    let begin = Instant::now();
    let running = plans.into_iter().zip(sites).enumerate().map(|(at, (plan, site))| {
        let (tunnels, rig, progress) = (&tunnels, &rig, &progress);
        async move {
            sleep_until((begin + every * at as u32).into()).await;
            let outcome = site.run(rig, tunnels, plan).await;
            progress.show(&format!("outage {} of {count} is over: {:?}", at + 1, plan.length));
            drop(site);
            outcome
        }
    });
    futures::future::join_all(running).await
}
