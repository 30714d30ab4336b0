//! Upgraded connections pass bytes in both directions once the API server has agreed, and none before or
//! otherwise.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tests::caller::{Disconnect, Http1Caller, SOON, head};
use tests::fake_api::{Answer, Behaviour, Cut, HttpVersion, RecordedRequest};
use tests::fake_edge::FakeEdge;
use tests::rig::AGENT_TOKEN;
use tokio::time::{sleep, timeout};

const EXEC: &str = "/clusters/edge-a/api/v1/namespaces/n/pods/p/exec?command=sh&stdin=true";

const PROTOCOLS: [&str; 2] = ["websocket", "SPDY/3.1"];

/// The time within which nothing may arrive. A wrong byte that comes later goes unnoticed; a correct product
/// never fails.
const A_WHILE: Duration = Duration::from_millis(500);

/// Bytes that an attacker wants to be parsed as a request of their own.
const SECOND: &str = "GET /api/v1/secrets HTTP/1.1\r\nHost: x\r\nImpersonate-User: system:admin\r\n\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_flow_both_ways_and_each_way_ends_on_its_own() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    let first = Bytes::from_static(b"first");
    edge.fake.otherwise(Behaviour::Upgrade { pause: Duration::ZERO, first });
    for protocol in PROTOCOLS {
        let mut caller = Http1Caller::dial(&edge.rig).await;
        caller.write(asking(protocol)).await;
        let answered = caller.read_head().await.to_lowercase();
        assert!(answered.starts_with("http/1.1 101 "), "{answered}");
        assert!(answered.contains("connection: upgrade\r\n"), "{answered}");
        assert!(answered.contains(&format!("upgrade: {}\r\n", protocol.to_lowercase())), "{answered}");
        assert_eq!(caller.read_exactly(5).await, b"first");

        for piece in pieces() {
            caller.write(&piece).await;
            assert!(caller.read_exactly(piece.len()).await == piece, "{protocol}");
        }
        // The caller's direction ends with bytes on the way back; the other ends when they are there.
        let last = vec![b'l'; 100_000];
        caller.write(&last).await;
        caller.shut_down().await;
        let (rest, end) = caller.read_to_end().await;
        end.unwrap();
        assert!(rest == last, "{protocol}: {} bytes behind the half-close", rest.len());
    }
    for request in edge.fake.requests() {
        assert_eq!(request.header("authorization"), [format!("Bearer {AGENT_TOKEN}")]);
        assert_eq!(request.header("impersonate-user"), ["token:tess"]);
        assert_eq!(request.header("upgrade").len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callers_bytes_after_the_other_directions_end_arrive_complete() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    for (number, protocol) in PROTOCOLS.into_iter().enumerate() {
        let accepts = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\nlast"
        );
        edge.fake.otherwise(Behaviour::raw(accepts, Cut::Half));
        let mut caller = upgraded(&edge, protocol).await;
        let (last, end) = caller.read_to_end().await;
        end.unwrap();
        assert_eq!(last, b"last", "{protocol}");

        let output: Vec<u8> = pieces().flatten().collect();
        caller.write(&output).await;
        caller.shut_down().await;
        let connection = arrived(&edge, number).await.connection;
        gone(&edge, connection, protocol).await;

        let arrived = edge.fake.connections().swap_remove(connection as usize).bytes;
        assert!(arrived.ends_with(&output), "{protocol}: {} bytes in all", arrived.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_behind_the_request_arrive_only_after_the_101() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    edge.fake.otherwise(Behaviour::Upgrade { pause: A_WHILE, first: Bytes::new() });
    let early = vec![b'e'; 32 * 1024];
    let mut caller = Http1Caller::dial(&edge.rig).await;
    caller.write([asking("websocket").as_bytes(), &early].concat()).await;
    assert!(caller.read_head().await.starts_with("HTTP/1.1 101 "));
    assert!(caller.read_exactly(early.len()).await == early);

    // From a server that never says 101 they never come to.
    edge.fake.otherwise(Behaviour::NeverAnswer);
    let mut caller = Http1Caller::dial(&edge.rig).await;
    caller.write([asking("SPDY/3.1").as_bytes(), &early].concat()).await;
    let request = arrived(&edge, 1).await;
    sleep(A_WHILE).await;
    reads_no_more(&edge, &request);
    drop(caller);
    edge.fake.wait_for_hangup(request.id, SOON).await.unwrap();
    reads_no_more(&edge, &request);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anything_but_the_right_101_passes_no_byte() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    let raw = |text: &str| Behaviour::raw(text.to_owned(), Cut::Hold);
    let answer = |status| Behaviour::Answer(Answer::json(status, "no upgrade"));
    for (number, wrong) in [
        answer(200),
        answer(400),
        answer(403),
        answer(500),
        Behaviour::redirect(302, "/elsewhere"),
        Behaviour::redirect(302, "https://elsewhere.test/"),
        raw("HTTP/1.1 204 No Content\r\n\r\n"),
        raw("HTTP/1.1 304 Not Modified\r\n\r\n"),
        raw("HTTP/1.1 200 OK\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n"),
        raw("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        Behaviour::wrong_101_protocol(),
        Behaviour::wrong_101_without_connection("SPDY/3.1"),
        raw("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\n"),
        raw("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
        raw(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1, websocket\r\n\r\n",
        ),
        raw("HTTP/1.1 101 Switching Protocols\r\n\r\n"),
        Behaviour::garbage(),
        Behaviour::raw("", Cut::Close),
        Behaviour::raw("HTTP/1.1 101 Switch", Cut::Reset),
    ]
    .into_iter()
    .enumerate()
    {
        let case = format!("{wrong:?}");
        edge.fake.otherwise(wrong);
        let mut caller = Http1Caller::dial(&edge.rig).await;
        caller.write(asking("SPDY/3.1") + SECOND).await;
        let answered = caller.read_head().await;
        assert!(!answered.starts_with("HTTP/1.1 101"), "{case}: {answered}");

        // Now the caller goes on as if it had been upgraded, for as long as it is let.
        let request = arrived(&edge, number).await;
        let _ = caller.try_write(SECOND).await;
        let (rest, _) = caller.read_to_end().await;

        let rest = String::from_utf8_lossy(&rest).into_owned();
        assert!(!rest.contains("HTTP/1.1"), "{case}: a second answer: {rest}");
        gone(&edge, request.connection, &case).await;
        reads_no_more(&edge, &request);
        assert_eq!(edge.fake.requests().len(), number + 1, "{case}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_101_that_nobody_asked_for_opens_nothing() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    let unasked = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
    edge.fake.otherwise(Behaviour::raw(unasked, Cut::Hold));
    let mut caller = Http1Caller::dial(&edge.rig).await;
    caller.write(head("GET", EXEC, "Connection: close\r\n") + SECOND).await;

    let answered = caller.read_head().await;

    assert!(answered.starts_with("HTTP/1.1 502 "), "{answered}");
    let request = arrived(&edge, 0).await;
    gone(&edge, request.connection, "an unasked 101").await;
    reads_no_more(&edge, &request);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hang_up_of_either_side_ends_the_other() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    edge.fake.otherwise(Behaviour::upgrade());
    let mut slowest = Duration::ZERO;
    for number in 0..20 {
        let how = [Disconnect::Close, Disconnect::Reset, Disconnect::CloseNotify][number % 3];
        let mut caller = upgraded(&edge, PROTOCOLS[number % 2]).await;
        caller.write("ping").await;
        assert_eq!(caller.read_exactly(4).await, b"ping");
        let request = arrived(&edge, number).await;

        let left = Instant::now();
        let kept = caller.leave(how).await;

        let hangup = edge.fake.wait_for_hangup(request.id, SOON).await.unwrap();
        slowest = slowest.max(hangup.at.saturating_duration_since(left));
        drop(kept);
    }
    eprintln!("upgraded connections: noticed after at most {slowest:?} of 20");

    // The other way round: dropped without a clean end, which must not look like one.
    let mut caller = upgraded(&edge, "websocket").await;
    edge.fake.drop_connections();
    caller.read_to_end().await.1.unwrap_err();
    for cut in [Cut::Close, Cut::Reset] {
        let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        edge.fake.otherwise(Behaviour::raw(head, cut));
        let mut caller = Http1Caller::dial(&edge.rig).await;
        caller.write(asking("websocket")).await;
        let (_, end) = caller.read_to_end().await;
        assert!(end.is_err(), "{cut:?}: cut off, not ended");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_was_killed_and_is_back_breaks_an_upgraded_connection() {
    let mut edge = FakeEdge::start(HttpVersion::Http1).await;
    edge.fake.otherwise(Behaviour::upgrade());
    let mut caller = upgraded(&edge, "SPDY/3.1").await;

    edge.kill_agent().await;

    assert!(caller.read_to_end().await.1.is_err(), "cut off, not ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrades_that_are_not_kubernetes_own_are_refused_and_reach_nobody() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    edge.fake.otherwise(Behaviour::upgrade());
    let pods = "/clusters/edge-a/api/v1/namespaces/n/pods";
    for (method, target, lines) in [
        ("GET", EXEC, "Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n"),
        ("GET", EXEC, "Connection: Upgrade\r\nUpgrade: websocket, SPDY/3.1\r\n"),
        ("GET", EXEC, "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: SPDY/3.1\r\n"),
        ("GET", EXEC, "Connection: Upgrade, Impersonate-User\r\nUpgrade: websocket\r\n"),
        ("POST", EXEC, "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 5\r\n"),
        ("POST", EXEC, "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nTransfer-Encoding: chunked\r\n"),
        ("PUT", EXEC, "Connection: Upgrade\r\nUpgrade: websocket\r\n"),
        ("DELETE", EXEC, "Connection: Upgrade\r\nUpgrade: websocket\r\n"),
        ("GET", pods, "Connection: Upgrade\r\nUpgrade: websocket\r\n"),
        // These are upgraded to WebSocket alone.
        ("GET", &format!("{pods}?watch=1"), "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"),
        ("GET", &format!("{pods}/p/log?follow=1"), "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"),
        ("POST", &format!("{pods}/p/ephemeralcontainers"), "Connection: Upgrade\r\nUpgrade: websocket\r\n"),
        ("GET", EXEC, "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n"),
        ("GET", EXEC, "Connection: Upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n"),
        (
            "POST",
            EXEC,
            "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n",
        ),
        ("GET", "/clusters/edge-a/version", "Connection: Upgrade\r\nUpgrade: websocket\r\n"),
        ("GET", "/clusters", "Connection: Upgrade\r\nUpgrade: websocket\r\n"),
    ] {
        let mut caller = Http1Caller::dial(&edge.rig).await;
        caller.write(head(method, target, lines) + "hello" + SECOND).await;

        let answered = caller.read_head().await;
        let (rest, _) = caller.read_to_end().await;

        assert!(answered.starts_with("HTTP/1.1 400 "), "{method} {target} {lines}: {answered}");
        let rest = String::from_utf8_lossy(&rest).into_owned();
        assert!(!rest.contains("HTTP/1.1"), "{lines}: a second answer: {rest}");
    }
    assert!(edge.fake.requests().is_empty());
}

/// A server may ignore an upgrade (RFC 9110, section 7.8). The first is what nginx sends for every request with
/// `proxy_set_header Connection "upgrade"`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_that_nobody_serves_is_an_ordinary_request() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    edge.fake.otherwise(Behaviour::json("{}"));
    let target = "/clusters/edge-a/api/v1/namespaces";
    for (method, lines) in [
        ("GET", "Connection: upgrade\r\n"),
        ("POST", "Connection: upgrade\r\nContent-Length: 5\r\n"),
        ("GET", "Upgrade: websocket\r\n"),
        ("GET", "Connection: Upgrade\r\nUpgrade: tcp\r\n"),
        ("GET", "Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n"),
        ("GET", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"),
        ("GET", "Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"),
        ("PUT", "Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n"),
    ] {
        let body = if lines.contains("Length") { "hello" } else { "" };
        let mut caller = Http1Caller::dial(&edge.rig).await;
        caller.write(head(method, target, lines) + body).await;
        let answered = caller.read_head().await;
        assert!(answered.starts_with("HTTP/1.1 200 "), "{method} {lines}: {answered}");
        assert_eq!(caller.read_exactly(2).await, b"{}");
        if !lines.contains("Upgrade:") {
            // Nothing was offered, so the connection goes on.
            caller.write(head("GET", target, "")).await;
            assert!(caller.read_head().await.starts_with("HTTP/1.1 200 "), "{lines}");
        }
    }
    for request in edge.fake.requests() {
        for name in ["connection", "upgrade", "http2-settings"] {
            assert!(request.header(name).is_empty(), "{name}: {request:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_used_for_an_upgrade_serves_no_other_request() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    edge.fake.otherwise(Behaviour::json("{}"));
    edge.fake.on("/api/v1/namespaces/n/pods/p/exec", Behaviour::upgrade());
    edge.fake.on("/api/v1/namespaces/n/pods/p/attach", Behaviour::Answer(Answer::json(403, "no")));
    let plain = || edge.rig.ask_with_token("GET", "/clusters/edge-a/version", &[]);
    for protocol in PROTOCOLS {
        // One that goes on, one that ended well, one that broke, and one that was declined.
        let _open = upgraded(&edge, protocol).await;
        let mut ended = upgraded(&edge, protocol).await;
        ended.shut_down().await;
        ended.read_to_end().await.1.unwrap();
        upgraded(&edge, protocol).await.leave(Disconnect::Reset).await;
        let mut declined = Http1Caller::dial(&edge.rig).await;
        declined.write(asking(protocol).replace("/exec?", "/attach?")).await;
        assert!(declined.read_head().await.starts_with("HTTP/1.1 403 "));
        for _ in 0..5 {
            assert_eq!(plain().await.status, 200);
        }
    }
    let requests = edge.fake.requests();
    let is_upgrade = |request: &&RecordedRequest| !request.header("upgrade").is_empty();
    let upgrades: Vec<u64> = requests.iter().filter(is_upgrade).map(|request| request.connection).collect();
    assert_eq!(upgrades.len(), 8);
    for connection in &upgrades {
        let on_it = requests.iter().filter(|request| request.connection == *connection).count();
        assert_eq!(on_it, 1, "connection {connection}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_servers_refusal_of_an_upgrade_arrives_complete() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    let why = "why not ".repeat(60_000);
    edge.fake.otherwise(Behaviour::Answer(Answer::json(403, why.clone())));
    for protocol in PROTOCOLS {
        for round in 0..5 {
            let mut caller = Http1Caller::dial(&edge.rig).await;
            caller.write(asking(protocol)).await;
            let (answer, end) = caller.read_to_end().await;
            let answer = String::from_utf8(answer).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
            assert!(body == why, "round {round}: {} bytes of {}, {end:?}", body.len(), why.len());
        }
    }
}

/// The paths are those of all endpoints that answer 101.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_upgrading_endpoint_of_kubernetes_upgrades() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    edge.fake.otherwise(Behaviour::upgrade());
    for target in [
        "/api/v1/namespaces/n/pods/p/exec",
        "/api/v1/namespaces/n/pods/p/attach?stdin=1",
        "/api/v1/namespaces/n/pods/p/portforward",
        "/api/v1/namespaces/n/pods/p/log?follow=1",
        "/api/v1/namespaces/n/pods/p/proxy/ws",
        "/api/v1/namespaces/n/services/s/proxy/ws//%2F",
        "/api/v1/nodes/n/proxy/exec",
        "/api/v1/pods?watch=1",
    ] {
        let lines = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n";
        let mut caller = Http1Caller::dial(&edge.rig).await;
        caller.write(head("GET", &format!("/clusters/edge-a{target}"), lines)).await;
        assert!(caller.read_head().await.starts_with("HTTP/1.1 101 "), "{target}");
        caller.write("ping").await;
        assert_eq!(caller.read_exactly(4).await, b"ping");
    }
    // kubectl's SPDY says that its body has no length.
    let lines = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n";
    let mut caller = Http1Caller::dial(&edge.rig).await;
    caller.write(head("POST", EXEC, lines)).await;
    assert!(caller.read_head().await.starts_with("HTTP/1.1 101 "));
}

fn asking(protocol: &str) -> String {
    head("POST", EXEC, &format!("Connection: Upgrade\r\nUpgrade: {protocol}\r\n"))
}

/// 1 MiB in pieces that differ.
fn pieces() -> impl Iterator<Item = Vec<u8>> {
    (0_u32..16).map(|piece| (piece * 16_384..(piece + 1) * 16_384).flat_map(u32::to_be_bytes).collect())
}

/// A8 of docs/security.md: a reader of these frames would allocate the size that they announce.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spdy_frames_with_wrong_sizes_pass_unchanged_and_cost_nothing() {
    const MEMORY_BYTES_MAX: u64 = 8 * 1024 * 1024;
    let mut edge = FakeEdge::start(HttpVersion::Http1).await;
    edge.fake.otherwise(Behaviour::upgrade());
    let (settings, syn_stream, headers, data) =
        ([0x80, 3, 0, 4], [0x80, 3, 0, 1], [0x80, 3, 0, 8], [0, 0, 0, 1]);
    let most = [0, 0xff, 0xff, 0xff];
    let frames: Vec<Vec<u8>> = vec![
        // 16 MiB announced, of 2 and of 4 thousand million entries, and none of them sent.
        [settings, most, [0x80, 0, 0, 0]].concat(),
        [settings, most, [0xff; 4]].concat(),
        // A stream whose headers, not compressed at all, are 4 thousand million and 2 GiB each.
        [&syn_stream[..], &most, &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x78, 1, 0, 8, 0, 0xf7, 0xff], &[0xff; 8]]
            .concat(),
        [&headers[..], &most, &[0, 0, 0, 1, 0x78, 0xf9], &[0xff; 64]].concat(),
        [data, [1, 0xff, 0xff, 0xff]].concat(),
        [[0x80, 0x7f, 0xff, 0xff], most].concat(),
        vec![0xff; 64 * 1024],
    ];
    // What an upgraded connection takes at its best.
    let mut warm = upgraded(&edge, "SPDY/3.1").await;
    warm.write(vec![0; 64 * 1024]).await;
    warm.read_exactly(64 * 1024).await;
    let before = [edge.rig.server().resident_bytes(), edge.agent.process.resident_bytes()];

    for protocol in PROTOCOLS {
        for frame in &frames {
            let mut caller = upgraded(&edge, protocol).await;
            // Again and again, with nothing that was announced.
            let sent = frame.repeat(64 * 1024 / frame.len());
            caller.write(&sent).await;
            assert!(caller.read_exactly(sent.len()).await == sent, "{protocol}: {:?}", &frame[..8]);
        }
    }

    let after = [edge.rig.server().peak_bytes(), edge.agent.process.peak_bytes()];
    let more = [after[0].saturating_sub(before[0]), after[1].saturating_sub(before[1])];
    eprintln!("server and agent: {more:?} bytes more at the worst moment");
    assert!(more.iter().all(|more| *more < MEMORY_BYTES_MAX), "{more:?}");
}

async fn upgraded(edge: &FakeEdge, protocol: &str) -> Http1Caller {
    let mut caller = Http1Caller::dial(&edge.rig).await;
    caller.write(asking(protocol)).await;
    assert!(caller.read_head().await.starts_with("HTTP/1.1 101 "));
    caller
}

async fn arrived(edge: &FakeEdge, number: usize) -> RecordedRequest {
    edge.fake.wait_for_request(SOON, |request| request.id == number as u64).await.unwrap()
}

/// Waits until a connection of the fake has ended.
async fn gone(edge: &FakeEdge, connection: u64, case: &str) {
    let ended = async {
        while !edge.fake.connections().iter().any(|one| one.id == connection && one.ended.is_some()) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, ended).await.unwrap_or_else(|_| panic!("{case}: the connection stays open"));
}

/// Checks that the request's head is all that has arrived on its connection.
fn reads_no_more(edge: &FakeEdge, request: &RecordedRequest) {
    let connections = edge.fake.connections();
    let connection = connections.iter().find(|one| one.id == request.connection).unwrap();
    let text = String::from_utf8_lossy(&connection.bytes);
    let (_, behind) = text.split_once("\r\n\r\n").unwrap();
    assert!(behind.is_empty(), "{behind:?} behind the head of {}", request.target);
}
