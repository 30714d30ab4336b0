//! The audit log of requests: an intent before the API server sees anything, one completion for every end,
//! and no service that the log cannot record.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use bytes::Bytes;
use rustix::process::Signal;
use serde_json::Value;
use tests::audit_log::{AuditLog, directory, note, verify};
use tests::caller::{Http1Caller, Http2Caller, SOON, head, send_all};
use tests::carrier::Carrier;
use tests::fake_api::{Answer, Behaviour, HttpVersion, Moment, RecordedRequest, WatchFeed};
use tests::fake_edge::FakeEdge;
use tests::rig::policy::{allow_all, may_assume};
use tests::rig::{Rig, TOKEN, ask};
use tokio::time::timeout;

const POD: &str = "/clusters/edge-a/api/v1/namespaces/n/pods/p";
const WATCH: &str = "/clusters/edge-a/api/v1/pods?watch=1";
const EXEC: &str = "/clusters/edge-a/api/v1/namespaces/n/pods/p/exec?command=a-secret-command&stdin=true";

/// The server's audit log and the cluster's audit log give the request the same ID.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intent_is_written_before_the_api_server_sees_the_request() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    edge.fake.otherwise(Behaviour::Answer(Answer::json(200, "{}")));
    let gate = edge.fake.hold("/api/v1/namespaces/n/pods/p", Moment::BeforeHead);
    let mut caller = Http1Caller::dial(&edge.rig).await;
    caller.write(head("GET", POD, "User-Agent: kubectl/v1.36\r\nX-Forwarded-For: 203.0.113.9\r\n")).await;
    let request = edge.fake.wait_for_request(SOON, |_| true).await.unwrap();

    // The answer is held back, so what is in the log was there when the request came.
    let log = AuditLog::of(&edge.rig).about(audit_id(&request));

    let [intent] = log.intents()[..] else { panic!("{log:?}") };
    assert!(log.completions().is_empty(), "{log:?}");
    assert_eq!(intent["verb"], "get");
    assert_eq!(intent["requestURI"], POD);
    assert_eq!(intent["user"]["username"], "token:tess");
    assert_eq!(intent["impersonatedUser"]["username"], "token:tess");
    // The socket's other end, and not what the caller says of itself.
    assert_eq!(intent["sourceIPs"], serde_json::json!(["127.0.0.1"]));
    assert_eq!(intent["userAgent"], "kubectl/v1.36");
    let object = serde_json::json!({"resource": "pods", "namespace": "n", "name": "p"});
    assert_eq!(intent["objectRef"], object);
    assert_eq!((note(intent, "cluster"), note(intent, "decision")), ("edge-a", "allow"));
    assert!(!note(intent, "rule").is_empty() && !note(intent, "policy-generation").is_empty(), "{intent}");

    gate.open();
    assert!(caller.read_head().await.starts_with("HTTP/1.1 200 "));
    let completion = completed(&edge.rig, audit_id(&request)).await;
    assert_eq!(note(&completion, "intent"), note(intent, "sequence"));
    assert_eq!((note(&completion, "end-reason"), note(&completion, "streams")), ("clean", "1"));
    assert_eq!(completion["responseStatus"]["code"], 200);
    assert!(!note(&completion, "agent").is_empty(), "{completion}");
    assert_eq!(note(&completion, "carrier"), Carrier::of_run().as_str());
}

