//! A real API server that ends connections by GOAWAY, as several behind a load balancer do, and many callers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use tests::kube::ClusterOptions;
use tests::real_edge::RealEdge;
use tests::routes::{RouteClient, TestRequest, TestResponse};
use tokio::time::Instant;

/// Enough that several requests are under way whenever the API server ends a connection.
const CALLERS: usize = 40;

/// Users among whom the callers are divided, because the gateway limits the requests of one user in a second.
const USERS: usize = 8;

/// The greatest chance that kube-apiserver allows: each request ends its connection with 2 %.
const FLAGS: &[&str] = &["--goaway-chance=0.02"];

const NAMESPACE: &str = "goaway";

/// The path of the objects that callers write.
const OBJECTS: &str = "/api/v1/namespaces/goaway/configmaps";

/// Writes and reads of one caller in the short trial.
const ROUNDS: usize = 20;

/// Fewest connections that the agent dials in the short trial, which has 1,600 requests, so about 32 end a
/// connection.
const DIALS_MIN: f64 = 5.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goaways_of_a_real_api_server_fail_no_request_and_repeat_none() {
    let dials = try_goaways(|round| round < ROUNDS).await;

    assert!(dials >= DIALS_MIN, "the API server hardly ended a connection: {dials} were dialed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: a minute of GOAWAYs"]
async fn a_minute_of_goaways_fails_no_request_and_repeats_none() {
    let until = Instant::now() + Duration::from_secs(60);

    let dials = try_goaways(|_| Instant::now() < until).await;

    println!("the agent dialed {dials} connections");
}

/// All callers write and read as long as `goes_on` says of their rounds. Returns how many connections the
/// agent has dialed.
async fn try_goaways(goes_on: impl Fn(usize) -> bool) -> f64 {
    let edge =
        RealEdge::start_at(ClusterOptions { apiserver_flags: FLAGS, ..ClusterOptions::default() }).await;
    edge.namespace(NAMESPACE).await;
    let mut paths = Vec::new();
    for user in 0..USERS {
        let [_direct, path, _host] = edge.routes_of(&format!("caller-{user}")).await;
        paths.push(path.connect().await);
    }
    let (written, read) = (AtomicUsize::new(0), AtomicUsize::new(0));

    let (counted, goes_on, paths) = ((&written, &read), &goes_on, &paths);
    let callers = (0..CALLERS).map(|caller| async move {
        let (path, mut failed) = (&paths[caller % USERS], Vec::new());
        for round in (0..).take_while(|round| goes_on(*round)) {
            let (create, get) = (write(path, caller, round).await, path.ask(&TestRequest::get("/api")).await);
            counted.0.fetch_add(usize::from(create.status == 201), Ordering::Relaxed);
            counted.1.fetch_add(usize::from(get.status == 200), Ordering::Relaxed);
            for (answer, expected) in [(create, 201), (get, 200)] {
                if answer.status != expected {
                    let message = String::from_utf8_lossy(&answer.body).into_owned();
                    failed.push(format!("{}: {message}", answer.status));
                }
            }
        }
        failed
    });
    let failed: Vec<String> = join_all(callers).await.concat();

    let (written, read) = (written.load(Ordering::Relaxed), read.load(Ordering::Relaxed));
    println!("{written} writes and {read} reads succeeded, {} failed", failed.len());
    assert!(failed.is_empty(), "{} failed, {}", failed.len(), failed[0]);
    assert_eq!(objects(&edge).await, written, "objects, and the writes that made them");
    edge.agent_metric("tombolo_agent_apiserver_dials_total{outcome=\"connected\"}").await
}

/// Creates an object whose name the API server chooses, so that a repeated write would make another one.
async fn write(path: &RouteClient, caller: usize, round: usize) -> TestResponse {
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "generateName": "written-" },
        "data": { "by": format!("{caller}-{round}") },
    });
    path.ask(&TestRequest::with("POST", OBJECTS, "application/json", object.to_string())).await
}

/// The number of objects that callers have made.
async fn objects(edge: &RealEdge) -> usize {
    let list = edge.cluster.admin().stdout(&["get", "--raw", OBJECTS]).await;
    let list: Value = serde_json::from_str(&list).expect("a list is JSON");
    let items = list["items"].as_array().expect("a list has items");
    let by: Vec<&str> = items.iter().filter_map(|item| item["data"]["by"].as_str()).collect();
    let mut once = by.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), by.len(), "an object was made twice");
    by.len()
}
