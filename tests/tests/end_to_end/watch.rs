//! A watch through the gateway, across the API server's ends of it: every event once, in order.

use std::time::{Duration, Instant};

use serde_json::Value;
use tests::dial::dial;
use tests::kube::EdgeCluster;
use tests::pki::Issued;
use tests::rig::{ApiServer, GROUP, Rig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

/// After so long the API server ends a watch, and the watcher begins another where it was.
const SERVER_ENDS_AFTER: Duration = Duration::from_secs(40);

/// The pause between two writes.
const WRITE_EVERY: Duration = Duration::from_millis(500);

/// The last events may be so late.
const LATE_MAX: Duration = Duration::from_secs(20);

/// The API server ends the watch, and the watcher begins the next one where it was. The events come in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_two_minutes_sees_every_event_once_across_its_ends() {
    watch_for(Duration::from_secs(120)).await;
}

/// The API server ends the watch, and the watcher begins the next one where it was. The events come in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: ten minutes"]
async fn a_watch_of_ten_minutes_sees_every_event_once_across_its_ends() {
    watch_for(Duration::from_secs(600)).await;
}

async fn watch_for(duration: Duration) {
    let site = WatchSite::start().await;
    let writing = async {
        let began = Instant::now();
        let mut written = Vec::new();
        while began.elapsed() < duration {
            let name = format!("tick-{:05}", written.len());
            site.create(&name).await;
            written.push(name);
            sleep(WRITE_EVERY).await;
        }
        written
    };
    let mut watcher = Watcher::new(&site, duration + LATE_MAX);
    // The watcher goes on until it has seen the last write, whose name comes at the end.
    let (written, ()) = tokio::join!(writing, watcher.watch());

    assert!(watcher.ends >= 2, "the server ended {} watches", watcher.ends);
    assert!(watcher.seen == written, "seen {:?}\nwritten {written:?}", watcher.seen);
}

/// A client like client-go's reflector: it lists, watches, and watches again from where it was.
struct Watcher<'site> {
    site: &'site WatchSite,
    deadline: Instant,
    resource_version: String,
    seen: Vec<String>,
    /// Watches that the server brought to a clean end.
    ends: usize,
}

impl<'site> Watcher<'site> {
    fn new(site: &'site WatchSite, lasts: Duration) -> Self {
        let deadline = Instant::now() + lasts;
        Self { site, deadline, resource_version: "0".to_owned(), seen: Vec::new(), ends: 0 }
    }

    async fn watch(&mut self) {
        while let Some(rest) = self.deadline.checked_duration_since(Instant::now()) {
            // Until the server's end, or ours.
            match timeout(rest, self.watch_once()).await {
                Ok(()) => self.ends += 1,
                Err(_) => return,
            }
        }
    }

    /// Runs one watch to its clean end. Anything else fails the test.
    async fn watch_once(&mut self) {
        let site = self.site;
        let mut stream = dial(site.rig.gateway(), &site.rig.server_ca(), &["http/1.1"], Some(&site.caller))
            .await
            .expect("the gateway takes a connection");
        let request = format!(
            "GET /clusters/edge-a/api/v1/namespaces/default/configmaps?watch=1&resourceVersion={}&timeoutSeconds={} \
             HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.resource_version,
            SERVER_ENDS_AFTER.as_secs(),
            site.rig.gateway()
        );
        stream.write_all(request.as_bytes()).await.expect("the request is sent");
        let mut chunks = Chunks::default();
        loop {
            let mut piece = vec![0; 16 * 1024];
            let read = stream.read(&mut piece).await.expect("a watch never breaks here");
            assert!(read > 0 || chunks.ended, "a watch ended without its last chunk");
            if read == 0 {
                return;
            }
            for line in chunks.take(&piece[..read]) {
                self.take(&line);
            }
        }
    }

    fn take(&mut self, line: &str) {
        let event: Value = serde_json::from_str(line).expect("an event is whole JSON");
        let metadata = &event["object"]["metadata"];
        self.resource_version = metadata["resourceVersion"].as_str().expect("a version").to_owned();
        let name = metadata["name"].as_str().unwrap_or_default();
        if event["type"] == "ADDED" && name.starts_with("tick-") {
            self.seen.push(name.to_owned());
        }
    }
}

/// Takes HTTP/1.1 apart: a head, chunks, and lines in them.
#[derive(Default)]
struct Chunks {
    bytes: Vec<u8>,
    head_is_over: bool,
    text: Vec<u8>,
    ended: bool,
}

impl Chunks {
    /// The lines that are complete now.
    fn take(&mut self, piece: &[u8]) -> Vec<String> {
        self.bytes.extend_from_slice(piece);
        if !self.head_is_over {
            let Some(end) = find(&self.bytes, b"\r\n\r\n") else { return Vec::new() };
            let head = String::from_utf8_lossy(&self.bytes[..end]).into_owned();
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            self.bytes.drain(..end + 4);
            self.head_is_over = true;
        }
        while let Some(end) = find(&self.bytes, b"\r\n") {
            let size = std::str::from_utf8(&self.bytes[..end]).expect("a chunk's size");
            let size = usize::from_str_radix(size, 16).expect("a chunk's size");
            if self.bytes.len() < end + 2 + size + 2 {
                break;
            }
            self.text.extend_from_slice(&self.bytes[end + 2..end + 2 + size]);
            self.bytes.drain(..end + 2 + size + 2);
            self.ended |= size == 0;
        }
        let mut lines = Vec::new();
        while let Some(end) = find(&self.text, b"\n") {
            lines.push(String::from_utf8(self.text[..end].to_vec()).expect("UTF-8"));
            self.text.drain(..=end);
        }
        lines
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

struct WatchSite {
    cluster: EdgeCluster,
    admin: Issued,
    rig: Rig,
    caller: Issued,
    _agent: tests::rig::Agent,
}

impl WatchSite {
    async fn start() -> Self {
        let cluster = EdgeCluster::start().await.expect("a cluster starts");
        let account = cluster.create_agent_account().await.expect("an account for the agent");
        let admin = cluster.issue_user("admin", &["system:masters"]);
        let rig = Rig::start().await;
        cluster.make_admins(GROUP).await;
        let agent = rig.agent("edge-a", &ApiServer::of(&cluster, &account)).await;
        let caller = rig.caller("alice", &[GROUP]).await;
        Self { cluster, admin, rig, caller, _agent: agent }
    }

    /// Creates a ConfigMap at the API server itself.
    async fn create(&self, name: &str) {
        let body = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}}}}"#);
        let request = format!(
            "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: api\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let reply = tests::rig::ask_raw(
            self.cluster.address(),
            self.cluster.ca_pem(),
            Some(&self.admin),
            request.as_bytes(),
        );
        let reply = reply.await.expect("the API server answers");
        assert_eq!(reply.status, 201, "{}", reply.body);
    }
}