/// This holds for each exchange that an API server saw, however it ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_exchange_has_one_completion_with_its_reason() {
    let mut edge = FakeEdge::start(HttpVersion::Http1).await;
    let expected = ended_in_every_way(&mut edge).await;

    for (audit_id, reason) in &expected {
        let completion = completed(&edge.rig, audit_id).await;
        assert_eq!(note(&completion, "end-reason"), *reason, "{completion}");
    }
    assert_eq!(Rig::ends_with(edge.rig.server(), Signal::TERM).await, Some(0));
    let log = AuditLog::of(&edge.rig);
    for request in edge.fake.requests() {
        let about = log.about(audit_id(&request));
        let ([intent], [completion]) = (&about.intents()[..], &about.completions()[..]) else {
            panic!("{request:?}: {about:?}")
        };
        assert_eq!(note(completion, "intent"), note(intent, "sequence"));
        assert!(number(completion, "sequence") > number(intent, "sequence"));
    }
    let (upgrade, _) = &expected[UPGRADE];
    let piped = log.about(upgrade);
    let completion = piped.completions()[0];
    assert_eq!((number(completion, "bytes-up"), number(completion, "bytes-down")), (13, 13));
    assert_eq!(completion["requestURI"].as_str().unwrap().split('?').next_back(), Some("command=&stdin="));
    let uploaded = log.about(&expected[0].0);
    let completion = uploaded.completions()[0];
    assert_eq!((number(completion, "bytes-up"), number(completion, "bytes-down")), (50_000, 100_000));
    let text = log.lines().iter().map(Value::to_string).collect::<String>();
    for secret in ["a-secret-command", "what-is-typed", TOKEN, tests::rig::AGENT_TOKEN] {
        assert!(!text.contains(secret), "{secret} is in the log");
    }
    assert_eq!(verify(&edge.rig).await["open"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_one_audit_line_and_unauthenticated_requests_are_counted() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    let nobody = edge.rig.caller("nobody", &[]).await;
    let (gateway, ca) = (edge.rig.gateway(), edge.rig.server_ca());
    let denied = [("Audit-ID", "denied-1"), ("User-Agent", "\u{9b}31mred")];
    let reply = ask(gateway, &ca, Some(&nobody), "GET", POD, &denied).await.unwrap();
    assert_eq!(reply.status, 403);
    for _ in 0..3 {
        let reply = ask(gateway, &ca, None, "GET", POD, &[("Authorization", "Bearer wrong")]).await.unwrap();
        assert_eq!(reply.status, 401);
    }
    let mut rig = edge.rig;
    Rig::ends_with(rig.server(), Signal::TERM).await;

    let log = AuditLog::of(&rig);
    let denied = log.about("denied-1");
    let ([], [line]) = (&denied.intents()[..], &denied.completions()[..]) else { panic!("{denied:?}") };
    assert_eq!((&line["responseStatus"]["code"], note(line, "decision")), (&403.into(), "forbid"));
    assert_eq!(line["responseStatus"]["reason"], "ForbiddenByPolicy");
    assert!(line["user"]["username"].as_str().is_some_and(|name| name.ends_with("nobody")), "{line}");
    let unauthenticated: Vec<_> = log.lines().iter().filter(|line| line["verb"] == "authenticate").collect();
    let count: u64 = unauthenticated.iter().map(|line| number(line, "count")).sum();
    assert_eq!(count, 3, "{unauthenticated:?}");
    assert!(edge.fake.requests().is_empty());
    verify(&rig).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_assumed_identity_is_audited_with_the_caller() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    edge.fake.otherwise(Behaviour::json("{}"));
    let holders = ("token", "token:tombolo:admins");
    let rules = [allow_all("all", holders, &["*"]), may_assume("as", holders, &["*"], "{ users: [bob] }")];
    edge.rig.put_policy(&rules).await;

    let asked = [("bob", 200, "allow"), ("carol", 403, "forbid")];
    for (name, status, _) in asked {
        let headers = [("Impersonate-User", name), ("Audit-ID", name)];
        assert_eq!(edge.rig.ask_with_token("GET", POD, &headers).await.status, status);
    }

    let log = AuditLog::of(&edge.rig);
    for (name, _, decision) in asked {
        let about = log.about(name);
        let line = &about.lines()[0];
        let names = (&line["user"]["username"], &line["impersonatedUser"]["username"]);
        assert_eq!(names, (&"token:tess".into(), &name.into()));
        assert_eq!(note(line, "decision"), decision, "{line}");
    }
}

/// No line about the running exchanges is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unwritable_audit_log_stops_new_requests_and_recovers() {
    let edge = FakeEdge::start_server_with("audit: { maxFileBytes: 1048576, filesKept: 5 }").await;
    let feed = WatchFeed::new();
    edge.fake.otherwise(Behaviour::Answer(Answer::json(200, "{}")));
    edge.fake.on("/api/v1/pods", Behaviour::Watch(feed.clone()));
    let mut live = Http1Caller::dial(&edge.rig).await;
    live.write(head("GET", WATCH, "")).await;
    live.read_head().await;
    let log = directory(&edge.rig);
    let away = log.with_extension("away");

    // The next file cannot be begun where there is no directory.
    fs::rename(&log, &away).unwrap();
    let refused = until_full(&edge.rig).await;
    assert_eq!(refused.status, 503);
    assert!(refused.body.contains("\"NotRecorded\"") && !refused.body.contains("directory"), "{refused:?}");
    edge.rig.not_ready("[-]audit").await;
    assert_eq!(edge.rig.metric(edge.rig.probes(), "tombolo_server_audit_failing").await as u64, 1);
    let seen = edge.fake.requests().len();
    assert_eq!(edge.rig.ask_with_token("GET", POD, &[]).await.status, 503);
    assert_eq!(edge.fake.requests().len(), seen, "nothing is done that is not written");
    // What runs goes on.
    feed.push("still here");
    let received = live.read_exactly(1).await;
    assert!(!received.is_empty());

    fs::rename(&away, &log).unwrap();
    edge.rig.ready(edge.rig.probes()).await;
    assert_eq!(edge.rig.ask_with_token("GET", POD, &[]).await.status, 200);
    drop(live);
    let mut rig = edge.rig;
    Rig::ends_with(rig.server(), Signal::TERM).await;

    let words: BTreeSet<_> =
        AuditLog::of(&rig).lines().iter().map(|line| note(line, "log").to_owned()).collect();
    assert!(words.contains("failed") && words.contains("healed"), "{words:?}");
    assert_eq!(verify(&rig).await["open"], 0);
}

