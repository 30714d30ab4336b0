//! Connections with failed logins beyond the limit: the low-priority runtime serves them, and they end as all
//! others do.

use rustix::process::Signal;
use tests::caller::{GATEWAY, Http1Caller, Http2Caller, head};
use tests::fake_api::{Behaviour, WatchFeed};
use tests::fake_edge::FakeEdge;
use tests::rig::{Rig, TOKEN};

const PATH: &str = "/clusters/edge-a/quick";
const WATCH: &str = "/clusters/edge-a/api/v1/namespaces/n/configmaps?watch=1";
const EVENT: &str = "{\"type\":\"ADDED\",\"object\":{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\
    \"name\":\"comes-aside\",\"resourceVersion\":\"7\"}}}\n";

const FAILURES: &str = "limits: { source: { failedLoginsPerMinute: 5 } }";
const LOW_PRIORITY: &str = "tombolo_server_connections_low_priority_total";

/// This holds for HTTP/1.1 and HTTP/2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn low_priority_connections_are_answered_as_before() {
    let mut edge = FakeEdge::start_server_with(FAILURES).await;
    let feed = WatchFeed::new();
    edge.fake.otherwise(Behaviour::json("{\"by\":\"edge-a\"}"));
    edge.fake.on("/api/v1/namespaces/n/configmaps", Behaviour::Watch(feed.clone()));
    let good = format!("Bearer {TOKEN}");
    // A token is remembered as a good one.
    let mut http2 = Http2Caller::dial_name(&edge.rig, GATEWAY, None).await;
    assert_eq!(status(&mut http2, &good).await, 200);
    for _ in 0..5 {
        assert_eq!(status(&mut http2, "Bearer wrong").await, 401);
    }
    assert_eq!(edge.rig.metric(edge.rig.probes(), LOW_PRIORITY).await, 0.0, "so many may fail");

    assert_eq!(status(&mut http2, "Bearer wrong").await, 429);
    edge.rig.measured(LOW_PRIORITY, |count| count == 1.0).await;
    for _ in 0..20 {
        assert_eq!(status(&mut http2, "Bearer wrong").await, 429);
    }
    assert_eq!(status(&mut http2, &good).await, 200);
    let mut http1 = Http1Caller::dial_name(&edge.rig, GATEWAY, None).await;
    let wrong = format!("GET {PATH} HTTP/1.1\r\nHost: {GATEWAY}\r\nAuthorization: Bearer wrong\r\n\r\n");
    http1.write(wrong).await;
    let refused = http1.read_head().await;
    assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
    http1.read_exactly(length(&refused)).await;
    edge.rig.measured(LOW_PRIORITY, |count| count == 2.0).await;
    http1.write(head("GET", WATCH, "")).await;
    assert!(http1.read_head().await.starts_with("HTTP/1.1 200 "));
    feed.push(EVENT);
    http1.read_until("comes-aside").await;

    assert_eq!(edge.rig.metric(edge.rig.probes(), LOW_PRIORITY).await, 2.0, "each goes once");
    feed.end();
    http1.read_until("0\r\n\r\n").await;
    // What is idle there holds no drain up.
    assert_eq!(Rig::ends_with(edge.rig.server(), Signal::TERM).await, Some(0));
}

async fn status(caller: &mut Http2Caller, authorization: &str) -> u16 {
    // A complete answer.
    let answer = caller.ask("GET", PATH, &[("authorization", authorization)]).await;
    answer.expect("it is answered").status().as_u16()
}

/// The length of a body, from its head.
fn length(head: &str) -> usize {
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.expect("a length").parse().expect("a number")
}
