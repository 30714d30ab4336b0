//! The limits of `docs/limits.md` as callers meet them: the limit itself is accepted, one more is refused.

use std::future::pending;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::process::Signal;
use tests::caller::{GATEWAY, Http1Caller, head};
use tests::fake_api::{Answer, Behaviour, HttpVersion, RecordedRequest};
use tests::fake_edge::FakeEdge;
use tests::raw_http2::{RawHead, RawHttp2, RequestOutcome};
use tests::rig::{GROUP, Reply, TOKEN, ask, ask_raw};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const PATH: &str = "/clusters/edge-a/api/v1/namespaces";

/// The same, for an answer that may take longer than the 75 s of other requests.
const PATIENT: &str = "/clusters/edge-a/api/v1/namespaces?timeout=30m";

/// The limit for a series of requests. Builds of other tests may run beside.
const ARRIVE_MAX: Duration = Duration::from_secs(120);

const HEADERS_MAX: usize = 100;
const HEAD_BYTES_MAX: usize = 64 * 1024;
const TARGET_BYTES_MAX: usize = 63 * 1024;
const HTTP_HEADERS_MAX: usize = 128;
const HTTP_HEAD_BYTES_MAX: usize = 192 * 1024;
const STREAMS_MAX: usize = 250;
const EXCHANGES_PER_CALLER_MAX: usize = 2_500;
const LOCAL_RESETS_MAX: usize = 1024;

const RESETS_AT_ONCE: usize = 64;