/// A server does not continue an audit log that was changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_servers_running_exchanges_end_as_unknown_in_the_audit_log() {
    let mut edge = FakeEdge::start(HttpVersion::Http1).await;
    let feed = WatchFeed::new();
    edge.fake.otherwise(Behaviour::Watch(feed));
    let mut caller = Http1Caller::dial(&edge.rig).await;
    caller.write(head("GET", WATCH, "")).await;
    caller.read_head().await;
    let watched = last(&edge, 0).await;

    edge.rig.kill_server();
    edge.rig.start_server().await;

    let completion = completed(&edge.rig, &watched).await;
    assert_eq!(note(&completion, "end-reason"), "unknown");
    verify(&edge.rig).await;
    assert_eq!(Rig::ends_with(edge.rig.server(), Signal::TERM).await, Some(0));
    let file = directory(&edge.rig).join("audit-00000000000000000001.log");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("token:tess", "token:tusk", 1)).unwrap();
    let output = edge.rig.tombolo_fails(&[
        "audit",
        "verify",
        "server.state/audit",
        "--key",
        "server.state/audit-chain.key",
    ]);
    assert!(output.await.contains("does not match its MAC"));
    let ended = edge.rig.start_server_and_fail().await;
    assert_eq!(ended, Some(1));
    assert!(edge.rig.server_log().contains("not as it was written"), "{}", edge.rig.server_log());
}

