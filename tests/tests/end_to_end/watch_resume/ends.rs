//! All ends of a watch: a break is told from an end, over both versions of HTTP.
//!
//! Over HTTP/1.1 a broken body has no last chunk, over HTTP/2 it has RST_STREAM and not END_STREAM. An ERROR
//! event of the server's own says the reason before that.

use rustix::process::Signal;
use serde_json::Value;
use tests::caller::{Http1Caller, head};
use tests::fake_api::{Behaviour, HttpVersion, WatchFeed};
use tests::rig::ApiServer;
use tests::rig::policy::allow_all;

use super::site::{OpenWatch, PATH, Site};

/// Two watches of the same collection.
struct WatchPair {
    http1: Http1Caller,
    http2: OpenWatch,
}

/// The end of a watch, with the events since the last read.
#[derive(Debug, PartialEq, Eq)]
enum WatchEnd {
    Clean(String),
    Broken(String),
}

impl WatchPair {
    async fn begin(site: &Site, query: &str) -> Self {
        let mut http1 = Http1Caller::dial(&site.edge.rig).await;
        let target = format!("/clusters/edge-a{PATH}?watch=1{query}");
        // So that a clean end is the connection's end, too.
        http1.write(head("GET", &target, "Connection: close\r\n")).await;
        let answered = http1.read_head().await;
        assert!(answered.starts_with("HTTP/1.1 200 "), "{answered}");
        assert!(answered.to_lowercase().contains("transfer-encoding: chunked"), "{answered}");
        Self { http1, http2: site.watch(query).await }
    }

    /// Reads until both have this text.
    async fn until(&mut self, text: &str) {
        self.http1.read_until(text).await;
        self.http2.until(text).await;
        self.http2.take();
    }

    /// Reads both to their ends.
    async fn ends(mut self) -> [WatchEnd; 2] {
        let (rest, end) = self.http1.read_to_end().await;
        let text = String::from_utf8_lossy(&rest).into_owned();
        let is_clean = end.is_ok() && text.ends_with("0\r\n\r\n");
        let over_http1 = if is_clean { WatchEnd::Clean(text) } else { WatchEnd::Broken(text) };
        let end = self.http2.end().await;
        let text = String::from_utf8_lossy(&self.http2.take()).into_owned();
        let over_http2 = match end {
            Ok(()) => WatchEnd::Clean(text),
            // A reset, or the end of the connection where the server ends.
            Err(_) => WatchEnd::Broken(text),
        };
        [over_http1, over_http2]
    }
}

impl WatchEnd {
    /// Broken off without a word.
    fn is_cut(&self) -> bool {
        matches!(self, Self::Broken(text) if !text.contains("ERROR"))
    }

