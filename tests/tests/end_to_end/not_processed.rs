//! Requests of many callers that a real API server has not processed: it ends connections by GOAWAY, as several
//! behind a load balancer do, or refuses streams.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use tests::kube::ClusterOptions;
use tests::kube::kubeconfig::Kubeconfig;
use tests::real_edge::RealEdge;
use tests::refusing_proxy::RefusingProxy;
use tests::rig::ApiServer;
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

/// One stream of so many is refused.
const REFUSED_ONE_OF: usize = 20;

/// Fewest refused streams in the short trial: a twentieth of 1,600 requests.
const REFUSED_MIN: usize = 80;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goaways_of_a_real_api_server_fail_no_request_and_repeat_none() {
    let dials = try_goaways(|round| round < ROUNDS).await;

    assert!(dials >= DIALS_MIN, "the API server hardly ended a connection: {dials} were dialed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_an_api_server_refuses_fail_no_request_and_repeat_none() {
    let refused = try_refusals(|round| round < ROUNDS).await;

    assert!(refused >= REFUSED_MIN, "only {refused} streams were refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: a minute of GOAWAYs"]
async fn a_minute_of_goaways_fails_no_request_and_repeats_none() {
    let until = Instant::now() + Duration::from_secs(60);

    let dials = try_goaways(|_| Instant::now() < until).await;

    println!("the agent dialed {dials} connections");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: a minute of refused streams"]
async fn a_minute_of_refused_streams_fails_no_request_and_repeats_none() {
    let until = Instant::now() + Duration::from_secs(60);

    let refused = try_refusals(|_| Instant::now() < until).await;

    println!("{refused} streams were refused");
}

/// Lets callers ask an API server that ends connections. Returns how many the agent has dialed.
async fn try_goaways(goes_on: impl Fn(usize) -> bool) -> f64 {
    let edge =
        RealEdge::start_at(ClusterOptions { apiserver_flags: FLAGS, ..ClusterOptions::default() }).await;

    ask_all(&edge, goes_on).await;

    edge.agent_metric("tombolo_agent_apiserver_dials_total{outcome=\"connected\"}").await
}

/// Lets callers ask an API server behind a proxy that refuses streams. Returns how many it has refused.
async fn try_refusals(goes_on: impl Fn(usize) -> bool) -> usize {
    let mut proxy = None;
    let edge = RealEdge::start_behind(ClusterOptions::default(), async |cluster, account, rig| {
        let before = RefusingProxy::start(cluster.address(), cluster.ca_pem(), REFUSED_ONE_OF).await;
        let kubeconfig = Kubeconfig {
            server: &format!("https://{}", before.address),
            ca_pem: &before.ca_pem,
            credential: &account.credential(),
        };
        let path = rig.path().join("refusing.kubeconfig");
        kubeconfig.write(&path).expect("a kubeconfig can be written");
        proxy = Some(before);
        ApiServer::Kubeconfig(path)
    });
    let edge = edge.await;

    ask_all(&edge, goes_on).await;

    proxy.expect("it was started").refused()
}

/// All callers write and read as long as `goes_on` says of their rounds. Each request succeeds, and each write is
/// done once.
async fn ask_all(edge: &RealEdge, goes_on: impl Fn(usize) -> bool) {
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
    assert_eq!(objects(edge).await, written, "objects, and the writes that made them");
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