/// The person who runs the server is audited by the user ID of the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_at_the_admin_socket_are_audited() {
    let edge = FakeEdge::start(HttpVersion::Http1).await;
    edge.rig.tombolo(&["clusters", "--socket", "admin/admin.sock"]).await;

    let log = AuditLog::of(&edge.rig);

    let asked = log.lines().iter().find(|line| note(line, "listener") == "admin");
    let asked = asked.unwrap_or_else(|| panic!("{log:?}"));
    assert_eq!((note(asked, "decision"), note(asked, "detail")), ("allow", "the clusters"));
    assert!(asked["user"]["username"].as_str().is_some_and(|name| name.starts_with("uid:")), "{asked}");
}

/// Only changes that add something need the audit log first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_works_while_the_audit_log_cannot_be_written() {
    let edge = FakeEdge::start_server_with("audit: { maxFileBytes: 1048576, filesKept: 5 }").await;
    edge.fake.otherwise(Behaviour::Answer(Answer::json(200, "{}")));
    let away = directory(&edge.rig).with_extension("away");
    fs::rename(directory(&edge.rig), &away).unwrap();
    until_full(&edge.rig).await;

    let made = edge.rig.tombolo_fails(&["cluster", "create", "edge-b", "--socket", "admin/admin.sock"]).await;
    assert!(made.contains("audit log"), "{made}");
    let words = ["agent", "revoke", "--cluster", "edge-a", "--yes", "--socket", "admin/admin.sock"];
    edge.rig.tombolo(&words).await;
    edge.rig.logged("edge-a.log", 0, "certificate was revoked").await;

    fs::rename(&away, directory(&edge.rig)).unwrap();
    edge.rig.ready(edge.rig.probes()).await;
    let log = AuditLog::of(&edge.rig);
    let revocations: Vec<_> = log.lines().iter().filter(|line| line["verb"] == "revoke").collect();
    let [revoked] = revocations[..] else { panic!("{log:?}") };
    assert_eq!(
        (note(revoked, "detail"), &revoked["responseStatus"]["code"]),
        ("all agents of cluster edge-a", &200.into())
    );
    verify(&edge.rig).await;
}

#[ignore = "soak: waits for the minute that exchanges may run unrecorded"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_exchanges_end_after_too_long_without_an_audit_log() {
    let edge = FakeEdge::start_server_with("audit: { maxFileBytes: 1048576, filesKept: 5 }").await;
    let feed = WatchFeed::new();
    edge.fake.otherwise(Behaviour::Answer(Answer::json(200, "{}")));
    edge.fake.on("/api/v1/pods", Behaviour::Watch(feed));
    let mut live = Http1Caller::dial(&edge.rig).await;
    live.write(head("GET", WATCH, "")).await;
    live.read_head().await;
    let watched = last(&edge, 0).await;
    let away = directory(&edge.rig).with_extension("away");

    fs::rename(directory(&edge.rig), &away).unwrap();
    until_full(&edge.rig).await;
    let (_, end) = timeout(Duration::from_secs(120), live.read_to_end()).await.unwrap();
    assert!(end.is_err(), "cut off, and no clean end");

    fs::rename(&away, directory(&edge.rig)).unwrap();
    edge.rig.ready(edge.rig.probes()).await;
    let completion = completed(&edge.rig, &watched).await;
    assert_eq!(note(&completion, "end-reason"), "audit_failed");
    verify(&edge.rig).await;
}

/// Sends requests until the log's file is full and the next cannot be begun. Returns the first answer that
/// reports it.
async fn until_full(rig: &Rig) -> tests::rig::Reply {
    let long = format!("{POD}-{}", "x".repeat(15 * 1024));
    let refused = async {
        loop {
            let reply = rig.ask_with_token("GET", &long, &[]).await;
            if reply.status != 200 {
                return reply;
            }
        }
    };
    timeout(SOON, refused).await.expect("a file is full")
}

/// The index of the upgrade in [`ended_in_all_ways`].
const UPGRADE: usize = 4;

