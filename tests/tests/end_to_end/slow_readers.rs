//! Slow readers delay no other caller, and past a budget the oldest ones are ended.

use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use tests::caller::{GATEWAY, Http1Caller, Http2Caller, SOON, head, read_to_end, send_all};
use tests::fake_api::{Answer, Behaviour, FakeApi, HttpVersion, WatchFeed};
use tests::fake_edge::{FakeEdge, add_cluster};
use tests::rig::Agent;
use tokio::time::{sleep, timeout};

/// Number of slow readers that a tunnel tolerates: 32 MiB in windows of 1.25 MB.
const TOLERATED: usize = 26;

/// The memory that each of them may hold: the tunnel's window, of which quinn keeps complete packets and more
/// of them while they are few; hyper's buffers on both sides; TLS's; the agent's window; and the allocator's
/// losses between these.
const SLOW_READER_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The memory that the allocators and everything beside the exchanges may take in addition.
const SLACK_BYTES: u64 = 64 * 1024 * 1024;

const SLOW_READERS: &str = "tombolo_server_slow_readers";
const ENDED: &str = "tombolo_server_request_terminations_total{reason=\"slow_reader\"}";

/// More than all windows on the path hold: a reader of so much must really read.
const MUCH: usize = 4 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_and_thirteen_slow_readers_disturb_nobody_and_are_tolerated() {
    let setup = SlowReaderSetup::start(HttpVersion::Http2).await;
    for count in [1, 13] {
        let mut slow = setup.start_slow_readers(count).await;
        setup.count(SLOW_READERS, count).await;

        for _ in 0..50 {
            setup.bystanders_are_served().await;
        }

        assert_eq!(setup.edge.rig.metric(setup.edge.rig.probes(), ENDED).await, 0.0);
        setup.count(SLOW_READERS, count).await;
        for caller in &mut slow {
            caller.read_on(MUCH).await.unwrap();
        }
        drop(slow);
        setup.count(SLOW_READERS, 0).await;
    }
}

/// The newest slow readers stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_the_budget_the_oldest_slow_readers_are_cut_off() {
    const OLD: usize = 20;
    let setup = SlowReaderSetup::start(HttpVersion::Http1).await;
    let old = setup.start_slow_readers(OLD).await;
    setup.count(SLOW_READERS, OLD).await;
    let began_later = setup.edge.fake.requests().len();

    let new = setup.start_slow_readers(TOLERATED).await;
    setup.count(ENDED, OLD).await;
    setup.count(SLOW_READERS, TOLERATED).await;

    for request in &setup.edge.fake.requests()[..began_later] {
        setup.edge.fake.wait_for_hangup(request.id, SOON).await.unwrap();
    }
    for caller in old {
        caller.finds_itself_cut_off().await;
    }
    for mut caller in new {
        caller.read_on(MUCH).await.unwrap();
    }
    let log = setup.edge.rig.server_log();
    assert_eq!(log.matches("ended an exchange whose caller does not read its answer").count(), OLD);
    setup.bystanders_are_served().await;
}

