//! The fake API server's collection lists and watches as Kubernetes does, and its gates and cut-offs are at
//! their points.

use std::time::Duration;

use serde_json::Value;
use tests::dial::dial;
use tests::fake_api::{Answer, Behaviour, Cut, FakeApi, FakeApiOptions, HttpVersion, Moment, Store};
use tests::rig::{Reply, ask, ask_raw};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PATH: &str = "/api/v1/namespaces/default/configmaps";
const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_list_names_the_version_from_which_a_watch_misses_nothing() {
    let (fake, store) = setup().await;
    store.put("b", "1");
    let last = store.put("a", "2");

    let list: Value = serde_json::from_str(&get(&fake, "").await.body).unwrap();
    let names: Vec<&Value> =
        list["items"].as_array().unwrap().iter().map(|one| &one["metadata"]["name"]).collect();
    assert_eq!(names, ["a", "b"], "sorted by key");
    assert_eq!(list["metadata"]["resourceVersion"], last.to_string());

    store.put("b", "3");
    store.delete("a");
    let events = watch(&fake, &format!("&resourceVersion={last}")).await;
    assert_eq!(kinds(&events), ["MODIFIED b", "DELETED a"]);
    let versions: Vec<u64> = store.emitted().iter().map(|one| one.revision).collect();
    assert_eq!(versions, [101, 102, 103, 104]);
}

#[tokio::test]
async fn a_watch_without_a_version_begins_with_what_is_there_sorted_by_key() {
    let (fake, store) = setup().await;
    store.put("b", "1");
    store.put("a", "2");
    for query in ["", "&resourceVersion=0"] {
        assert_eq!(kinds(&watch(&fake, query).await), ["ADDED a", "ADDED b"], "{query}");
    }
}

#[tokio::test]
async fn streamed_initial_events_end_with_the_bookmark_that_says_so() {
    let (fake, store) = setup().await;
    store.put("a", "1");
    let query = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let events = watch(&fake, query).await;
    assert_eq!(kinds(&events), ["ADDED a", "BOOKMARK "]);
    assert_eq!(events[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(events[1]["object"]["metadata"]["resourceVersion"], store.revision().to_string());
}

#[tokio::test]
async fn a_compacted_version_is_410_inside_a_200() {
    let (fake, store) = setup().await;
    store.put("a", "1");
    let version = store.put("a", "2");
    store.compact(version);

    let reply = get(&fake, "?watch=1&resourceVersion=100").await;
    assert_eq!((reply.status, reply.is_clean), (200, true));
    let event: Value = serde_json::from_str(reply.body.lines().nth(1).unwrap()).unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&"ERROR".into(), &410.into()));
    assert_eq!(kinds(&watch(&fake, &format!("&resourceVersion={version}")).await), [""; 0]);
}

#[tokio::test]
async fn bookmarks_reach_those_alone_who_allow_them() {
    for (query, expected) in [("&allowWatchBookmarks=true", vec!["BOOKMARK "]), ("", vec![])] {
        let (fake, store) = setup().await;
        let version = store.put("a", "1");
        let query = format!("&resourceVersion={version}{query}");
        let (events, ()) = tokio::join!(watch(&fake, &query), async {
            fake.wait_for_request(SOON, |request| request.target.contains("watch")).await.unwrap();
            store.bookmark();
        });
        assert_eq!(kinds(&events), expected);
    }
}

#[tokio::test]
async fn a_write_is_there_for_readers_and_counted() {
    let (fake, store) = setup().await;
    for (method, path) in [("POST", PATH.to_owned()), ("PATCH", format!("{PATH}/one"))] {
        let body = format!(r#"{{"metadata":{{"name":"one"}},"data":{{"mark":"{method}"}}}}"#);
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let reply = ask_raw(fake.address(), fake.ca_pem(), None, head.as_bytes()).await.unwrap();
        assert!(reply.body.contains(method), "{reply:?}");
        assert_eq!(store.times_written(method), 1);
    }
    assert!(get(&fake, "/one").await.body.contains("PATCH"));
    assert_eq!(get(&fake, "/two").await.status, 404);
}

/// The points are before the head, in the middle, and before the last byte.
#[tokio::test]
async fn a_gate_holds_an_answer_at_each_of_its_three_points() {
    let fake = FakeApi::start_http1().await.unwrap();
    fake.otherwise(Behaviour::json("0123456789"));
    for (moment, body) in
        [(Moment::BeforeHead, None), (Moment::MidBody, Some("01234")), (Moment::AtTheEnd, Some("012345678"))]
    {
        let path = format!("/{moment:?}");
        let gate = fake.hold(&path, moment);
        let mut peer = dial(fake.address(), fake.ca_pem(), &["http/1.1"], None).await.unwrap();
        peer.write_all(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).await.unwrap();
        gate.reached(SOON).await.unwrap();
        let mut text = String::new();
        while let Some(body) = body
            && !text.ends_with(body)
        {
            read_some(&mut peer, &mut text).await;
        }
        // Nothing more comes, because it waits at the gate.
        assert!(
            tokio::time::timeout(Duration::from_millis(50), read_some(&mut peer, &mut text)).await.is_err()
        );
        gate.open();
        while !text.ends_with("0123456789") {
            read_some(&mut peer, &mut text).await;
        }
    }
}

#[tokio::test]
async fn a_watch_is_held_in_the_middle_of_an_event_or_between_two() {
    let mut sent_bytes = Vec::new();
    let mut line_bytes = 0;
    for moment in [Moment::MidBody, Moment::AtTheEnd] {
        let (fake, store) = setup().await;
        let gate = fake.hold(&format!("{PATH}?watch"), moment);
        store.put("a", "1");
        store.put("b", "1");
        let (events, seen) = tokio::join!(watch(&fake, "&resourceVersion=100"), async {
            gate.reached(SOON).await.unwrap();
            let sent = fake.connections()[0].sent_bytes;
            gate.open();
            sent
        });
        assert_eq!(kinds(&events), ["ADDED a", "ADDED b"]);
        sent_bytes.push(seen);
        line_bytes = events[0].to_string().len() as u64 + 1;
    }
    assert_eq!(sent_bytes[1] - sent_bytes[0], line_bytes - line_bytes / 2, "half an event, and a whole one");
}

#[tokio::test]
async fn a_last_answer_is_complete_and_then_the_connection_is_gone() {
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let options = FakeApiOptions { versions: vec![version], ..FakeApiOptions::default() };
        let fake = FakeApi::start_with(options).await.unwrap();
        fake.otherwise(Behaviour::Last { answer: Answer::json(200, "whole"), cut: Cut::Close });
        if version == HttpVersion::Http1 {
            let head = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
            let reply = ask_raw(fake.address(), fake.ca_pem(), None, head).await.unwrap();
            assert_eq!((reply.body.as_str(), reply.is_clean), ("whole", false));
        } else {
            let (mut sender, driver) = http2(&fake).await;
            let (answer, _) = sender.send_request(request("/"), true).unwrap();
            let mut body = answer.await.unwrap().into_body();
            let mut text = Vec::new();
            while let Some(data) = body.data().await {
                text.extend_from_slice(&data.expect("the answer ends before the connection does"));
            }
            assert_eq!(text, b"whole");
            drop(driver.await); // It ends, however.
        }
        assert!(fake.requests()[0].answered.is_some());
    }
}

