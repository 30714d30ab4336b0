//! Watching: every event as it comes, in every encoding and over WebSockets.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::caller::SOON;
use tests::cbor;
use tests::dial::dial_name;
use tests::real_edge::{ORIGIN, RealEdge, difference};
use tests::routes::{Route, RouteClient, TestRequest, masked};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::{config_map, create};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const PROTOBUF_METADATA: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf;stream=watch";
/// The accepted type, which is answered with `application/cbor-seq`.
const CBOR: &str = "application/cbor";

/// The annotation of the bookmark that ends a watch's initial list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// After so many seconds the API server ends a watch: long enough that a busy machine has sent everything by
/// then.
const ENDS_AFTER: &str = "timeoutSeconds=8";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_events_are_the_same_in_every_encoding() {
    let edge = RealEdge::shared().await;
    let watch = happened(&edge, "watching").await;
    let lines = edge.lines().await;

    let of = async |accept: &'static str| {
        let ask = TestRequest::get(&watch).accept(accept);
        let answers = lines.ask(&ask).await;
        for answer in &answers {
            assert_eq!(answer.status, 200, "{accept}");
            assert_eq!(answer.lasting_headers(), answers[0].lasting_headers(), "{accept}");
        }
        answers.map(|answer| answer.body)
    };
    // All at once: each takes as long as a watch lasts.
    let (jsons, metadata, protobufs, short_protobufs, tables, cbors) = tokio::join!(
        of("application/json"),
        of(METADATA),
        of(PROTOBUF),
        of(PROTOBUF_METADATA),
        of(TABLE),
        of(CBOR),
    );

    for [direct, through @ ..] in [&jsons, &metadata, &protobufs, &short_protobufs] {
        for answer in through {
            assert!(answer == direct, "{}", difference(direct, answer));
        }
    }
    let events: Vec<Value> =
        jsons[0].split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["ADDED", "ADDED", "ADDED", "MODIFIED", "DELETED"]);
    assert_eq!(frames(&protobufs[0]).len(), events.len());
    for table in &tables {
        assert_eq!(masked(table), masked(&tables[0]));
        assert_eq!(masked(table).matches("\"cells\":[").count(), events.len());
    }
    for cbor in &cbors {
        assert_eq!(cbor::decode(cbor), events);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_by_watch_ends_with_its_bookmark_in_every_encoding() {
    let edge = RealEdge::shared().await;
    edge.namespace("by-watch").await;
    let path = "/api/v1/namespaces/by-watch/configmaps";
    create(&edge, path, (0..20).map(|n| config_map(&format!("map-{n:02}"), "x"))).await;
    let lines = edge.lines().await;
    let watch = format!(
        "{path}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );

    for accept in ["application/json", METADATA, TABLE, PROTOBUF, PROTOBUF_METADATA, CBOR] {
        let ask = TestRequest::get(&watch).accept(accept);
        let [direct, path, host] = lines.all();
        let (direct, path, host) = tokio::join!(
            initial_events(direct, &ask),
            initial_events(path, &ask),
            initial_events(host, &ask)
        );
        let events = |bytes: &[u8]| match accept {
            CBOR => cbor::decode(bytes).iter().map(Value::to_string).collect(),
            PROTOBUF | PROTOBUF_METADATA => {
                frames(bytes).iter().map(|frame| String::from_utf8_lossy(frame).into_owned()).collect()
            }
            _ => masked(bytes).lines().map(str::to_owned).collect::<Vec<_>>(),
        };
        let mut events_by_route = [direct, path, host].map(|bytes| events(&bytes));
        for events in &mut events_by_route {
            assert_eq!(events.len(), 21, "{accept}");
            // The bookmark's version is that of its moment.
            assert!(events.pop().unwrap().contains(INITIAL_EVENTS_END), "{accept}");
        }
        assert!(
            events_by_route[1] == events_by_route[0] && events_by_route[2] == events_by_route[0],
            "{accept}: {events_by_route:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_comes_while_the_watch_goes_on() {
    let edge = RealEdge::shared().await;
    edge.namespace("live").await;
    let path = "/api/v1/namespaces/live/configmaps";
    let lines = edge.lines().await;
    let mut bodies = Vec::new();
    for accept in ["application/json", PROTOBUF, TABLE, CBOR] {
        for line in lines.all() {
            let ask = TestRequest::get(format!("{path}?watch=1&timeoutSeconds=600")).accept(accept);
            bodies.push((line.name, accept, line.begin(&ask).await.1));
        }
    }

    create(&edge, path, [config_map("live", "x")]).await;

    for (route, accept, body) in &mut bodies {
        let data = timeout(SOON, body.data()).await.expect("an event in time");
        assert!(data.is_some_and(|data| !data.unwrap().is_empty()), "{accept} by {route}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_over_a_websocket_is_the_same_byte_for_byte() {
    let edge = RealEdge::shared().await;
    let watch = happened(&edge, "sockets").await;

    let [direct, path, host] = &edge.routes;
    let (direct, path, host) =
        tokio::join!(by_websocket(direct, &watch), by_websocket(path, &watch), by_websocket(host, &watch));

    assert!(direct.0.starts_with("http/1.1 101 "), "{}", direct.0);
    assert_eq!(String::from_utf8_lossy(&direct.1).matches("\"type\":").count(), 5);
    for through in [path, host] {
        assert_eq!(through.0, direct.0);
        assert!(through.1 == direct.1, "{}", difference(&direct.1, &through.1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_watches_the_same_by_every_entry_point() {
    let edge = RealEdge::shared().await;
    edge.namespace("kubectl-watch").await;
    let words = ["get", "configmaps", "-n", "kubectl-watch", "--watch", "--output-watch-events", "-o"];
    let words =
        [words.as_slice(), &["custom-columns=E:type,N:object.metadata.name,D:object.data.a"]].concat();
    let path = "/api/v1/namespaces/kubectl-watch/configmaps";
    create(&edge, path, [config_map("before", "x")]).await;
    let mut watchers = Vec::new();
    for route in &edge.routes {
        let output = edge.rig.path().join(format!("watch {}", route.name));
        watchers.push((route.kubectl.start(&words, &output).await.unwrap(), output));
    }

    for (_, output) in &watchers {
        until_printed(output, "before").await;
    }
    create(&edge, path, [config_map("between", "y"), config_map("last", "z")]).await;
    let mut texts = Vec::new();
    for (_, output) in &watchers {
        texts.push(until_printed(output, "last").await);
    }
    assert!(texts[0].contains("between"), "{texts:?}");
    assert!(texts[1] == texts[0] && texts[2] == texts[0], "{texts:?}");
}

/// Makes five changes in a namespace, and returns the path of a watch that reports all of them and ends.
async fn happened(edge: &RealEdge, namespace: &str) -> String {
    edge.namespace(namespace).await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let direct = edge.routes[0].connect().await;
    let list: Value = serde_json::from_slice(&direct.ask(&TestRequest::get(&path)).await.body).unwrap();
    let before = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    create(edge, &path, (0..3).map(|n| config_map(&format!("map-{n}"), "one\ntwo"))).await;
    let patch = json!({ "data": { "a": "changed" } }).to_string();
    let patch = TestRequest::with("PATCH", format!("{path}/map-1"), "application/merge-patch+json", patch);
    assert_eq!(direct.ask(&patch).await.status, 200);
    assert_eq!(direct.ask(&TestRequest::of("DELETE", format!("{path}/map-2"))).await.status, 200);
    format!("{path}?watch=true&resourceVersion={before}&{ENDS_AFTER}")
}

/// Reads until the list's end, and leaves.
async fn initial_events(line: &RouteClient, ask: &TestRequest) -> Vec<u8> {
    let (answer, mut body) = line.begin(ask).await;
    let mut bytes = Vec::new();
    assert_eq!(answer.status, 200, "{ask:?}");
    let is_over = |bytes: &[u8]| {
        bytes.windows(INITIAL_EVENTS_END.len()).any(|window| window == INITIAL_EVENTS_END.as_bytes())
    };
    while !is_over(&bytes) {
        let data =
            timeout(SOON, body.data()).await.expect("the list ends in time").expect("the watch goes on");
        bytes.extend_from_slice(&data.unwrap());
    }
    bytes
}

/// Protobuf's frames: each has its length before it.
fn frames(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let (frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        frames.push(frame);
        bytes = rest;
    }
    frames
}

/// The head, without what is of the moment or for browsers and in lower case, and every byte behind it.
async fn by_websocket(route: &Route, path: &str) -> (String, Vec<u8>) {
    let stream =
        dial_name(route.address, &route.host, &route.ca_pem, &["http/1.1"], Some(&route.identity)).await;
    let mut stream = stream.unwrap();
    let request = format!(
        "GET {}{path} HTTP/1.1\r\nHost: {}:{}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Origin: {ORIGIN}\r\n\r\n",
        route.prefix,
        route.host,
        route.address.port()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let _ = timeout(SOON, stream.read_to_end(&mut bytes)).await.expect("the watch ends"); // Go sends no close_notify.
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let mut lines: Vec<&str> = head.split("\r\n").collect();
    let left_out = ["date: ", "audit-id: ", "content-security-policy: ", "x-content-type-options: "];
    lines.retain(|line| !left_out.iter().any(|name| line.starts_with(name)));
    lines[1..].sort_unstable();
    (lines.join("\n"), bytes.split_off(end + 4))
}

/// Waits until a file contains a text with a line's end after it.
pub(super) async fn until_printed(file: &std::path::Path, what: &str) -> String {
    let deadline = Instant::now() + SOON;
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if text.ends_with('\n') && text.contains(what) {
            return text;
        }
        assert!(Instant::now() < deadline, "{} never said {what}: {text}", file.display());
        sleep(Duration::from_millis(20)).await;
    }
}