/// First a hundred callers never read, then a hundred more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_slow_readers_disturb_nobody_within_the_memory_budget() {
    const CALLERS: usize = 100;
    const ROUNDS: usize = 3;
    // A hundred at a time fill their windows before the first of them is ended.
    const BUDGET_BYTES: u64 = CALLERS as u64 * SLOW_READER_BYTES_MAX + SLACK_BYTES;
    let mut setup = SlowReaderSetup::start(HttpVersion::Http2).await;
    setup.bystanders_are_served().await;
    let (server, agent) = setup.memory();
    let mut slow = Vec::new();

    for round in 1..=ROUNDS {
        slow.extend(setup.start_slow_readers(CALLERS).await);
        let ended = (round * CALLERS - TOLERATED) as f64;
        while setup.edge.rig.metric(setup.edge.rig.probes(), ENDED).await < ended {
            setup.bystanders_are_served().await;
        }
        setup.count(SLOW_READERS, TOLERATED).await;
        for _ in 0..20 {
            setup.bystanders_are_served().await;
        }

        assert_eq!(setup.edge.rig.metric(setup.edge.rig.probes(), ENDED).await, ended);
        let (server, agent) = (setup.memory().0 - server, setup.memory().1 - agent);
        eprintln!("{} callers who do not read: server {server}, agent {agent} bytes", round * CALLERS);
        assert!(server < BUDGET_BYTES, "the server has {server} bytes more than before");
        assert!(agent < BUDGET_BYTES, "the agent has {agent} bytes more than before");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_steady_reader_and_an_idle_watcher_are_never_ended() {
    const LENGTH: usize = 48 * 1024 * 1024;
    const ENOUGH: usize = 10;
    let setup = SlowReaderSetup::start(HttpVersion::Http2).await;
    let feed = WatchFeed::new();
    setup.edge.fake.on("/watch", Behaviour::Watch(feed.clone()));
    setup.edge.fake.on("/long", Behaviour::Answer(Answer::json(200, "l".repeat(LENGTH))));
    let mut watches = [setup.ask(true, "/watch").await, setup.ask(false, "/watch").await];
    feed.push("first\n");
    let mut slow = [setup.ask(true, "/long").await, setup.ask(false, "/long").await];

    let _slow = setup.start_slow_readers(TOLERATED + ENOUGH).await;
    let mut read = 0;
    while setup.edge.rig.metric(setup.edge.rig.probes(), ENDED).await < ENOUGH as f64 {
        for caller in &mut slow {
            caller.read_on(64 * 1024).await.unwrap();
        }
        read += 64 * 1024;
        sleep(Duration::from_millis(50)).await;
    }

    assert!(read < LENGTH, "the slow were not slow enough");
    for caller in &mut slow {
        caller.read_on(LENGTH - read).await.unwrap();
    }
    feed.push("second\n");
    for caller in &mut watches {
        caller.reads("second\n").await;
    }
    // A delay of the test itself makes steady readers count as slow ones for a moment, which costs others
    // their budget.
    let ended = setup.edge.rig.metric(setup.edge.rig.probes(), ENDED).await;
    assert!(ended <= (ENOUGH + slow.len()) as f64, "{ended} were ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgraded_slow_reader_is_counted_and_cut_off() {
    const UPGRADED: usize = 3;
    let setup = SlowReaderSetup::start(HttpVersion::Http1).await;
    let first = Bytes::from(vec![b'f'; 16 * 1024 * 1024]);
    setup.edge.fake.on("/api/v1", Behaviour::Upgrade { pause: Duration::ZERO, first });
    let mut upgraded = Vec::new();
    for _ in 0..UPGRADED {
        let mut caller = Http1Caller::dial_narrow(&setup.edge.rig).await;
        let lines = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        let path = in_cluster("/api/v1/namespaces/n/pods/p/exec?command=sh");
        caller.write(head("GET", &path, lines)).await;
        assert!(caller.read_head().await.starts_with("HTTP/1.1 101 "));
        upgraded.push(SlowReader::Http1(Box::new(caller)));
    }
    setup.count(SLOW_READERS, UPGRADED).await;

    let _new = setup.start_slow_readers(TOLERATED).await;
    setup.count(ENDED, UPGRADED).await;

    for caller in upgraded {
        caller.finds_itself_cut_off().await;
    }
}

/// The API server does not read it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_is_not_read_is_accepted_as_far_as_the_windows_go() {
    // Caller's stream at the gateway, tunnel's stream at the agent, what the agent holds for the API server,
    // and this API server's own window; and hyper's buffers between them.
    const WINDOWS_BYTES: usize = 256 * 1024 + 1_250_000 + 128 * 1024 + 1024 * 1024;
    const BUFFERS_BYTES: usize = 2 * 128 * 1024 + 2 * 64 * 1024;
    let setup = SlowReaderSetup::start(HttpVersion::Http2).await;
    setup.edge.fake.on("/deaf", Behaviour::Deaf);
    let mut caller = Http2Caller::dial(&setup.edge.rig).await;
    let (_answer, mut sending) = caller.send("POST", &in_cluster("/deaf"), &[], false);

    let mut sent = 0;
    let piece = Bytes::from(vec![b'u'; 16 * 1024]);
    while timeout(Duration::from_secs(3), send_all(&mut sending, piece.clone(), false)).await.is_ok() {
        sent += piece.len();
        assert!(sent <= WINDOWS_BYTES + BUFFERS_BYTES, "{sent} bytes were taken");
    }

    eprintln!("{sent} bytes of an upload were taken");
    assert!(sent > 1_250_000, "the windows were not used: {sent}");
    setup.bystanders_are_served().await;
}

/// A connection window that is large enough for all streams never makes one of them wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callers_window_affects_only_the_caller() {
    const WINDOW: u32 = 64 * 1024;
    let setup = SlowReaderSetup::start(HttpVersion::Http2).await;
    // HTTP/2's default lets all streams of a connection together have as much unread as one of them.
    let mut small = Http2Caller::dial(&setup.edge.rig).await;
    let (unread, _) = small.send("GET", &in_cluster("/endless"), &[], true);
    let unread = unread.await.unwrap().into_body();
    setup.count(SLOW_READERS, 1).await;
    let (held_up, _) = small.send("GET", &in_cluster("/small"), &[], true);
    let held_up = held_up.await.unwrap().into_body();
    // Its other connection, and everybody else's, go on meanwhile.
    setup.bystanders_are_served().await;
    // Reading on, or not wanting it any more, sets the caller's own streams free.
    drop(unread);
    let (read, end) = read_to_end(held_up).await;
    end.unwrap();
    assert_eq!(read, b"small");

    let mut large = Http2Caller::dial_windows(&setup.edge.rig, GATEWAY, None, WINDOW, 20 * WINDOW).await;
    large = large.with_token();
    let mut unread = Vec::new();
    for _ in 0..10 {
        let (answer, _) = large.send("GET", &in_cluster("/endless"), &[], true);
        unread.push(answer.await.unwrap().into_body());
    }
    setup.count(SLOW_READERS, 10).await;
    let answer = large.ask("GET", &in_cluster("/small"), &[]).await.unwrap();
    assert_eq!(answer.body(), "small");
}

