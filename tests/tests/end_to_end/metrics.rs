//! The metrics that Prometheus scrapes: each is described and documented, and counts exactly what was done.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rustix::process::Signal;
use tests::caller::{Http1Caller, head};
use tests::carrier::{Carrier, is_not_quic};
use tests::fake_api::{Answer, Behaviour, FakeApi, HttpVersion, WatchFeed};
use tests::fake_edge::FakeEdge;
use tests::prometheus::{Exposition, Metric, Prometheus, Series, counts, promtool};
use tests::rig::{ApiServer, Rig};
use tests::skip::skip;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PAGE: &str = include_str!("../../../docs/metrics.md");
const ALERTS: &str = include_str!("../../../deploy/prometheus/alerts.yaml");

const LARGE_BYTES: usize = 1_000_000;
const POD: &str = "/clusters/edge-a/api/v1/namespaces/n/pods/p";
const PODS: &str = "/clusters/edge-a/api/v1/namespaces/n/pods";

/// The bytes of five large answers.
const LARGE: f64 = 5.0 * LARGE_BYTES as f64;

/// The values of counters while a watch is open.
const DONE: &[(&str, f64)] = &[
    ("tombolo_server_requests_total{verb=\"get\",code=\"200\"}", 5.0),
    ("tombolo_server_requests_total{verb=\"create\",code=\"201\"}", 2.0),
    ("tombolo_server_requests_total{verb=\"get\",code=\"503\"}", 1.0),
    ("tombolo_server_requests_total{verb=\"unknown\",code=\"404\"}", 1.0),
    ("tombolo_server_refusals_total{reason=\"ClusterNeverSeen\"}", 1.0),
    ("sum(tombolo_server_refusals_total)", 2.0),
    ("tombolo_server_request_duration_seconds_count{verb=\"create\"}", 2.0),
    ("tombolo_agent_requests_total{kind=\"read\",code=\"200\"}", 5.0),
    ("tombolo_agent_requests_total{kind=\"write\",code=\"201\"}", 2.0),
    ("tombolo_server_requests_active{verb=\"watch\"}", 1.0),
    ("sum(tombolo_server_requests_active)", 1.0),
    ("tombolo_agent_requests_active{kind=\"long_running\"}", 1.0),
    ("tombolo_agent_apiserver_streams_active", 1.0),
    ("tombolo_server_cluster_streams_active{cluster=\"edge-a\"}", 1.0),
    ("tombolo_server_cluster_connected{cluster=\"edge-a\"}", 1.0),
    ("tombolo_server_agents_connected{cluster=\"edge-a\"}", 1.0),
    ("tombolo_agent_tunnels_connected", 1.0),
    ("tombolo_server_connections_active", 1.0),
];

/// The series that are zero once the watch has ended.
const QUIET: &[&str] = &[
    "sum(tombolo_server_requests_active)",
    "sum(tombolo_agent_requests_active)",
    "tombolo_agent_apiserver_streams_active",
    "sum(tombolo_server_cluster_streams_active)",
    "sum(tombolo_agent_server_streams_active)",
    "tombolo_server_connections_active",
    // What one side has sent the other has received.
    "sum(tombolo_server_cluster_stream_bytes_total{direction=\"received\"}) \
     - sum(tombolo_agent_server_stream_bytes_total{direction=\"sent\"})",
    "sum(tombolo_agent_server_stream_bytes_total{direction=\"received\"}) \
     - sum(tombolo_server_cluster_stream_bytes_total{direction=\"sent\"})",
];

/// The series whose values are only known as a range: from, to.
const WITHIN: &[(&str, f64, f64)] = &[
    (
        "tombolo_server_cluster_stream_bytes_total{cluster=\"edge-a\",direction=\"received\"}",
        LARGE,
        LARGE * 1.01,
    ),
    ("tombolo_server_cluster_udp_bytes_total{direction=\"received\"}", LARGE, LARGE * 1.5),
    ("tombolo_agent_server_udp_bytes_total{direction=\"sent\"}", LARGE, LARGE * 1.5),
    ("tombolo_server_cluster_round_trip_seconds", 1e-6, 60.0),
    ("tombolo_agent_server_round_trip_seconds", 1e-6, 60.0),
    ("tombolo_server_cluster_packets_lost_total / tombolo_server_cluster_packets_sent_total", 0.0, 1.0),
    ("tombolo_agent_server_packets_lost_total / tombolo_agent_server_packets_sent_total", 0.0, 1.0),
    ("tombolo_agent_server_packets_sent_total", LARGE / 65_536.0, LARGE),
    ("min(tombolo_server_certificate_expiry_timestamp_seconds) - time()", 60.0, 1e9),
    ("min(tombolo_agent_certificate_expiry_timestamp_seconds) - time()", 60.0, 1e9),
    ("process_open_fds{job=\"tunnel-server\"}", 10.0, 1000.0),
];

