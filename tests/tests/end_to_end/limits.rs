//! The limits of `docs/limits.md` as callers meet them: the limit itself is accepted, one more is refused.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::process::Signal;
use tests::caller::{GATEWAY, Http1Caller, head};
use tests::fake_api::{Answer, Behaviour, HttpVersion, RecordedRequest};
use tests::fake_edge::FakeEdge;
use tests::raw_http2::{RawHead, RawHttp2, RequestOutcome};
use tests::rig::{GROUP, Reply, TOKEN, ask, ask_raw};
use tokio::time::{sleep, timeout};

const PATH: &str = "/clusters/edge-a/api/v1/namespaces";

/// The limit for a series of requests. Builds of other tests may run beside.
const ARRIVE_MAX: Duration = Duration::from_secs(120);

const HEADERS_MAX: usize = 100;
const HEAD_BYTES_MAX: usize = 64 * 1024;
const TARGET_BYTES_MAX: usize = 16 * 1024;
const STREAMS_MAX: usize = 250;
const EXCHANGES_PER_CALLER_MAX: usize = 2_500;
const LOCAL_RESETS_MAX: usize = 1024;

const RESETS_AT_ONCE: usize = 64;

const HEAD_OR_IDLE_MAX: Duration = Duration::from_secs(90);
const SLACK: Duration = Duration::from_secs(1);

/// The overhead of one header in HTTP/2 besides its name and value (RFC 9113, section 6.5.2).
const HEADER_OVERHEAD_BYTES: usize = 32;

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
            let rest = bytes - head("GET", PATH, "x: \r\n").len();
            let asked = head("GET", PATH, &format!("x: {}\r\n", "v".repeat(rest)));
            assert_eq!(http1_status(&edge, &asked).await, status, "{bytes} over HTTP/1.1");
        }
        // The library takes what is below the limit that it was given.
        for bytes in [HEAD_BYTES_MAX - 1, HEAD_BYTES_MAX] {
            let mut asked = http2_head(PATH);
            asked.push(("x".to_owned(), Vec::new()));
            let counted: usize =
                asked.iter().map(|(name, value)| name.len() + value.len() + HEADER_OVERHEAD_BYTES).sum();
            asked.last_mut().unwrap().1 = vec![b'v'; bytes - counted];
            let outcome = http2_outcome(&edge, asked).await;
            assert_eq!(
                outcome == RequestOutcome::Ok,
                bytes < HEAD_BYTES_MAX,
                "{bytes} over HTTP/2: {outcome:?}"
            );
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
        let outcome = http2_outcome(&edge, http2_head(&target)).await;
        assert_eq!(outcome == RequestOutcome::Ok, status == 200, "{bytes} over HTTP/2");
    }
    assert_eq!(edge.fake.requests().len(), 2);
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

    caller.send(&vec![http2_head(PATH); STREAMS_MAX]).await.unwrap();
    arrived(&edge, STREAMS_MAX).await;
    let beyond = caller.send(&[http2_head(PATH)]).await.unwrap();

    assert_eq!(caller.ended().await.unwrap(), (beyond[0], RequestOutcome::Reset));
    assert_eq!(edge.fake.requests().len(), STREAMS_MAX);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_provokes_too_many_resets_is_closed() {
    let edge = setup(HttpVersion::Http2).await;
    let mut caller = RawHttp2::dial(&edge.rig, GATEWAY, None).await;
    // No library of HTTP takes such a path, so each is answered by a reset.
    let malformed = vec![http2_head("/ "); RESETS_AT_ONCE];
    let mut resets = 0;
    let ended = loop {
        match caller.ask(&malformed).await {
            Ok(outcomes) => {
                assert!(outcomes.iter().all(|outcome| *outcome == RequestOutcome::Reset), "{outcomes:?}");
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
    let silent_head = vec![http2_head("/clusters/edge-a/silent"); STREAMS_MAX];
    let mut held = Vec::new();
    for _ in 0..EXCHANGES_PER_CALLER_MAX / STREAMS_MAX {
        let mut caller = RawHttp2::dial(&edge.rig, GATEWAY, None).await;
        caller.send(&silent_head).await.unwrap();
        held.push(caller);
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

    held.pop();
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
