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

/// Requests a second: so few that a busy machine asks for more at each server.
const RATE: usize = 2;
const RATE_LIMITS: &str = "limits:\n  source: { connections: 1000, newPerSecond: 10000 }\n  \
    caller: { requestsPerSecond: 2, burst: 2 }\n";

/// Requests that may run at once.
const REQUESTS: usize = 6;
const REQUEST_LIMITS: &str = "limits:\n  source: { connections: 1000, newPerSecond: 10000 }\n  \
    caller: { requestsPerSecond: 100, requests: 6 }\n";

/// The time that servers have to hear of each other's callers.
const HEARD_AFTER: Duration = Duration::from_secs(2);
const COUNTED_FOR: Duration = Duration::from_secs(20);

const ASKED_EVERY: Duration = Duration::from_millis(100);

/// The requests that a server has answered in the counted time.
#[derive(Debug)]
struct Answered {
    served: usize,
    refused: usize,
    within: Duration,
}

/// Each server is asked for more than it serves. Three that do not hear of each other's callers serve three times the rate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_at_three_servers_has_its_rate_once() {
    let trial = HopTrial::start_with(RATE_LIMITS).await;
    let third = trial.peer_with("third", RATE_LIMITS).await;
    let (rig, gateways) = (&trial.rig, [trial.rig.gateway(), trial.other.gateway, third.gateway]);
    until("the third knows the cluster", async || rig.ask_at(third.gateway, PATH).await.status == SERVED)
        .await;

    let begun = Instant::now();
    let answered = join_all(gateways.map(|gateway| answered_after(rig, gateway, begun))).await;

    let served: usize = answered.iter().map(|answered| answered.served).sum();
    let longest = answered.iter().map(|answered| answered.within).max().unwrap_or_default();
    let ratio = served as f64 / (RATE as f64 * longest.as_secs_f64());
    assert!(ratio <= 1.2, "{ratio} times the limit: {answered:?}");
    let is_part = |answered: &Answered| answered.served > 0 && answered.refused > 0;
    assert!(answered.iter().all(is_part), "each server serves a part: {answered:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_run_at_one_server_count_at_another() {
    let trial = HopTrial::start_with(REQUEST_LIMITS).await;
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

/// Asks a server until the end, and counts from [`HEARD_AFTER`] on.
async fn answered_after(rig: &Rig, gateway: SocketAddr, begun: Instant) -> Answered {
    let mut caller = Http2Caller::dial_at(rig, gateway).await;
    let (mut served, mut refused, from) = (0, 0, begun + HEARD_AFTER);
    let mut ticks = interval(ASKED_EVERY);
    while from.elapsed() < COUNTED_FOR {
        ticks.tick().await;
        let is_counted = from <= Instant::now();
        let answer = caller.ask("GET", PATH, &[]).await.expect("the gateway answers");
        let is_refused = answer.status() == StatusCode::TOO_MANY_REQUESTS;
        served += usize::from(is_counted && !is_refused);
        refused += usize::from(is_counted && is_refused);
    }
    Answered { served, refused, within: from.elapsed() }
}
