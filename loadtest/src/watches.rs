//! `loadtest watches`: memory of server and agent for each idle watch, and the latency of its events.

use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use ::tests::kube::assets::pinned_kubernetes;
use bytes::Bytes;
use clap::Args;
use hdrhistogram::Histogram;
use http::{Method, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::caller::{CallError, Caller};
use crate::caller_pool::histogram;
use crate::cluster::TestCluster;
use crate::order::Order;
use crate::process::settled_bytes;
use crate::progress::Progress;
use crate::repeated_body::RepeatedBody;
use crate::report::{Heading, Report};
use crate::route::Route;
use crate::table::Table;

/// The collection that is watched, and in which objects are created.
const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";
/// Longest wait until an event has reached every watch.
const EVENT_MAX: Duration = Duration::from_secs(60);

/// The flags of `loadtest watches`.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchesFlags {
    /// Watches at once on each route
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub watches: u32,

    /// Watches of one caller with one HTTP/2 connection, whose memory is counted with them
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub per_caller: u32,

    /// Objects that are created while all watches are open
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub events: u32,
}

/// The figures of one route.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WatchResult {
    #[serde(rename = "way")]
    route: String,
    watches: u32,
    events_expected: u64,
    events_arrived: u64,
    /// Latency from the request that created an object to the event at a watch.
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    server_kib_per_watch: Option<f64>,
    agent_kib_per_watch: Option<f64>,
}

/// An event that arrived at a watch.
struct ArrivedEvent {
    event: u32,
    at: Instant,
}

/// Measures one route after the other, in an order drawn from the seed.
///
/// # Errors
/// Every error that prevents a report.
pub async fn run(flags: &WatchesFlags, seed: u64) -> Result<Report, Box<dyn Error>> {
    let heading = Heading::new("watches", seed, flags)?.with_kubernetes(pinned_kubernetes());
    let mut cluster = TestCluster::start().await?;
    let routes = cluster.routes(&format!("{COLLECTION}?watch=true")).await;
    let mut maker = Caller::connect(&routes[0].destination).await?;
    let mut watched = Vec::new();
    for turn in Order::new(seed).draw(routes.len()) {
        let prefix = format!("seen-{turn}");
        watched.push(
            measure(flags, &routes[turn], &mut maker, &routes[0].destination.uri(COLLECTION), &prefix)
                .await?,
        );
    }
    cluster.stop().await?;
    watched.sort_by(|one: &WatchResult, other| one.route.cmp(&other.route));
    let report = Report::new(heading, &watched)?.table("idle watches", table(&watched));
    Ok(report.missed(watched.iter().filter_map(WatchResult::missed)))
}

async fn measure(
    flags: &WatchesFlags,
    route: &Route,
    maker: &mut Caller,
    collection: &Uri,
    prefix: &str,
) -> Result<WatchResult, Box<dyn Error>> {
    let progress = Progress::new();
    let memory = async || -> io::Result<Option<(u64, u64)>> {
        let Some(daemons) = &route.daemons else { return Ok(None) };
        Ok(Some((settled_bytes(daemons.server).await?, settled_bytes(daemons.agents[0]).await?)))
    };
    let before = memory().await?;

    progress.show(&format!("{}: opening {} watches", route.name, flags.watches));
    let (send, mut arrived) = mpsc::channel(flags.watches as usize * flags.events as usize);
    let (mut watches, mut caller) = (JoinSet::new(), Caller::connect(&route.destination).await?);
    for number in 0..flags.watches {
        if number > 0 && number % flags.per_caller == 0 {
            caller = Caller::connect(&route.destination).await?;
        }
        let mut caller = caller.share().expect("HTTP/2 is shared");
        let body = caller.ask(Method::GET, &route.small[0], RepeatedBody::empty()).await?.into_body();
        // Each task keeps the caller, so that the connection ends with the last watch.
        watches.spawn(watch(body, caller, prefix.to_owned(), send.clone()));
    }
    let after = memory().await?;

    let mut latency = histogram();
    for event in 0..flags.events {
        progress.show(&format!("{}: event {event} of {}", route.name, flags.events));
        let began = Instant::now();
        make(maker, collection, &format!("{prefix}-{event}")).await?;
        collect(flags.watches, event, began, &mut arrived, &mut latency).await;
    }
    let kib = |from: u64, to: u64| (to as f64 - from as f64) / 1024.0 / f64::from(flags.watches);
    let memory = before.zip(after);
    let millis = |micros: u64| micros as f64 / 1000.0;
    Ok(WatchResult {
        route: route.name.clone(),
        watches: flags.watches,
        events_expected: u64::from(flags.watches) * u64::from(flags.events),
        events_arrived: latency.len(),
        p50_ms: millis(latency.value_at_quantile(0.5)),
        p99_ms: millis(latency.value_at_quantile(0.99)),
        max_ms: millis(latency.max()),
        server_kib_per_watch: memory.map(|(before, after)| kib(before.0, after.0)),
        agent_kib_per_watch: memory.map(|(before, after)| kib(before.1, after.1)),
    })
}