/// The values that remain once the agent has stopped cleanly.
const LEFT: &[(&str, f64)] = &[
    ("up{job=\"tunnel-agent\"}", 0.0),
    ("tombolo_server_cluster_connected{cluster=\"edge-a\"}", 0.0),
    ("tombolo_server_agents_connected{cluster=\"edge-a\"}", 0.0),
    ("tombolo_server_cluster_tunnels{cluster=\"edge-a\",carrier=\"quic\"}", 0.0),
    ("tombolo_server_cluster_tunnels_opened_total{cluster=\"edge-a\"}", 1.0),
    ("sum(tombolo_server_tunnels_ended_total)", 1.0),
    ("ALERTS{alertname=\"TomboloClusterGone\",cluster=\"edge-a\"}", 1.0),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_is_described_documented_and_passes_promtool() {
    const NAME: &str = "every_metric_is_described_documented_and_passes_promtool";
    if is_not_quic(NAME, "an agent over TCP has no UDP socket whose buffers it could tell of") {
        return;
    }
    let (rig, fake) = (Rig::start().await, FakeApi::start().await.unwrap());
    fake.on("/apis/discovery.k8s.io", Behaviour::json("{\"items\":[]}"));
    fake.otherwise(Behaviour::json("{}"));
    let agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &fake)).await;
    rig.ask_with_token("GET", POD, &[]).await;
    counts(&rig, agent.probes, "tombolo_agent_discoveries_total{outcome=\"ok\"}", 1.0).await;

    for (probes, sections) in
        [(rig.probes(), ["## Server", "## All"]), (agent.probes, ["## Agent", "## All"])]
    {
        let answer = rig.metrics(probes).await;
        let found = Exposition::of(&answer);

        assert!(answer.to_lowercase().contains("content-type: text/plain; version=0.0.4"), "{answer:.300}");
        let documented = documented(&sections);
        let names =
            |metrics: &BTreeMap<String, Metric>| -> BTreeSet<String> { metrics.keys().cloned().collect() };
        assert_eq!(names(&found.metrics), names(&documented));
        for (name, metric) in &found.metrics {
            assert!(!metric.help.is_empty() && !metric.lines.is_empty(), "{name}: {metric:?}");
            let described = &documented[name];
            assert_eq!((&metric.kind, &metric.labels), (&described.kind, &described.labels), "{name}");
            assert_eq!(unnamed_values(metric, &described.help), BTreeSet::new(), "{name}");
        }
        let text = answer.split_once("\r\n\r\n").unwrap().1;
        let file = rig.write(&format!("{}.prom", probes.port()), text);
        match promtool(&["check", "metrics"], Some(&file)).await {
            Some(output) => output.unwrap(),
            None => skip(NAME, "no promtool"),
        }
    }
}

#[test]
fn alerts_speak_of_metrics_that_exist() {
    let documented = documented(&["## Server", "## Agent", "## Load balancer", "## All"]);
    let words = ALERTS.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let named: BTreeSet<&str> = words.filter(|word| word.starts_with("tombolo_")).collect();

    assert!(named.len() >= 7, "{named:?}");
    for name in named {
        assert!(documented.contains_key(name), "{name} is not in docs/metrics.md");
    }
}

