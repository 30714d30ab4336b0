//! The limits of one caller, who goes to several servers.

use std::net::SocketAddr;
use std::time::Duration;

use futures::future::join_all;
use http::StatusCode;
use tests::caller::{Disconnect, Http2Caller};
use tests::fake_api::Behaviour;
use tests::rig::Rig;
use tokio::time::{Instant, interval};

use crate::hop::HopTrial;
use crate::{PATH, SERVED, until};

/// Requests a second, and those that may run at once.
const RATE: usize = 10;
const REQUESTS: usize = 6;
const LIMITS: &str = "limits:\n  source: { connections: 1000, newPerSecond: 10000 }\n  \
    caller: { requestsPerSecond: 10, burst: 10, requests: 6 }\n";

/// The time that servers have to hear of each other's callers.
const HEARD_AFTER: Duration = Duration::from_secs(2);
const COUNTED_FOR: Duration = Duration::from_secs(10);

/// One connection asks twice as fast as the caller may ask all servers together.
const ASKED_EVERY: Duration = Duration::from_millis(50);

/// The answers of three servers that do not know of each other's callers are three times the rate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_at_three_servers_has_its_rate_once() {
    let trial = HopTrial::start_with(LIMITS).await;
    let third = trial.peer_with("third", LIMITS).await;
    let (rig, gateways) = (&trial.rig, [trial.rig.gateway(), trial.other.gateway, third.gateway]);
    until("the third knows the cluster", async || rig.ask_at(third.gateway, PATH).await.status == SERVED)
        .await;

    let begun = Instant::now();
    let counts = join_all(gateways.map(|gateway| served_after(rig, gateway, begun))).await;

    let served: usize = counts.iter().map(|(served, _)| served).sum();
    let longest = counts.iter().map(|(_, lasted)| *lasted).max().unwrap_or_default();
    let ratio = served as f64 / (RATE as f64 * longest.as_secs_f64());
    assert!(ratio <= 1.2, "{ratio} times the limit: {counts:?}");
    assert!(counts.iter().all(|(served, _)| *served > 0), "each server has a part: {counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_run_at_one_server_count_at_another() {
    let trial = HopTrial::start_with(LIMITS).await;
    trial.api.on("/silent", Behaviour::NeverAnswer);
    let (rig, other) = (&trial.rig, trial.other.gateway);
    let mut caller = Http2Caller::dial_at(rig, rig.gateway()).await;
    let mut running = Vec::new();
    until("as many as may run do so", async || {
        running.push(caller.send("GET", "/clusters/edge-a/silent", &[], true));
        let requests = trial.api.requests();
        requests.iter().filter(|request| request.target.ends_with("/silent")).count() == REQUESTS
    })
    .await;

    until("its requests are refused elsewhere", async || {
        let answer = rig.ask_at(other, PATH).await;
        answer.status == 429 && answer.body.contains("CallerBusy")
    })
    .await;
    drop(running);
    caller.leave(Disconnect::Close).await;

    until("its requests are served elsewhere", async || rig.ask_at(other, PATH).await.status == SERVED).await;
}

/// The number of requests that a server serves between [`HEARD_AFTER`] and the end, and that time.
async fn served_after(rig: &Rig, gateway: SocketAddr, begun: Instant) -> (usize, Duration) {
    let mut caller = Http2Caller::dial_at(rig, gateway).await;
    let (mut served, from) = (0, begun + HEARD_AFTER);
    let mut ticks = interval(ASKED_EVERY);
    while from.elapsed() < COUNTED_FOR {
        ticks.tick().await;
        let is_counted = from <= Instant::now();
        let answer = caller.ask("GET", PATH, &[]).await.expect("the gateway answers");
        served += usize::from(is_counted && answer.status() != StatusCode::TOO_MANY_REQUESTS);
    }
    (served, from.elapsed())
}
