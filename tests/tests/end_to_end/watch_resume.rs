//! Watches outlive their tunnels: they resume over the next one where no event can be missed, and otherwise
//! end with an error.

mod ends;
mod expired_certificate;
mod real_api_server;
mod site;
mod stopping_agent;

use std::time::Duration;

use serde_json::Value;
use tests::check::watch_report::WatchReport;
use tests::fake_api::{Answer, Behaviour, Cut, HttpVersion, Store, WatchFeed};
use tests::rig::ApiServer;
use tests::rig::policy::{allow_all, may_assume};

use site::{PATH, Site};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_whose_agent_was_killed_goes_on_unnoticed() {
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let mut site = Site::start(version, "").await;
        let store = site.store();
        store.put("a", "1");
        let (mut reflector, mut watch) = site.reflect("&labelSelector=x%3Dy&timeoutSeconds=900").await;
        store.put("b", "2");
        watch.until("\"b\"").await;

        site.edge.kill_agent().await;
        store.put("c", "3");
        store.delete("a");
        watch.until("DELETED").await;

        site.edge.kill_agent().await;
        let last = store.put("b", "4");
        watch.until(&last.to_string()).await;

        reflector.take(&watch.take());
        let found = WatchReport::of(&reflector, &store.emitted());
        assert!(found.is_right(), "{found:?}");
        assert_eq!(reflector.bookmarks(), 0, "nobody asked for one");
        assert_eq!(site.resumed().await, 2.0);
        assert_eq!(site.parked().await, 0.0);
    }
}

/// It comes back without the initial events that made up its start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_resumes_after_the_last_event_or_bookmark() {
    let mut site = Site::start(HttpVersion::Http2, "").await;
    let store = site.store();
    store.put("b", "1");
    store.put("a", "1");
    let streamed = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch =
        site.watch(&format!("{streamed}&timeoutSeconds=900&fieldSelector=metadata.name%21%3Dz")).await;
    watch.until("initial-events-end").await;
    let first = site.asked().await;
    assert!(first[0].contains(streamed) && first[0].contains("timeoutSeconds=900"), "as it was: {first:?}");

    site.edge.kill_agent().await;
    let version = store.revision();
    let again = site.asked_times(2).await;

    let query = again[1].split_once('?').unwrap().1;
    let (rest, own) = query.split_once("&allowWatchBookmarks").unwrap();
    assert_eq!(rest, "watch=1&fieldSelector=metadata.name%21%3Dz");
    let seconds = own.strip_prefix(&format!("=true&resourceVersion={version}&timeoutSeconds=")).unwrap();
    assert!((1..900).contains(&seconds.parse::<u64>().unwrap()), "{own}");

    store.put("c", "2");
    watch.until("\"c\"").await;
    assert_eq!(watch.names(), ["a", "b", "", "c"], "the bookmark that was asked for is passed on");
    site.edge.kill_agent().await;
    let expected = format!("resourceVersion={}&", store.revision());
    assert!(site.asked_times(3).await[2].contains(&expected));
}

/// It does as long as policy permits that identity.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_an_assumed_identity_resumes_as_that_identity() {
    let mut site = Site::start(HttpVersion::Http2, "").await;
    let store = site.store();
    let holder = ("token", "token:tombolo:admins");
    let all = allow_all("holders", holder, &["*"]);
    let deputies = may_assume("deputies", holder, &["*"], "{ users: [bob], groups: [ops] }");
    site.edge.rig.put_policy(&[all.clone(), deputies]).await;
    let last = store.put("a", "1");
    let mut watch = site
        .watch_with(
            &format!("&resourceVersion={last}"),
            &[("impersonate-user", "bob"), ("impersonate-group", "ops")],
        )
        .await;
    store.put("b", "2");
    watch.until("\"b\"").await;

    site.edge.kill_agent().await;
    store.put("c", "3");
    watch.until("\"c\"").await;

    for request in site.edge.fake.requests() {
        assert_eq!(request.header("impersonate-user"), ["bob"], "{:?}", request.headers);
        assert_eq!(request.header("impersonate-group"), ["ops"]);
    }
    site.edge.rig.put_policy(&[all]).await;
    watch.until("PolicyChanged").await;
    assert_eq!(site.asked().await.len(), 2);
}