/// Creates an object in the collection.
async fn make(maker: &mut Caller, collection: &Uri, name: &str) -> Result<(), CallError> {
    let object = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}}}}"#);
    let body = RepeatedBody::once(Bytes::from(object));
    maker.ask(Method::POST, collection, body).await?.into_body().collect().await?;
    Ok(())
}

/// Waits until an event has arrived at all watches, and adds its latencies.
async fn collect(
    watches: u32,
    event: u32,
    began: Instant,
    arrived: &mut mpsc::Receiver<ArrivedEvent>,
    latency: &mut Histogram<u64>,
) {
    let mut missing = watches;
    let all = async {
        while missing > 0 {
            let Some(one) = arrived.recv().await else { return };
            if one.event == event {
                missing -= 1;
                let took = one.at.saturating_duration_since(began).as_micros();
                latency.saturating_record(u64::try_from(took).unwrap_or(u64::MAX));
            }
        }
    };
    // Missing events are missing in the count of latencies.
    let _ = timeout(EVENT_MAX, all).await;
}

/// Reads a watch line by line, and reports events of objects whose names begin with `prefix`.
async fn watch(mut body: Incoming, caller: Caller, prefix: String, arrived: mpsc::Sender<ArrivedEvent>) {
    let mut line = Vec::new();
    let marker = format!("\"name\":\"{prefix}-");
    while let Some(Ok(frame)) = body.frame().await {
        for &byte in frame.data_ref().into_iter().flatten() {
            if byte != b'\n' {
                line.push(byte);
                continue;
            }
            let event = event_of(&String::from_utf8_lossy(&line), &marker);
            line.clear();
            if let Some(event) = event {
                // The channel has room for all events.
                let _ = arrived.try_send(ArrivedEvent { event, at: Instant::now() });
            }
        }
    }
    drop(caller);
}

fn event_of(line: &str, marker: &str) -> Option<u32> {
    let (_, rest) = line.split_once(marker)?;
    rest.split('"').next()?.parse().ok()
}

fn table(watched: &[WatchResult]) -> Table {
    let mut table = Table::new(&[
        "",
        "watches",
        "events",
        "arrived",
        "p50 ms",
        "p99 ms",
        "max ms",
        "server KiB each",
        "agent KiB each",
    ]);
    let kib = |each: Option<f64>| each.map_or_else(|| "-".to_owned(), |kib| format!("{kib:.1}"));
    for one in watched {
        table.row(vec![
            one.route.clone(),
            one.watches.to_string(),
            one.events_expected.to_string(),
            one.events_arrived.to_string(),
            format!("{:.1}", one.p50_ms),
            format!("{:.1}", one.p99_ms),
            format!("{:.1}", one.max_ms),
            kib(one.server_kib_per_watch),
            kib(one.agent_kib_per_watch),
        ]);
    }
    table
}

impl WatchResult {
    fn missed(&self) -> Option<String> {
        let missing = self.events_expected - self.events_arrived;
        (missing > 0).then(|| format!("{}: {missing} events did not arrive", self.route))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_recognized_by_the_name_of_its_object() {
        let line = r#"{"type":"ADDED","object":{"metadata":{"name":"seen-1-12","namespace":"default"}}}"#;
        assert_eq!(event_of(line, "\"name\":\"seen-1-"), Some(12));
        assert_eq!(event_of(line, "\"name\":\"seen-0-"), None);
    }
}
