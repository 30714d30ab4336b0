//! A cluster with a fake API server, and callers that watch it.

use bytes::Bytes;
use h2::RecvStream;
use rustix::process::Signal;
use serde_json::Value;
use tests::caller::{Http1Caller, Http2Caller, head};
use tests::check::reflector::Reflector;
use tests::fake_api::{HttpVersion, Store};
use tests::fake_edge::{CLUSTER, FakeEdge, add_cluster};
use tests::rig::Rig;
use tokio::time::timeout;

use super::{Reflected, SOON, collection};

/// The collection that is watched.
pub(super) const PATH: &str = "/api/v1/namespaces/default/configmaps";

pub(super) struct Site {
    pub(super) edge: FakeEdge,
}

/// An open watch over HTTP/2.
pub(super) struct OpenWatch {
    body: RecvStream,
    got: Vec<u8>,
    _caller: Option<Http2Caller>,
}

impl Site {
    /// A cluster behind a server whose configuration ends with `more`.
    pub(super) async fn start(version: HttpVersion, more: &str) -> Self {
        let rig = Rig::start_with(more).await;
        let (fake, agent) = add_cluster(&rig, CLUSTER, version).await;
        Self { edge: FakeEdge { rig, fake, agent } }
    }

    /// A collection of objects to watch.
    pub(super) fn store(&self) -> Store {
        collection(self)
    }

    /// Begins a watch and waits for its head.
    pub(super) async fn watch(&self, query: &str) -> OpenWatch {
        self.watch_with(query, &[]).await
    }

    /// The same with further headers.
    pub(super) async fn watch_with(&self, query: &str, headers: &[(&str, &str)]) -> OpenWatch {
        let mut caller = Http2Caller::dial(&self.edge.rig).await;
        let watching = OpenWatch::begin_with(&mut caller, &target(query), headers).await;
        OpenWatch { _caller: Some(caller), ..watching }
    }

    /// Lists, and watches from there.
    pub(super) async fn reflect(&self, query: &str) -> Reflected {
        let (reflector, version) = self.listed().await;
        (reflector, self.watch(&format!("&resourceVersion={version}{query}")).await)
    }

    /// The same over HTTP/1.1, as far as its head.
    pub(super) async fn reflect_over_http1(&self, query: &str) -> Http1Caller {
        let (_, version) = self.listed().await;
        let mut caller = Http1Caller::dial(&self.edge.rig).await;
        caller.write(head("GET", &target(&format!("&resourceVersion={version}{query}")), "")).await;
        let head = caller.read_head().await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        caller
    }

    async fn listed(&self) -> (Reflector, u64) {
        let mut caller = Http2Caller::dial(&self.edge.rig).await;
        let list = caller.ask("GET", &format!("/clusters/{CLUSTER}{PATH}"), &[]).await.expect("an answer");
        let mut reflector = Reflector::default();
        reflector.list(list.body()).expect("a list");
        let version = reflector.started_at();
        (reflector, version)
    }

    /// The watches that the API server was asked for so far.
    pub(super) async fn asked(&self) -> Vec<String> {
        let requests = self.edge.fake.requests();
        requests.into_iter().map(|one| one.target).filter(|target| target.contains("watch=1")).collect()
    }

    /// The same once there are so many.
    pub(super) async fn asked_times(&self, count: usize) -> Vec<String> {
        let seen = std::sync::atomic::AtomicUsize::new(0);
        let is_last = |target: &str| {
            target.contains("watch=1") && seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1 == count
        };
        loop {
            let asked = self.asked().await;
            if asked.len() >= count {
                return asked;
            }
            seen.store(0, std::sync::atomic::Ordering::Relaxed);
            self.edge.fake.wait_for_request(SOON, |one| is_last(&one.target)).await.expect("a watch");
        }
    }

    /// Stops the agent at once: it notifies the server, and cuts off what runs.
    pub(super) async fn stop_agent(&mut self) {
        let agent = &mut self.edge.agent.process;
        agent.signal(Signal::TERM).expect("the agent runs");
        self.edge.rig.draining(self.edge.agent.probes).await;
        self.edge.agent.process.signal(Signal::TERM).expect("the agent runs");
        self.edge.agent.process.wait(SOON).await.expect("the agent ends");
    }

    /// Freezes the agent, which stays alive.
    pub(super) fn freeze_agent(&self) {
        self.edge.agent.process.signal(Signal::STOP).expect("the agent runs");
    }

    pub(super) async fn resumed(&self) -> f64 {
        self.edge.rig.metric(self.edge.rig.probes(), "tombolo_server_watches_resumed_total").await
    }

    pub(super) async fn parked(&self) -> f64 {
        self.edge.rig.metric(self.edge.rig.probes(), "tombolo_server_watches_parked").await
    }

    pub(super) async fn parked_are(&self, wanted: f64) {
        self.edge.rig.measured("tombolo_server_watches_parked", |count| count == wanted).await;
    }

    pub(super) async fn ended(&self, reason: &str) -> f64 {
        let series = format!("tombolo_server_watches_ended_total{{reason=\"{reason}\"}}");
        self.edge.rig.metric(self.edge.rig.probes(), &series).await
    }
}

impl OpenWatch {
    /// Begins a watch on a connection that outlives it, and waits for its head.
    pub(super) async fn begin(caller: &mut Http2Caller, target: &str) -> Self {
        Self::begin_with(caller, target, &[]).await
    }

    async fn begin_with(caller: &mut Http2Caller, target: &str, headers: &[(&str, &str)]) -> Self {
        let (answer, _) = caller.send("GET", target, headers, true);
        let answer = timeout(SOON, answer).await.expect("a head in time").expect("a head");
        assert_eq!(answer.status(), 200);
        Self { body: answer.into_body(), got: Vec::new(), _caller: None }
    }

    /// Reads until what has come has this text.
    pub(super) async fn until(&mut self, text: &str) {
        assert!(self.until_either(text, text).await);
    }

    /// Reads until one of these texts has come, and returns whether it is the first.
    pub(super) async fn until_either(&mut self, text: &str, other: &str) -> bool {
        loop {
            let got = String::from_utf8_lossy(&self.got);
            if got.contains(text) || got.contains(other) {
                return got.contains(text);
            }
            let more = self.more().await.expect("the watch goes on").expect("the watch is whole");
            self.got.extend_from_slice(&more);
        }
    }

    /// Reads to the end of the watch.
    pub(super) async fn end(&mut self) -> Result<(), h2::Error> {
        while let Some(more) = self.more().await {
            self.got.extend_from_slice(&more?);
        }
        Ok(())
    }

    /// The bytes that have come since the last call.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.got)
    }

    /// The names of the objects of all events so far, in order.
    pub(super) fn names(&self) -> Vec<String> {
        let lines = self.got.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let events = lines.map(|line| serde_json::from_slice::<Value>(line).expect("whole events"));
        events
            .map(|event| event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    async fn more(&mut self) -> Option<Result<Bytes, h2::Error>> {
        let more = timeout(SOON, self.body.data()).await.expect("something in time")?;
        if let Ok(bytes) = &more {
            // Fails only on a stream that is gone.
            let _ = self.body.flow_control().release_capacity(bytes.len());
        }
        Some(more)
    }
}

fn target(query: &str) -> String {
    format!("/clusters/{CLUSTER}{PATH}?watch=1{query}")
}