const HEAD_OR_IDLE_MAX: Duration = Duration::from_secs(90);
const SLACK: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_has_as_many_headers_as_it_may_and_not_one_more() {
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let edge = setup(version).await;
        for (count, status) in [(HEADERS_MAX, 200), (HEADERS_MAX + 1, 431)] {
            // `Host` and `Authorization` are among them.
            let lines: String = (2..count).map(|n| format!("x-{n}: \r\n")).collect();
            assert_eq!(
                http1_status(&edge, &head("GET", PATH, &lines)).await,
                status,
                "{count} over HTTP/1.1"
            );
        }
        for (count, outcome) in
            [(HEADERS_MAX, RequestOutcome::Ok), (HEADERS_MAX + 1, RequestOutcome::Refused)]
        {
            let mut asked = http2_head(PATH);
            asked.extend((1..count).map(|n| (format!("x-{n}"), Vec::new())));
            assert_eq!(http2_outcome(&edge, asked).await, outcome, "{count} over HTTP/2");
        }
        assert_eq!(edge.fake.requests().len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_requests_head_is_as_large_as_it_may_be_and_not_one_byte_more() {
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let edge = setup(version).await;
        for (bytes, status) in [(HEAD_BYTES_MAX, 200), (HEAD_BYTES_MAX + 1, 431)] {
            let of_others = header_bytes(&head("GET", PATH, "x: \r\n"));
            let asked = head("GET", PATH, &format!("x: {}\r\n", "v".repeat(bytes - of_others)));
            assert_eq!(http1_status(&edge, &asked).await, status, "{bytes} over HTTP/1.1");
        }
        for (bytes, outcome) in
            [(HEAD_BYTES_MAX, RequestOutcome::Ok), (HEAD_BYTES_MAX + 1, RequestOutcome::Refused)]
        {
            let mut asked = http2_head(PATH);
            asked.push(("x".to_owned(), Vec::new()));
            let is_header = |name: &str| !name.starts_with(':');
            let counted: usize = asked
                .iter()
                .filter(|(name, _)| is_header(name))
                .map(|(name, value)| name.len() + value.len())
                .sum();
            asked.last_mut().unwrap().1 = vec![b'v'; bytes - counted];
            assert_eq!(http2_outcome(&edge, asked).await, outcome, "{bytes} over HTTP/2");
        }
        assert_eq!(edge.fake.requests().len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_with_its_query_is_as_long_as_it_may_be_and_not_one_byte_more() {
    let edge = setup(HttpVersion::Http1).await;
    for (bytes, status) in [(TARGET_BYTES_MAX, 200), (TARGET_BYTES_MAX + 1, 414)] {
        let target = format!("{PATH}?{}", "x".repeat(bytes - PATH.len() - 1));
        assert_eq!(http1_status(&edge, &head("GET", &target, "")).await, status, "{bytes}");
        let outcome = if status == 200 { RequestOutcome::Ok } else { RequestOutcome::Refused };
        assert_eq!(http2_outcome(&edge, http2_head(&target)).await, outcome, "{bytes} over HTTP/2");
    }
    assert_eq!(edge.fake.requests().len(), 2);
}

/// A request that a library of HTTP refuses gets a `Status` on HTTP/1.1, and an answer on HTTP/2. After a reset, Go's
/// clients send it again for more than a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_no_library_can_read_is_refused_in_words() {
    let edge = setup(HttpVersion::Http1).await;
    let long = format!("{PATH}?{}", "x".repeat(2 * TARGET_BYTES_MAX));
    let many: String = (0..HTTP_HEADERS_MAX).map(|n| format!("x-{n}: \r\n")).collect();
    let large = format!("x: {}\r\n", "v".repeat(HTTP_HEAD_BYTES_MAX));
    let close = "Connection: close\r\n";
    let [many, large] = [many, large].map(|lines| lines + close);
    let mut cases = vec![
        (head("GET", &long, close), 414, "RequestEntityTooLarge"),
        (head("GET", PATH, &many), 431, "RequestEntityTooLarge"),
        (head("GET", PATH, &large), 431, "RequestEntityTooLarge"),
        (head("GET", PATH, "no colon\r\nConnection: close\r\n"), 400, "BadRequest"),
        (head("GET", PATH, "x: \x01\r\nConnection: close\r\n"), 400, "BadRequest"),
        ("GET\r\n\r\n".to_owned(), 400, "BadRequest"),
    ];
    for character in ['"', '<', '>', '`', ' '] {
        let target = format!("{PATH}?labelSelector=a{character}b");
        cases.push((head("GET", &target, close), 400, "BadRequest"));
        // A library may take it, and then our own parser says the same.
        let outcome = http2_outcome(&edge, http2_head(&target)).await;
        assert_ne!(outcome, RequestOutcome::Reset, "{character:?} over HTTP/2");
    }
    for (asked, status, reason) in cases {
        let case = &asked[..asked.len().min(120)];
        // Also behind another exchange on the same connection.
        for before in ["", &head("GET", PATH, "")] {
            let mut caller = Http1Caller::dial(&edge.rig).await;
            if !before.is_empty() {
                caller.write(before).await;
                assert!(caller.read_head().await.starts_with("HTTP/1.1 200 "));
                assert_eq!(caller.read_exactly(2).await, b"{}");
            }
            let _ = caller.try_write(&asked).await;
            let (answer, _) = caller.read_to_end().await;
            let answer = String::from_utf8(answer).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{case}: {answer}"));
            if case.contains('`') && head.starts_with("HTTP/1.1 200 ") {
                continue;
            }
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{case}: {head}");
            assert!(body.contains("\"kind\":\"Status\"") && body.contains(reason), "{case}: {body}");
        }
    }
    assert_eq!(http2_outcome(&edge, http2_head(&long)).await, RequestOutcome::Refused);
    // Other requests on a connection go on.
    let mut caller = RawHttp2::dial(&edge.rig, GATEWAY, None).await;
    let heads = ["/ ", PATH, "/ ", PATH].map(http2_head);
    let outcomes = caller.ask(&heads).await.unwrap();
    let [refused, ok] = [RequestOutcome::Refused, RequestOutcome::Ok];
    assert_eq!(outcomes, [refused, ok, refused, ok]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answers_head_is_bounded_too() {
    let edge = setup(HttpVersion::Http1).await;
    // `Content-Length` is among them.
    for (count, status) in [(HEADERS_MAX, 200), (HEADERS_MAX + 1, 502)] {
        edge.fake.otherwise(answer((1..count).map(|n| (format!("x-{n}"), "v".to_owned())).collect()));
        assert_eq!(http1_status(&edge, &head("GET", PATH, "")).await, status, "{count} headers");
    }
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let edge = setup(version).await;
        // Where exactly is up to how its bytes arrive; a head that is far beyond is never taken.
        for (bytes, status) in [(HEAD_BYTES_MAX - 2048, 200), (4 * HEAD_BYTES_MAX, 502)] {
            edge.fake.otherwise(answer(vec![("x".to_owned(), "v".repeat(bytes))]));
            assert_eq!(http1_status(&edge, &head("GET", PATH, "")).await, status, "{bytes} over {version:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_has_as_many_streams_as_it_may_and_not_one_more() {
    let edge = setup(HttpVersion::Http2).await;
    edge.fake.otherwise(Behaviour::NeverAnswer);
    let mut caller = RawHttp2::dial(&edge.rig, GATEWAY, None).await;

    caller.send(&vec![http2_head(PATIENT); STREAMS_MAX]).await.unwrap();
    caller.read_until(arrived(&edge, STREAMS_MAX)).await;
    let beyond = caller.send(&[http2_head(PATH)]).await.unwrap();

    assert_eq!(caller.ended().await.unwrap(), (beyond[0], RequestOutcome::Reset));
    assert_eq!(edge.fake.requests().len(), STREAMS_MAX);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_provokes_too_many_resets_is_closed() {
    let edge = setup(HttpVersion::Http2).await;
    let mut caller = RawHttp2::dial(&edge.rig, GATEWAY, None).await;
    // No library of HTTP takes such a path, so each is answered in place of a reset.
    let malformed = vec![http2_head("/ "); RESETS_AT_ONCE];
    let mut resets = 0;
    let ended = loop {
        match caller.ask(&malformed).await {
            Ok(outcomes) => {
                assert!(outcomes.iter().all(|outcome| *outcome == RequestOutcome::Refused), "{outcomes:?}");
                resets += outcomes.len();
                assert!(resets <= LOCAL_RESETS_MAX, "it goes on after {resets} resets");
            }
            Err(ended) => break ended,
        }
    };
    assert_ne!(ended.kind(), ErrorKind::TimedOut, "it goes on");
    assert!(resets > LOCAL_RESETS_MAX - RESETS_AT_ONCE, "closed after {resets} resets: {ended}");

    // Streams that are opened and taken back before anybody has looked.
    let mut caller = RawHttp2::dial(&edge.rig, GATEWAY, None).await;
    caller.send_and_reset(&vec![http2_head(PATH); STREAMS_MAX]).await.unwrap();
    let ended = loop {
        if let Err(ended) = caller.ended().await {
            break ended;
        }
    };
    assert_ne!(ended.kind(), ErrorKind::TimedOut, "it goes on");
    assert_eq!(edge.rig.ask_with_token("GET", PATH, &[]).await.status, 200, "others are undisturbed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callers_exchange_limit_affects_no_other_caller() {
    let edge = setup(HttpVersion::Http2).await;
    edge.fake.on("/silent", Behaviour::NeverAnswer);
    let silent_head = vec![http2_head("/clusters/edge-a/silent?timeout=30m"); STREAMS_MAX];
    let (mut held, mut last) = (JoinSet::new(), None);
    for _ in 0..EXCHANGES_PER_CALLER_MAX / STREAMS_MAX {
        let mut caller = RawHttp2::dial(&edge.rig, GATEWAY, None).await;
        caller.send(&silent_head).await.unwrap();
        // Each reads meanwhile, or the gateway would close it before the others have arrived.
        last = Some(held.spawn(async move { caller.read_until(pending::<()>()).await }));
    }
    arrived(&edge, EXCHANGES_PER_CALLER_MAX).await;

    let beyond = edge.rig.ask_with_token("GET", PATH, &[]).await;
    assert_eq!(beyond.status, 429, "{beyond:?}");
    assert!(beyond.body.contains("CallerBusy") && beyond.body.contains("2500"), "{beyond:?}");
    assert!(beyond.head.to_lowercase().contains("retry-after: 1"), "{beyond:?}");
    let alice = edge.rig.caller("alice", &[GROUP]).await;
    let other = ask(edge.rig.gateway(), &edge.rig.server_ca(), Some(&alice), "GET", PATH, &[]).await.unwrap();
    assert_eq!(other.status, 200, "{other:?}");
    assert_eq!(edge.rig.ask_with_token("GET", "/clusters", &[]).await.status, 200, "the list is no exchange");

    last.expect("there are several").abort();
    let again = async {
        while edge.rig.ask_with_token("GET", PATH, &[]).await.status != 200 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(ARRIVE_MAX, again).await.expect("what ended is free again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: a head may take 90 s"]
async fn an_incomplete_head_times_out() {
    let edge = setup(HttpVersion::Http1).await;
    for sent in ["", "GET /clu", "GET /clusters HTTP/1.1\r\nHost: x\r\nX: "] {
        let mut caller = Http1Caller::dial(&edge.rig).await;
        caller.write(sent).await;
        let began = Instant::now();
        // Longer than a caller here waits for anything else.
        let ended = timeout(HEAD_OR_IDLE_MAX + ARRIVE_MAX, caller.closed()).await;
        assert!(ended.is_ok(), "{sent:?}");
        assert!(began.elapsed() >= HEAD_OR_IDLE_MAX - SLACK, "{sent:?}: {:?}", began.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: a caller may pause for 60 s, and an agent for 90 s"]
async fn the_silent_party_is_named_as_the_cause() {
    let edge = setup(HttpVersion::Http1).await;
    edge.fake.otherwise(Behaviour::NeverAnswer);
    let (gateway, ca) = (edge.rig.gateway(), edge.rig.server_ca());
    let pausing = head("POST", PATH, "Content-Length: 10\r\nConnection: close\r\n") + "half ";
    let quiet = |path: &str| head("GET", path, "Connection: close\r\n");
    let plain = quiet(PATH);
    let log = quiet("/clusters/edge-a/api/v1/namespaces/n/pods/p/log?follow=1");

    let (paused, api_server) = tokio::join!(
        ask_raw(gateway, &ca, None, pausing.as_bytes()),
        ask_raw(gateway, &ca, None, plain.as_bytes()),
    );
    assert_cause(&paused.unwrap(), 408, "CallerSilent");
    assert_cause(&api_server.unwrap(), 504, "APIServerSilent");

    // A frozen agent says nothing of its API server any more, and nothing at all.
    let mut following = Http1Caller::dial(&edge.rig).await;
    following.write(log).await;
    let is_log = |request: &RecordedRequest| request.target.contains("/log");
    let followed = edge.fake.wait_for_request(ARRIVE_MAX, is_log).await.unwrap();
    edge.agent.process.signal(Signal::STOP).unwrap();
    let link = ask_raw(gateway, &ca, None, plain.as_bytes()).await;
    edge.agent.process.signal(Signal::CONT).unwrap();
    assert_cause(&link.unwrap(), 504, "LinkSilent");

    // Whom Kubernetes gives no deadline is still waited for.
    let requests = edge.fake.requests();
    assert!(requests.iter().any(|request| request.id == followed.id && request.hangup.is_none()));
}

async fn setup(version: HttpVersion) -> FakeEdge {
    let edge = FakeEdge::start(version).await;
    edge.fake.otherwise(Behaviour::json("{}"));
    edge
}

fn answer(headers: Vec<(String, String)>) -> Behaviour {
    Behaviour::Answer(Answer { status: 200, headers, body: Bytes::from_static(b"{}") })
}

fn assert_cause(reply: &Reply, status: u16, cause: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert!(reply.body.contains(cause), "{cause}: {reply:?}");
}

/// Waits until so many requests have arrived.
async fn arrived(edge: &FakeEdge, count: usize) {
    let last = count as u64 - 1;
    edge.fake.wait_for_request(ARRIVE_MAX, |request| request.id == last).await.unwrap();
}

/// The bytes of the names and values of the headers in a request's head.
fn header_bytes(head: &str) -> usize {
    let headers = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    headers.map(|(name, value)| name.len() + value.trim().len()).sum()
}

async fn http1_status(edge: &FakeEdge, head: &str) -> u16 {
    let mut caller = Http1Caller::dial(&edge.rig).await;
    // Who refuses a head may close before it has it all.
    let _ = caller.try_write(head).await;
    caller.read_head().await.split(' ').nth(1).unwrap().parse().unwrap()
}

fn http2_head(path: &str) -> RawHead {
    let authorization = format!("Bearer {TOKEN}");
    [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", GATEWAY),
        (":path", path),
        ("authorization", &authorization),
    ]
    .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()))
    .into()
}

async fn http2_outcome(edge: &FakeEdge, head: RawHead) -> RequestOutcome {
    RawHttp2::dial(&edge.rig, GATEWAY, None).await.ask(&[head]).await.unwrap()[0]
}
