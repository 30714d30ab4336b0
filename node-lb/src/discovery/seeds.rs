//! The API servers of the configuration. Names are resolved again and again, and the last answer holds.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::balancer::Balancer;
use crate::config::Seed;
use crate::members::Source;
use crate::random::jittered;

/// Interval of resolving names that were resolved before.
const RESOLVE_EVERY: Duration = Duration::from_secs(30);

/// The same, while a name was not resolved.
const RETRY_EVERY: Duration = Duration::from_secs(5);

/// Longest wait for a name.
const RESOLVE_MAX: Duration = Duration::from_secs(5);

/// The seeds that are addresses.
pub(super) fn addresses(seeds: &[Seed]) -> Vec<SocketAddr> {
    let addresses = seeds.iter().filter_map(|seed| match seed {
        Seed::Address(address) => Some(*address),
        Seed::Name(..) => None,
    });
    addresses.collect()
}

/// Resolves the names among the seeds for ever. Returns at once if there are none.
pub(super) async fn follow(seeds: Vec<Seed>, balancer: Balancer) {
    let names: Vec<(String, u16)> = seeds
        .iter()
        .filter_map(|seed| match seed {
            Seed::Address(_) => None,
            Seed::Name(host, port) => Some((host.clone(), *port)),
        })
        .collect();
    if names.is_empty() {
        return;
    }
    let mut answers: Vec<Vec<SocketAddr>> = vec![Vec::new(); names.len()];
    let mut failed: Vec<bool> = vec![false; names.len()];
    loop {
        for (index, (host, port)) in names.iter().enumerate() {
            match resolve(host, *port).await {
                Ok(found) => {
                    answers[index] = found;
                    failed[index] = false;
                }
                Err(error) => {
                    if !failed[index] {
                        warn!(
                            name = host,
                            error, "the name of an API server is not resolved, its last addresses stay"
                        );
                    }
                    failed[index] = true;
                }
            }
        }
        let all: Vec<SocketAddr> =
            addresses(&seeds).into_iter().chain(answers.iter().flatten().copied()).collect();
        if !all.is_empty() {
            balancer.name(Source::Seeds, &all);
        }
        sleep(jittered(if failed.contains(&true) { RETRY_EVERY } else { RESOLVE_EVERY })).await;
    }
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    match timeout(RESOLVE_MAX, lookup_host((host, port))).await {
        Ok(Ok(found)) => {
            let found: Vec<SocketAddr> = found.collect();
            if found.is_empty() { Err("it has no address".to_owned()) } else { Ok(found) }
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", RESOLVE_MAX.as_secs())),
    }
}