/// The files `alerts*_test.yaml` have the cases, among them a certificate of one day that is renewed in time.
#[tokio::test]
async fn alerts_fire_and_stay_silent_as_their_own_tests_say() {
    let cases = ["alerts_test.yaml", "alerts_minutes_test.yaml"]
        .map(|file| Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus").join(file));
    let [days, minutes] = cases.each_ref().map(|file| file.to_str().unwrap());

    match promtool(&["test", "rules", days, minutes], None).await {
        Some(output) => output.unwrap(),
        None => skip("alerts_fire_and_stay_silent_as_their_own_tests_say", "no promtool"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prometheus_scrapes_the_requests_of_both_daemons() {
    const NAME: &str = "prometheus_scrapes_the_requests_of_both_daemons";
    if is_not_quic(
        NAME,
        "packets of TCP are the kernel's, and its tunnels are connections of the gateway's port",
    ) {
        return;
    }
    let mut edge = FakeEdge::start(HttpVersion::Http2).await;
    let jobs = [("tunnel-server", edge.rig.probes()), ("tunnel-agent", edge.agent.probes)];
    let Some(prometheus) = Prometheus::watching(&jobs).await else {
        return skip(NAME, "no prometheus");
    };
    let feed = WatchFeed::new();
    edge.fake.on("/api/v1/namespaces/n/pods/p", Behaviour::json("x".repeat(LARGE_BYTES)));
    edge.fake.on("/api/v1/namespaces/n/pods", Behaviour::Answer(Answer::json(201, "{}")));
    edge.fake.on("/api/v1/watched", Behaviour::Watch(feed.clone()));

    for _ in 0..5 {
        assert_eq!(edge.rig.ask_with_token("GET", POD, &[]).await.status, 200);
    }
    for _ in 0..2 {
        let none = [("Content-Length", "0")];
        assert_eq!(edge.rig.ask_with_token("POST", PODS, &none).await.status, 201);
    }
    assert_eq!(edge.rig.ask_with_token("GET", "/clusters/never-seen/api", &[]).await.status, 503);
    assert_eq!(edge.rig.ask_with_token("GET", "/nowhere", &[]).await.status, 404);
    let mut watcher = Http1Caller::dial(&edge.rig).await;
    watcher.write(head("GET", "/clusters/edge-a/api/v1/watched?watch=true", "")).await;
    watcher.read_head().await;

    prometheus.returns("count(up == 1)", 2.0).await;
    assert_queries(&prometheus, DONE).await;

    assert_eq!(feed.end(), 1);
    // The last chunk.
    watcher.read_exactly(b"0\r\n\r\n".len()).await;
    drop(watcher);

    for query in QUIET {
        prometheus.returns(query, 0.0).await;
    }
    prometheus.returns("tombolo_server_request_duration_seconds_count{verb=\"watch\"}", 1.0).await;
    for (query, least, most) in WITHIN {
        let is_within = |found: &[Series]| found.len() == 1 && (*least..=*most).contains(&found[0].value);
        prometheus.until(query, is_within).await;
    }

    assert_eq!(Rig::ends_with(&mut edge.agent.process, Signal::TERM).await, Some(0));

    assert_queries(&prometheus, LEFT).await;
    let rules = prometheus.get("/api/v1/rules").await.unwrap();
    let of_kind = |kind: &str| ALERTS.matches(kind).count();
    let all = of_kind("- alert:") + of_kind("- record:");
    assert_eq!(rules.matches("\"health\":\"ok\"").count(), all, "{rules}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_of_server_and_agent_are_counted_by_reason() {
    let mut edge = FakeEdge::start(HttpVersion::Http2).await;
    let narrow = "impersonation: { users: [\"nobody-else\"] }\nadvertise: [\"192.168.1.10:6443\"]";
    let guarded = edge.rig.agent_with("edge-b", &ApiServer::of_fake(&edge.rig, &edge.fake), narrow).await;
    edge.rig.connected("edge-b").await;
    let (rig, server, agent) = (&edge.rig, edge.rig.probes(), edge.agent.probes);

    assert_eq!(rig.ask_with_token("GET", "/clusters/edge-b/api", &[]).await.status, 403);
    edge.fake.refuse().await;
    // The agents have asked for the version over theirs.
    edge.fake.drop_connections();
    assert_eq!(rig.ask_with_token("GET", "/clusters/edge-a/api", &[]).await.status, 503);
    let mut client = TcpStream::connect(rig.gateway()).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let _ = client.read_to_end(&mut Vec::new()).await;

    counts(rig, server, "tombolo_server_refusals_total{reason=\"ForbiddenByAgent\"}", 1.0).await;
    counts(rig, server, "tombolo_server_refusals_total{reason=\"APIServerUnreachable\"}", 1.0).await;
    counts(rig, server, "tombolo_server_connections_total{outcome=\"handshake_failed\"}", 1.0).await;
    counts(rig, server, "tombolo_server_requests_total{verb=\"get\",code=\"403\"}", 1.0).await;
    counts(rig, guarded.probes, "tombolo_agent_guard_refusals_total{reason=\"unlisted\"}", 1.0).await;
    counts(rig, guarded.probes, "tombolo_agent_requests_refused_total{reason=\"guard\"}", 1.0).await;
    let unreachable = "tombolo_agent_requests_refused_total{reason=\"apiserver_unreachable\"}";
    counts(rig, agent, unreachable, 1.0).await;
    counts(rig, agent, "tombolo_agent_apiserver_dials_total{outcome=\"apiserver_unreachable\"}", 1.0).await;
    counts(rig, agent, "tombolo_agent_requests_active{kind=\"unknown\"}", 0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_counts_reconnects_by_reason_and_keeps_its_link_counters() {
    let mut edge = FakeEdge::start(HttpVersion::Http2).await;
    edge.rig.ask_with_token("GET", POD, &[]).await;
    let (agent, server) = (edge.agent.probes, edge.rig.gateway());
    let sent = format!("tombolo_agent_server_stream_bytes_total{{server=\"{server}\",direction=\"sent\"}}");
    let before = Exposition::of(&edge.rig.metrics(agent).await).value(&sent).unwrap();
    assert!(before > 0.0);

    edge.rig.kill_server();
    edge.rig.start_server().await;
    edge.rig.connected("edge-a").await;

    let opened = format!("tombolo_agent_server_tunnels_opened_total{{server=\"{server}\"}}");
    // By QUIC the new server says that it does not know the tunnel; by TCP the old one's kernel has ended it.
    let lost = match Carrier::of_run() {
        Carrier::Quic => "server_restarted",
        Carrier::Http2 => "carrier",
    };
    counts(&edge.rig, agent, &opened, 2.0).await;
    counts(&edge.rig, agent, &format!("tombolo_agent_reconnects_total{{reason=\"{lost}\"}}"), 1.0).await;
    counts(&edge.rig, agent, &format!("tombolo_agent_tunnels_ended_total{{reason=\"{lost}\"}}"), 1.0).await;
    let again = Exposition::of(&edge.rig.metrics(agent).await);
    assert!(again.value(&sent).unwrap() >= before, "a counter never falls");
    let connected = format!("tombolo_agent_tunnels_connected{{server=\"{server}\"}}");
    assert_eq!(again.value(&connected), Some(1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_server_reports_it_in_its_metrics() {
    let mut edge = FakeEdge::start(HttpVersion::Http2).await;
    let feed = WatchFeed::new();
    edge.fake.on("/api/v1/watched", Behaviour::Watch(feed.clone()));
    let mut watcher = Http1Caller::dial(&edge.rig).await;
    watcher.write(head("GET", "/clusters/edge-a/api/v1/watched?watch=true", "")).await;
    watcher.read_head().await;
    let probes = edge.rig.probes();
    counts(&edge.rig, probes, "tombolo_server_draining", 0.0).await;

    edge.rig.server().signal(Signal::TERM).unwrap();

    counts(&edge.rig, probes, "tombolo_server_draining", 1.0).await;
    counts(&edge.rig, probes, "tombolo_server_requests_active{verb=\"watch\"}", 1.0).await;
    assert_eq!(feed.end(), 1);
}

/// Waits until Prometheus returns all of these values.
async fn assert_queries(prometheus: &Prometheus, queries: &[(&str, f64)]) {
    for (query, value) in queries {
        prometheus.returns(query, *value).await;
    }
}

/// The metrics in the tables of these sections of the page: rows `| name | type | labels | meaning |`.
fn documented(sections: &[&str]) -> BTreeMap<String, Metric> {
    let within = |section: &&str| PAGE.split("\n## ").any(|part| format!("## {part}").starts_with(*section));
    assert!(sections.iter().all(within), "{sections:?}");
    let parts = PAGE
        .split("\n## ")
        .filter(|part| sections.iter().any(|section| format!("## {part}").starts_with(*section)));
    let rows = parts.flat_map(str::lines).filter_map(|line| line.strip_prefix("| `"));
    let mut found = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let labels = cells[2].split(',').map(|label| label.trim().trim_matches('`').to_owned());
        let labels = labels.filter(|label| !label.is_empty()).collect();
        let (kind, help) = (cells[1].to_owned(), cells[3].to_owned());
        let metric = Metric { kind, labels, help, ..Metric::default() };
        let name = cells[0].trim_end_matches('`');
        assert!(found.insert(name.to_owned(), metric).is_none(), "{name} is there twice");
    }
    found
}

/// The values of `reason`, `outcome` and `limit` that the page's description leaves out, although it lists
/// others of the same metric.
fn unnamed_values<'a>(metric: &'a Metric, description: &str) -> BTreeSet<&'a str> {
    let values = metric.lines.iter().flat_map(|line| {
        ["reason=\"", "outcome=\"", "limit=\""].iter().filter_map(move |label| {
            let (_, value) = line.split_once(*label)?;
            value.split_once('"').map(|(value, _)| value)
        })
    });
    let is_named = |value: &&str| description.contains(&format!("`{value}`"));
    let (named, unnamed): (BTreeSet<&str>, BTreeSet<&str>) = values.partition(is_named);
    if named.len() < 2 { BTreeSet::new() } else { unnamed }
}