fn in_cluster(path: &str) -> String {
    format!("/clusters/edge-a{path}")
}

/// Two clusters, one of them with callers that do not read.
struct SlowReaderSetup {
    edge: FakeEdge,
    _other: (FakeApi, Agent),
}

/// A caller that has an answer's head and does not read the body until asked.
enum SlowReader {
    Http1(Box<Http1Caller>),
    Http2(Http2Caller, RecvStream, Vec<u8>),
}

impl SlowReaderSetup {
    async fn start(version: HttpVersion) -> Self {
        let edge = FakeEdge::start(version).await;
        let other = add_cluster(&edge.rig, "edge-b", version).await;
        edge.fake.on("/endless", Behaviour::Endless(Bytes::from(vec![b'e'; 64 * 1024])));
        for fake in [&edge.fake, &other.0] {
            fake.on("/small", Behaviour::Answer(Answer::json(200, "small")));
        }
        Self { edge, _other: other }
    }

    /// This number of callers that do not read, each on a connection of its own, every other one over HTTP/2.
    async fn start_slow_readers(&self, count: usize) -> Vec<SlowReader> {
        let mut slow = Vec::new();
        for number in 0..count {
            slow.push(self.ask(number % 2 == 0, "/endless").await);
        }
        slow
    }

    async fn ask(&self, over_http2: bool, path: &str) -> SlowReader {
        if over_http2 {
            let mut caller = Http2Caller::dial(&self.edge.rig).await;
            let (answer, _) = caller.send("GET", &in_cluster(path), &[], true);
            let answer = timeout(SOON, answer).await.unwrap().unwrap();
            assert_eq!(answer.status(), 200);
            return SlowReader::Http2(caller, answer.into_body(), Vec::new());
        }
        let mut caller = Http1Caller::dial_narrow(&self.edge.rig).await;
        caller.write(head("GET", &in_cluster(path), "")).await;
        assert!(caller.read_head().await.starts_with("HTTP/1.1 200 "));
        SlowReader::Http1(Box::new(caller))
    }

    /// A get of this cluster and one of the other are answered.
    async fn bystanders_are_served(&self) {
        for cluster in ["edge-a", "edge-b"] {
            let path = format!("/clusters/{cluster}/small");
            let reply = self.edge.rig.ask_with_token("GET", &path, &[]).await;
            assert_eq!((reply.status, reply.body.as_str()), (200, "small"), "{cluster}");
        }
    }

    async fn count(&self, series: &str, count: usize) {
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        self.edge.rig.measured(series, |value| value == count as f64).await;
    }

    /// The resident memory of the server and of the agent.
    fn memory(&mut self) -> (u64, u64) {
        (self.edge.rig.server().resident_bytes(), self.edge.agent.process.resident_bytes())
    }
}

impl SlowReader {
    /// Reads so many bytes more.
    async fn read_on(&mut self, bytes: usize) -> Result<(), String> {
        match self {
            Self::Http1(caller) => {
                caller.try_read_exactly(bytes).await.map(drop).map_err(|error| error.to_string())
            }
            Self::Http2(_, body, unread) => {
                while unread.len() < bytes {
                    let data = timeout(SOON, body.data()).await.expect("more in time");
                    let data = data.ok_or("a clean end")?.map_err(|error| error.to_string())?;
                    let _ = body.flow_control().release_capacity(data.len()); // Fails only where the stream is gone.
                    unread.extend_from_slice(&data);
                }
                unread.drain(..bytes);
                Ok(())
            }
        }
    }

    /// Reads on until these bytes have come.
    async fn reads(&mut self, wanted: &str) {
        let mut seen = String::new();
        while !seen.contains(wanted) {
            seen.push_str(&match self {
                Self::Http1(caller) => String::from_utf8(caller.read_exactly(1).await).unwrap(),
                Self::Http2(_, body, _) => {
                    let data = timeout(SOON, body.data()).await.unwrap().unwrap().unwrap();
                    String::from_utf8(data.to_vec()).unwrap()
                }
            });
        }
    }

    /// Reads what is left on the way, behind which comes an error and no end.
    async fn finds_itself_cut_off(self) {
        match self {
            Self::Http1(mut caller) => {
                let (rest, end) = caller.read_to_end().await;
                assert!(!rest.ends_with(b"0\r\n\r\n"), "a last chunk");
                assert!(end.is_err(), "TLS ended as if all were said");
            }
            Self::Http2(_caller, body, _) => {
                let (_, end) = read_to_end(body).await;
                assert!(end.unwrap_err().is_reset(), "the stream is reset, and the connection lives on");
            }
        }
    }
}