/// Exchanges that end in one way each, and the reasons that the log must give for them.
async fn ended_in_every_way(edge: &mut FakeEdge) -> Vec<(String, &'static str)> {
    let mut expected = Vec::new();

    // Complete exchanges by both versions of HTTP, with a body in either direction.
    edge.fake.otherwise(Behaviour::Answer(Answer::json(200, "x".repeat(100_000))));
    for _ in 0..5 {
        let reply = edge.rig.ask_with_token("GET", POD, &[]).await;
        assert_eq!(reply.status, 200);
    }
    let mut http2 = Http2Caller::dial(&edge.rig).await.with_token();
    let (answer, mut body) = http2.send("PUT", POD, &[], false);
    send_all(&mut body, Bytes::from(vec![b'u'; 50_000]), true).await.unwrap();
    let answer = timeout(SOON, answer).await.unwrap().unwrap();
    tests::caller::read_to_end(answer.into_body()).await.1.unwrap();
    expected.push((last(edge, 5).await, "clean"));

    // The API server breaks off.
    let feed = WatchFeed::new();
    edge.fake.otherwise(Behaviour::Watch(feed.clone()));
    let mut caller = Http1Caller::dial(&edge.rig).await;
    caller.write(head("GET", POD, "")).await;
    caller.read_head().await;
    edge.fake.drop_connections();
    assert!(caller.read_to_end().await.1.is_err());
    expected.push((last(edge, 6).await, "upstream_reset"));

    // The caller hangs up: before an answer, and in a watch.
    edge.fake.otherwise(Behaviour::NeverAnswer);
    let mut caller = Http1Caller::dial(&edge.rig).await;
    caller.write(head("GET", POD, "")).await;
    expected.push((last(edge, 7).await, "client_cancel"));
    drop(caller);
    edge.fake.otherwise(Behaviour::Watch(feed.clone()));
    let mut caller = Http1Caller::dial(&edge.rig).await;
    caller.write(head("GET", WATCH, "")).await;
    caller.read_head().await;
    expected.push((last(edge, 8).await, "client_cancel"));
    drop(caller);

    // An upgrade, whose bytes are counted and not kept.
    edge.fake.otherwise(Behaviour::Upgrade { pause: Duration::ZERO, first: Bytes::new() });
    let mut caller = Http1Caller::dial(&edge.rig).await;
    caller.write(head("POST", EXEC, "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n")).await;
    assert!(caller.read_head().await.starts_with("HTTP/1.1 101 "));
    caller.write(b"what-is-typed").await;
    caller.read_exactly(13).await;
    caller.shut_down().await;
    caller.read_to_end().await.1.unwrap();
    expected.push((last(edge, 9).await, "clean"));

    // The agent dies.
    edge.fake.otherwise(Behaviour::Watch(feed));
    let mut caller = Http1Caller::dial(&edge.rig).await;
    caller.write(head("GET", "/clusters/edge-a/api/v1/namespaces/n/pods/p/log?follow=true", "")).await;
    caller.read_head().await;
    expected.push((last(edge, 10).await, "agent_lost"));
    edge.kill_agent().await;
    let (rest, _) = caller.read_to_end().await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "a last chunk");
    expected
}

/// The id of the request that arrives as the fake's next behind `before` others.
async fn last(edge: &FakeEdge, before: usize) -> String {
    let before = u64::try_from(before).unwrap();
    let request = edge.fake.wait_for_request(SOON, |request| request.id == before).await.unwrap();
    audit_id(&request).to_owned()
}

fn audit_id(request: &RecordedRequest) -> &str {
    let [id] = request.header("audit-id")[..] else { panic!("one Audit-ID: {request:?}") };
    id
}

/// Waits for the completion of an exchange.
async fn completed(rig: &Rig, audit_id: &str) -> Value {
    AuditLog::found(rig, |log| match log.about(audit_id).completions()[..] {
        [completion] => Some(completion.clone()),
        _ => None,
    })
    .await
}

fn number(line: &Value, name: &str) -> u64 {
    note(line, name).parse().unwrap_or_else(|_| panic!("{name}: {line}"))
}