/// A watch with a resume point goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_without_a_resume_point_ends_with_its_tunnel() {
    let mut site = Site::start(HttpVersion::Http2, "").await;
    let store = site.store();
    store.put("b", "1");
    store.put("a", "1");
    let mut unsafe_watch = site.watch("&resourceVersion=0").await;
    unsafe_watch.until("\"b\"").await;

    site.edge.kill_agent().await;

    assert!(unsafe_watch.end().await.is_err(), "an honest error");
    assert_eq!(site.ended("no_safe_point").await, 1.0);

    let mut safe_watch = site.watch("&resourceVersion=0").await;
    safe_watch.until("\"b\"").await;
    store.bookmark();
    // The bookmark is kept back, and what comes behind it comes behind it.
    store.put("c", "1");
    safe_watch.until("\"c\"").await;
    site.edge.kill_agent().await;
    store.put("d", "1");
    safe_watch.until("\"d\"").await;
    assert_eq!(safe_watch.names(), ["a", "b", "c", "d"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_the_api_server_ends_or_breaks_is_not_resumed() {
    let site = Site::start(HttpVersion::Http2, "").await;
    let feed = WatchFeed::new();
    site.edge.fake.on(PATH, Behaviour::Watch(feed.clone()));
    let mut ends = site.watch("&resourceVersion=5").await;
    let mut breaks = site.watch("&resourceVersion=5&x=2").await;
    feed.push("{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"7\"}}}\n");
    ends.until("\"a\"").await;
    breaks.until("\"a\"").await;

    feed.push("{\"type\":\"ADD");
    site.edge.fake.drop_connections();
    assert!(breaks.end().await.is_err() && ends.end().await.is_err());

    let mut ends = site.watch("&resourceVersion=5").await;
    feed.push("{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"b\",\"resourceVersion\":\"7\"}}}\n");
    ends.until("\"b\"").await;
    feed.end();
    assert!(ends.end().await.is_ok());

    assert_eq!(site.asked().await.len(), 3, "none was asked for twice");
    assert_eq!((site.resumed().await, site.ended("no_safe_point").await), (0.0, 0.0));
}

/// The API server would have sent the same event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_version_on_resumption_is_an_error_event() {
    let mut site = Site::start(HttpVersion::Http2, "").await;
    let store = site.store();
    store.put("a", "1");
    let (_, mut watch) = site.reflect("").await;
    site.stop_agent().await;
    site.parked_are(1.0).await;
    store.put("b", "1");
    let last = store.put("b", "2");
    store.compact(last);

    site.edge.kill_agent().await;

    assert!(watch.end().await.is_ok());
    let event: Value = serde_json::from_slice(&watch.take()).unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&"ERROR".into(), &410.into()));
}