#[tokio::test]
async fn a_goaway_in_flight_lets_what_runs_finish_and_takes_nothing_new() {
    let fake = FakeApi::start().await.unwrap();
    fake.otherwise(Behaviour::json("whole"));
    let gate = fake.hold("/held", Moment::MidBody);
    let (mut sender, driver) = http2(&fake).await;
    let (answer, _) = sender.send_request(request("/held"), true).unwrap();
    gate.reached(SOON).await.unwrap();

    fake.send_goaway();
    let mut body = answer.await.unwrap().into_body();
    while sender.send_request(request("/new"), true).is_ok_and(|_| true) {
        tokio::task::yield_now().await; // Until the end has arrived.
    }
    gate.open();

    let mut text = Vec::new();
    while let Some(data) = body.data().await {
        text.extend_from_slice(&data.unwrap());
    }
    assert_eq!(text, b"whole");
    drop(driver.await);
}

#[tokio::test]
async fn bytes_of_both_directions_are_counted_whatever_the_version() {
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let options = FakeApiOptions { versions: vec![version], ..FakeApiOptions::default() };
        let fake = FakeApi::start_with(options).await.unwrap();
        fake.otherwise(Behaviour::json("x".repeat(5000)));
        if version == HttpVersion::Http1 {
            ask(fake.address(), fake.ca_pem(), None, "GET", "/", &[]).await.unwrap();
        } else {
            let (mut sender, _driver) = http2(&fake).await;
            let (answer, _) = sender.send_request(request("/"), true).unwrap();
            let mut body = answer.await.unwrap().into_body();
            while body.data().await.is_some() {}
        }
        let connection = &fake.connections()[0];
        assert!(connection.sent_bytes > 5000 && connection.received_bytes == connection.bytes.len() as u64);
        assert!(connection.received_bytes > 0);
    }
}

async fn setup() -> (FakeApi, Store) {
    let fake = FakeApi::start_http1().await.unwrap();
    let store = Store::new();
    fake.on(PATH, Behaviour::Store(store.clone()));
    (fake, store)
}

async fn get(fake: &FakeApi, rest: &str) -> Reply {
    ask(fake.address(), fake.ca_pem(), None, "GET", &format!("{PATH}{rest}"), &[]).await.unwrap()
}

/// The events of a watch of one second, which ends cleanly.
async fn watch(fake: &FakeApi, query: &str) -> Vec<Value> {
    let reply = get(fake, &format!("?watch=1&timeoutSeconds=1{query}")).await;
    assert!(reply.is_clean && reply.body.ends_with("0\r\n\r\n"), "{reply:?}");
    without_chunks(&reply.body).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn without_chunks(body: &str) -> String {
    let (mut text, mut rest) = (String::new(), body);
    while let Some((size, behind)) = rest.split_once("\r\n") {
        let (chunk, behind) = behind.split_at(usize::from_str_radix(size, 16).unwrap());
        text.push_str(chunk);
        rest = behind.strip_prefix("\r\n").unwrap();
    }
    text
}

fn kinds(events: &[Value]) -> Vec<String> {
    let one = |event: &Value| {
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
        format!("{} {name}", event["type"].as_str().unwrap())
    };
    events.iter().map(one).collect()
}

async fn read_some(peer: &mut (impl AsyncReadExt + Unpin), text: &mut String) {
    let mut piece = [0; 256];
    let read = peer.read(&mut piece).await.unwrap();
    assert!(read > 0, "an end after {text:?}");
    text.push_str(std::str::from_utf8(&piece[..read]).unwrap());
}

type Http2 = (h2::client::SendRequest<bytes::Bytes>, tokio::task::JoinHandle<Result<(), h2::Error>>);

async fn http2(fake: &FakeApi) -> Http2 {
    let stream = dial(fake.address(), fake.ca_pem(), &["h2"], None).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    (sender, tokio::spawn(connection))
}

fn request(path: &str) -> http::Request<()> {
    http::Request::get(format!("https://fake.example{path}")).body(()).unwrap()
}