    /// Broken off behind an ERROR event with this code.
    fn is_explained(&self, code: u16) -> bool {
        let Self::Broken(text) = self else { return false };
        let event = text.lines().find(|line| line.contains("\"ERROR\""));
        let event: Option<Value> = event.and_then(|line| serde_json::from_str(line).ok());
        event.is_some_and(|event| event["object"]["code"] == code)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_cannot_be_resumed_breaks_off_with_its_tunnel() {
    let mut site = Site::start(HttpVersion::Http1, "").await;
    let store = site.store();
    store.put("a", "1");
    let mut watches = WatchPair::begin(&site, "&resourceVersion=0").await;
    watches.until("\"a\"").await;

    site.edge.kill_agent().await;

    let ends = watches.ends().await;
    assert!(ends.iter().all(WatchEnd::is_cut), "{ends:?}");
    assert_eq!(site.ended("no_safe_point").await, 2.0);
}

/// Before, they ended as if nothing had happened: with no event, and cleanly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_watch_breaks_off_when_its_callers_time_has_passed() {
    let mut site = Site::start(HttpVersion::Http2, "").await;
    let version = site.store().put("a", "1");
    let watches = WatchPair::begin(&site, &format!("&resourceVersion={version}&timeoutSeconds=4")).await;

    site.stop_agent().await;

    let ends = watches.ends().await;
    assert!(ends.iter().all(WatchEnd::is_cut), "{ends:?}");
    assert_eq!(ends[1], WatchEnd::Broken(String::new()), "no event");
    assert_eq!((site.ended("timed_out").await, site.parked().await), (2.0, 0.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_watch_breaks_off_when_the_server_stops() {
    let mut site = Site::start(HttpVersion::Http2, "").await;
    let version = site.store().put("a", "1");
    let watches = WatchPair::begin(&site, &format!("&resourceVersion={version}")).await;
    site.stop_agent().await;
    site.parked_are(2.0).await;

    site.edge.rig.server().signal(Signal::TERM).expect("the server runs");

    let ends = watches.ends().await;
    assert!(ends.iter().all(WatchEnd::is_cut), "{ends:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_watch_at_its_limit_has_an_error_event_and_breaks_off() {
    let mut site = Site::start(HttpVersion::Http2, "watches: { limitSeconds: 4 }").await;
    let version = site.store().put("a", "1");
    let watches = WatchPair::begin(&site, &format!("&resourceVersion={version}")).await;

    site.stop_agent().await;

    let ends = watches.ends().await;
    assert!(ends.iter().all(|end| end.is_explained(503)), "{ends:?}");
    assert_eq!((site.ended("away").await, site.parked().await), (2.0, 0.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_forbidden_has_an_error_event_and_breaks_off() {
    let site = Site::start(HttpVersion::Http2, "").await;
    let store = site.store();
    let version = store.put("a", "1");
    let mut watches = WatchPair::begin(&site, &format!("&resourceVersion={version}")).await;
    store.put("b", "1");
    watches.until("\"b\"").await;

    site.edge.rig.put_policy(&[allow_all("others", ("client-certificate", "others"), &["*"])]).await;

    let ends = watches.ends().await;
    assert!(ends.iter().all(|end| end.is_explained(403)), "{ends:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_watch_breaks_off_at_the_deadline_of_a_stopping_server() {
    let mut site = Site::start(HttpVersion::Http2, "drainGraceSeconds: 2").await;
    let store = site.store();
    let version = store.put("a", "1");
    let mut watches = WatchPair::begin(&site, &format!("&resourceVersion={version}")).await;
    store.put("b", "1");
    watches.until("\"b\"").await;

    site.edge.rig.server().signal(Signal::TERM).expect("the server runs");

    let ends = watches.ends().await;
    assert!(ends.iter().all(WatchEnd::is_cut), "{ends:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_end_by_the_api_server_is_clean_also_after_resumption() {
    for resumes in [false, true] {
        let mut site = Site::start(HttpVersion::Http2, "").await;
        let feed = WatchFeed::new();
        site.edge.fake.on(PATH, Behaviour::Watch(feed.clone()));
        let mut watches = WatchPair::begin(&site, "&resourceVersion=5").await;
        if resumes {
            site.edge.kill_agent().await;
            site.asked_times(4).await;
        }
        feed.push(
            "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"7\"}}}\n",
        );
        watches.until("\"a\"").await;

        feed.end();

        let ends = watches.ends().await;
        assert!(ends.iter().all(|end| matches!(end, WatchEnd::Clean(_))), "{resumes}: {ends:?}");
    }
}

/// An agent may pass heartbeats and nothing larger.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_resumes_over_a_silent_tunnel_goes_on_over_another_one() {
    let mut site = Site::start(HttpVersion::Http2, "").await;
    let store = site.store();
    let version = store.put("a", "1");
    let mut watches = WatchPair::begin(&site, &format!("&resourceVersion={version}")).await;
    site.stop_agent().await;
    site.parked_are(2.0).await;

    // The resumed watches reach an agent that then answers nothing.
    site.edge.fake.on(PATH, Behaviour::NeverAnswer);
    let api = ApiServer::of_fake(&site.edge.rig, &site.edge.fake);
    let more = "impersonation: { users: [\"*\"], groups: [\"*\"] }\nadvertise: [\"192.168.1.10:6443\"]";
    let second = site.edge.rig.agent_of_id("edge-a", "second", &api, more).await;
    site.asked_times(4).await;
    second.process.signal(Signal::STOP).expect("the agent runs");
    site.edge.fake.on(PATH, Behaviour::Store(store.clone()));
    let _third = site.edge.rig.agent_of_id("edge-a", "third", &api, more).await;
    store.put("b", "1");

    watches.until("\"b\"").await;
}