/// The error event has the caller's encoding.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_no_watch_becomes_one_error_event() {
    let gone = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"gone"}"#;
    let json = |status, body: &str| Answer::json(status, body);
    let protobuf = "application/vnd.kubernetes.protobuf";
    for (content_type, answer, expected) in [
        ("application/json", json(410, gone), format!("{{\"type\":\"ERROR\",\"object\":{gone}}}\n")),
        ("application/json", json(500, "[]"), "answered 500".to_owned()),
        ("application/cbor-seq", json(410, gone), "answered 410".to_owned()),
        ("application/vnd.kubernetes.protobuf;stream=watch", json(403, gone), "answered 403".to_owned()),
        (
            "application/vnd.kubernetes.protobuf;stream=watch",
            Answer {
                status: 410,
                headers: vec![("Content-Type".to_owned(), protobuf.to_owned())],
                // An Unknown whose TypeMeta has the kind Status, and whose raw is a word.
                body: "k8s\0\x0a\x08\x12\x06Status\x12\x04gone".into(),
            },
            "\0\0\0\x1f\x0a\x05ERROR\x12\x16\x0a\x14k8s\0\x0a\x08\x12\x06Status\x12\x04gone".to_owned(),
        ),
    ] {
        let mut site = Site::start(HttpVersion::Http1, "").await;
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n");
        site.edge.fake.on(PATH, Behaviour::raw(head, Cut::Hold));
        let mut watch = site.watch("&resourceVersion=5").await;
        site.asked_times(1).await;
        site.edge.fake.on(PATH, Behaviour::Answer(answer));

        site.edge.kill_agent().await;

        assert!(watch.end().await.is_ok());
        let got = String::from_utf8_lossy(&watch.take()).into_owned();
        let is_right =
            if expected.starts_with("answered") { got.contains(&expected) } else { got == expected };
        assert!(is_right, "{content_type}: {got:?}");
        assert_eq!(site.ended("answered").await, 1.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_watch_whose_caller_disconnects_is_freed() {
    let mut site = Site::start(HttpVersion::Http2, "").await;
    site.store().put("a", "1");
    let by_stream = site.reflect("").await;
    let by_connection = site.reflect_over_http1("").await;
    site.stop_agent().await;
    site.parked_are(2.0).await;

    drop(by_stream);
    site.parked_are(1.0).await;
    drop(by_connection);

    site.parked_are(0.0).await;
    site.edge.rig.measured("tombolo_server_requests_active{verb=\"watch\"}", |count| count == 0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_watches_of_a_cluster_are_limited() {
    let mut site = Site::start(HttpVersion::Http2, "watches: { perCluster: 2 }").await;
    let store = site.store();
    store.put("a", "1");
    let mut watches = [site.reflect("").await.1, site.reflect("").await.1, site.reflect("").await.1];

    site.stop_agent().await;
    site.edge
        .rig
        .measured("tombolo_server_watches_ended_total{reason=\"no_slot\"}", |count| count == 1.0)
        .await;
    site.edge.kill_agent().await;
    store.put("b", "1");

    let mut errors = 0;
    for watch in &mut watches {
        if watch.until_either("\"b\"", "ERROR").await {
            errors += 1;
        }
    }
    assert_eq!(errors, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_is_too_large_passes_and_its_watch_ends_with_its_tunnel() {
    let mut site = Site::start(HttpVersion::Http2, "watches: { eventBytesMax: 4096 }").await;
    let store = site.store();
    store.put("a", "1");
    let (mut reflector, mut watch) = site.reflect("").await;
    store.put("large", &"x".repeat(100_000));
    store.put("z", "1");
    watch.until("\"z\"").await;

    site.edge.kill_agent().await;

    assert!(watch.end().await.is_err());
    reflector.take(&watch.take());
    assert!(WatchReport::of(&reflector, &store.emitted()).is_right());
    assert_eq!(site.ended("event_too_large").await, 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn switched_off_a_watch_passes_as_it_is_and_ends_with_its_tunnel() {
    let mut site = Site::start(HttpVersion::Http2, "watches: { resume: false }").await;
    let store = site.store();
    store.put("a", "1");
    let version = store.revision();
    let (_, mut watch) = site.reflect("").await;

    site.edge.kill_agent().await;

    assert!(watch.end().await.is_err());
    let asked = site.asked().await;
    assert!(asked[0].ends_with(&format!("?watch=1&resourceVersion={version}")), "{asked:?}");
    assert_eq!(asked.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_moves_from_a_silent_agent_to_an_established_one() {
    let site = Site::start(HttpVersion::Http2, "").await;
    let store = site.store();
    store.put("a", "1");
    let (mut reflector, mut watch) = site.reflect("").await;
    let api = ApiServer::of_fake(&site.edge.rig, &site.edge.fake);
    let more = "impersonation: { users: [\"*\"], groups: [\"*\"] }\nadvertise: [\"192.168.1.10:6443\"]";
    let _second = site.edge.rig.agent_of_id("edge-a", "second", &api, more).await;
    site.edge.rig.listed("edge-a", |item| item.contains("second")).await;

    site.freeze_agent();
    store.put("b", "1");
    watch.until("\"b\"").await;

    reflector.take(&watch.take());
    assert!(WatchReport::of(&reflector, &store.emitted()).is_right());
    assert_eq!(site.resumed().await, 1.0);
}

/// The limit for a condition of a test. Builds of other tests may run beside.
const SOON: Duration = Duration::from_secs(60);

type Reflected = (tests::check::reflector::Reflector, site::OpenWatch);

/// A collection behind the fake.
fn collection(site: &Site) -> Store {
    let store = Store::new();
    site.edge.fake.on(PATH, Behaviour::Store(store.clone()));
    store
}
