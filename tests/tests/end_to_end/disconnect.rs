//! A caller's disconnect ends its request at the API server, in every state of the request.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tests::caller::{Disconnect, Http1Caller, Http2Caller, SOON, head, send_all};
use tests::fake_api::{Behaviour, HttpVersion, RecordedRequest, WatchFeed};
use tests::fake_edge::FakeEdge;
use tokio::time::timeout;

/// The limit for a disconnect to arrive. The claim is a second; this leaves room for builds of other tests
/// beside.
const NOTICED_MAX: Duration = Duration::from_secs(10);

/// Every combination is tried as often.
const ROUNDS: usize = 2;

const DISCONNECTS: [Disconnect; 3] = [Disconnect::Close, Disconnect::CloseNotify, Disconnect::Reset];

/// The state of a request when its caller disconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestActivity {
    /// A watch: the head has come, and no event.
    IdleWatch,
    /// No head of an answer has come.
    Waiting,
    /// A body without end, which the caller has stopped to read.
    EndlessBody,
}

const DOINGS: [RequestActivity; 3] =
    [RequestActivity::IdleWatch, RequestActivity::Waiting, RequestActivity::EndlessBody];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_http1_disconnect_ends_the_request_at_an_http2_api_server() {
    http1_callers_leave(&DisconnectSetup::start(HttpVersion::Http2).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_http1_disconnect_ends_the_request_at_an_http1_api_server() {
    http1_callers_leave(&DisconnectSetup::start(HttpVersion::Http1).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_http2_disconnect_ends_the_request_at_an_api_server_of_any_version() {
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let setup = DisconnectSetup::start(version).await;
        let mut slowest = Slowest::default();
        for round in 0..ROUNDS {
            for doing in DOINGS {
                for by_stream in [true, false] {
                    for how in [Disconnect::Close, Disconnect::Reset] {
                        let path = doing.path(round);
                        let mut caller = Http2Caller::dial(&setup.edge.rig).await;
                        let (mut answer, sending) = caller.send("GET", &in_cluster(&path), &[], true);
                        let request = setup.arrived(&path).await;
                        let body = match doing {
                            RequestActivity::Waiting => None,
                            RequestActivity::IdleWatch | RequestActivity::EndlessBody => {
                                Some(timeout(SOON, &mut answer).await.unwrap().unwrap().into_body())
                            }
                        };

                        let left = Instant::now();
                        if by_stream {
                            // h2 resets a stream that nobody holds any more.
                            drop((answer, sending, body));
                        } else {
                            caller.leave(how).await;
                        }

                        let took = setup.noticed(&request, left).await;
                        slowest.saw(took, format!("{doing:?} by_stream={by_stream} {how:?}"));
                    }
                }
            }
        }
        slowest.say(&format!("HTTP/2 callers, {version:?}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disconnect_ends_an_upload_that_the_api_server_does_not_read() {
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let setup = DisconnectSetup::start(version).await;
        let mut slowest = Slowest::default();
        for round in 0..ROUNDS {
            for how in DISCONNECTS {
                // More than a tunnel's stream takes and the gateway reads ahead, and little enough that the
                // FIN behind it arrives: behind what fills every buffer on the way TCP keeps a FIN back.
                for bytes in [1024, 1_400_000] {
                    let path = format!("/deaf/{round}/{how:?}/{bytes}");
                    let mut caller = Http1Caller::dial(&setup.edge.rig).await;
                    let length = format!("Content-Length: {}\r\n", 1_u64 << 40);
                    caller.write(head("POST", &in_cluster(&path), &length)).await;
                    caller.write(vec![b'u'; bytes]).await;
                    let request = setup.arrived(&path).await;

                    let left = Instant::now();
                    let kept = caller.leave(how).await;

                    slowest.saw(setup.noticed(&request, left).await, path);
                    drop(kept);
                }
            }
        }
        slowest.say(&format!("uploads over HTTP/1.1, {version:?}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_ends_an_upload_that_fills_every_buffer_on_the_way() {
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let setup = DisconnectSetup::start(version).await;
        let mut slowest = Slowest::default();
        for round in 0..ROUNDS {
            let path = format!("/deaf/full/{round}");
            let mut caller = Http1Caller::dial(&setup.edge.rig).await;
            let length = format!("Content-Length: {}\r\n", 1_u64 << 40);
            caller.write(head("POST", &in_cluster(&path), &length)).await;
            let piece = vec![b'u'; 1024 * 1024];
            while timeout(Duration::from_secs(1), caller.try_write(&piece)).await.is_ok() {}
            let request = setup.arrived(&path).await;

            let left = Instant::now();
            caller.leave(Disconnect::Reset).await;

            slowest.saw(setup.noticed(&request, left).await, path);
        }
        slowest.say(&format!("full uploads over HTTP/1.1, {version:?}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_http2_disconnect_ends_an_upload_that_is_not_read() {
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let setup = DisconnectSetup::start(version).await;
        let mut slowest = Slowest::default();
        for round in 0..ROUNDS {
            for (name, by_stream, how) in [
                ("stream", true, Disconnect::Close),
                ("fin", false, Disconnect::Close),
                ("rst", false, Disconnect::Reset),
            ] {
                let path = format!("/deaf/{round}/{name}");
                let mut caller = Http2Caller::dial(&setup.edge.rig).await;
                let (answer, mut sending) = caller.send("POST", &in_cluster(&path), &[], false);
                // All windows on the way are full when this waits for room.
                let upload = send_all(&mut sending, Bytes::from(vec![b'u'; 64 * 1024 * 1024]), false);
                assert!(
                    timeout(Duration::from_secs(1), upload).await.is_err(),
                    "an upload nobody reads does not end"
                );
                let request = setup.arrived(&path).await;

                let left = Instant::now();
                if by_stream {
                    sending.send_reset(h2::Reason::CANCEL);
                    drop((answer, sending));
                } else {
                    caller.leave(how).await;
                }

                slowest.saw(setup.noticed(&request, left).await, path);
            }
        }
        slowest.say(&format!("uploads over HTTP/2, {version:?}"));
    }
}

/// The uploads share one connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_uploads_of_one_caller_end_with_its_connection() {
    const UPLOADS: usize = 250;
    for how in [Disconnect::Close, Disconnect::Reset] {
        let setup = DisconnectSetup::start(HttpVersion::Http2).await;
        for round in 0..4 {
            let mut caller = Http2Caller::dial(&setup.edge.rig).await;
            let mut uploads = Vec::new();
            for number in 0..UPLOADS {
                let path = in_cluster(&format!("/deaf/{round}/{number}"));
                let (answer, mut sending) = caller.send("POST", &path, &[], false);
                uploads.push(tokio::spawn(async move {
                    let _ = send_all(&mut sending, Bytes::from(vec![b'u'; 1024 * 1024]), false).await;
                    drop((answer, sending));
                }));
            }
            // A tunnel carries some of them at once, and which is not defined.
            let of_this_round = format!("/deaf/{round}/");
            setup
                .edge
                .fake
                .wait_for_request(SOON, |upload| upload.target.starts_with(&of_this_round))
                .await
                .unwrap();

            caller.leave(how).await;

            for upload in uploads {
                timeout(SOON, upload).await.expect("it ends").expect("no panic");
            }
            let none_runs = |active: f64| active == 0.0;
            setup.edge.rig.measured("tombolo_server_requests_active{verb=\"create\"}", none_runs).await;
        }
        let log = setup.edge.rig.server_log();
        assert!(!log.contains("panicked"), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_with_over_64_kib_before_an_answer_is_disconnected() {
    let setup = DisconnectSetup::start(HttpVersion::Http1).await;
    for doing in [RequestActivity::Waiting, RequestActivity::IdleWatch] {
        let path = doing.path(0);
        let mut caller = Http1Caller::dial(&setup.edge.rig).await;
        caller.write(head("GET", &in_cluster(&path), "")).await;
        let request = setup.arrived(&path).await;

        let flood = head("GET", "/clusters/edge-a/behind", "").repeat(2000);
        let _ = caller.try_write(flood).await; // The gateway may close the connection before it has it all.

        setup.noticed(&request, Instant::now()).await;
        let (_, end) = caller.read_to_end().await;
        assert!(end.is_err(), "{doing:?}: cut off, not ended");
    }
    setup.nothing_behind();
}

async fn http1_callers_leave(setup: &DisconnectSetup) {
    let second = head("GET", "/clusters/edge-a/behind", "");
    let much = format!("GET /clusters/edge-a/behind/{} HTTP/1.1\r\n", "x".repeat(60 * 1024));
    let mut slowest = Slowest::default();
    for round in 0..ROUNDS {
        for doing in DOINGS {
            for how in DISCONNECTS {
                for behind in ["", &second, &much] {
                    let path = doing.path(round);
                    let mut caller = Http1Caller::dial(&setup.edge.rig).await;
                    caller.write(head("GET", &in_cluster(&path), "") + behind).await;
                    let request = setup.arrived(&path).await;
                    if doing != RequestActivity::Waiting {
                        assert!(caller.read_head().await.starts_with("HTTP/1.1 200 OK\r\n"));
                    }
                    if doing == RequestActivity::EndlessBody {
                        caller.read_exactly(1024 * 1024).await;
                    }

                    let left = Instant::now();
                    let kept = caller.leave(how).await;

                    let took = setup.noticed(&request, left).await;
                    slowest.saw(took, format!("{doing:?} {how:?}, {} bytes behind", behind.len()));
                    drop(kept);
                }
            }
        }
    }
    slowest.say("HTTP/1.1 callers");
    setup.nothing_behind();
}

fn in_cluster(path: &str) -> String {
    format!("/clusters/edge-a{path}")
}

impl RequestActivity {
    /// A path that begins with what its behaviour is set for.
    fn path(self, round: usize) -> String {
        match self {
            Self::IdleWatch => format!("/watch/{round}"),
            Self::Waiting => format!("/silent/{round}"),
            Self::EndlessBody => format!("/endless/{round}"),
        }
    }
}

/// A cluster whose API server behaves as the first segment of a path demands.
struct DisconnectSetup {
    edge: FakeEdge,
}

impl DisconnectSetup {
    async fn start(version: HttpVersion) -> Self {
        let edge = FakeEdge::start(version).await;
        edge.fake.on("/watch", Behaviour::Watch(WatchFeed::new()));
        edge.fake.on("/silent", Behaviour::NeverAnswer);
        edge.fake.on("/endless", Behaviour::Endless(Bytes::from(vec![b'e'; 64 * 1024])));
        edge.fake.on("/deaf", Behaviour::Deaf);
        Self { edge }
    }

    /// Waits for a request that is still being answered.
    async fn arrived(&self, path: &str) -> RecordedRequest {
        let arrived = |request: &RecordedRequest| request.target == path && request.hangup.is_none();
        self.edge.fake.wait_for_request(SOON, arrived).await.unwrap()
    }

    /// The time from `left` until the API server noticed.
    async fn noticed(&self, request: &RecordedRequest, left: Instant) -> Duration {
        let hangup = self.edge.fake.wait_for_hangup(request.id, NOTICED_MAX).await;
        hangup
            .unwrap_or_else(|error| panic!("{}: {error}", request.target))
            .at
            .saturating_duration_since(left)
    }

    fn nothing_behind(&self) {
        let requests = self.edge.fake.requests();
        assert!(
            requests.iter().all(|request| !request.target.contains("behind")),
            "what was pipelined was sent on"
        );
    }
}

/// The slowest of several, for the record.
#[derive(Default)]
struct Slowest {
    took: Duration,
    what: String,
    rounds: usize,
}

impl Slowest {
    fn saw(&mut self, took: Duration, what: String) {
        self.rounds += 1;
        if took >= self.took {
            (self.took, self.what) = (took, what);
        }
    }

    fn say(&self, of: &str) {
        eprintln!("{of}: noticed after at most {:?} of {} ({})", self.took, self.rounds, self.what);
    }
}
