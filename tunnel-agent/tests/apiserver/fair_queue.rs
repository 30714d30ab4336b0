//! The fair queue for seats at the API server.

use std::sync::Arc;
use std::time::Duration;

use daemon::{Scope, SeatFigures};
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::{Semaphore, mpsc};
use tunnel_agent::apiserver::Timeouts;
use tunnel_agent::config;
use tunnel_agent::forward::{FairQueue, Forwarder};

use crate::fake::{Fake, Log, http2, pair, soon};
use crate::forwarding::stream_of;

const GET: &[u8] = b"GET /api/v1/pods HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n";

/// Longer than any of these tests.
const FOR_EVER: Duration = Duration::from_secs(600);

/// An agent, and an API server that reports each user and ends its answers when the test says so.
struct Trial {
    scope: Scope,
    _fake: Fake,
    forwarder: Forwarder,
    queue: FairQueue,
    asked: mpsc::Receiver<String>,
    ends: Arc<Semaphore>,
    errors: Log,
}

#[tokio::test]
async fn a_modest_caller_is_served_at_once_beside_a_greedy_one() {
    // Two thirds, rounded up.
    let (seats, share, waiting) = (16, 11, 24);
    let limits = config::Limits { requests: seats, queue: 100, queue_wait: FOR_EVER };
    let mut trial = Trial::new(limits).await;
    let mut streams = Vec::new();
    for _ in 0..share + waiting {
        streams.push(trial.ask("greedy", false).await);
    }
    for _ in 0..share {
        assert_eq!(soon(trial.asked.recv()).await.unwrap(), "greedy");
    }
    trial.becomes(SeatFigures { taken: share, waiting }).await;

    streams.push(trial.ask("modest", false).await);

    assert_eq!(soon(trial.asked.recv()).await.unwrap(), "modest");
    trial.becomes(SeatFigures { taken: share + 1, waiting }).await;
    trial.ends.add_permits(share + waiting + 1);
    for stream in streams {
        assert!(answer(stream).await.starts_with("HTTP/1.1 200"), "everybody is answered");
    }
    assert_eq!(trial.queue.figures(), SeatFigures::default());
    assert!(trial.errors.lines().is_empty());
}

#[tokio::test]
async fn a_request_beyond_the_agents_limits_never_reaches_the_api_server() {
    let mut trial = Trial::new(config::Limits { requests: 1, queue: 2, queue_wait: FOR_EVER }).await;
    let mut held = vec![trial.ask("ann", false).await];
    assert_eq!(soon(trial.asked.recv()).await.unwrap(), "ann");
    held.extend([trial.ask("ann", false).await, trial.ask("ann", false).await]);
    trial.becomes(SeatFigures { taken: 1, waiting: 2 }).await;

    assert_eq!(answer(trial.ask("ann", false).await).await, "", "no answer of an API server");
    assert_eq!(trial.errors.lines(), ["Busy"]);
    trial.ends.add_permits(3);
    for stream in held {
        assert!(answer(stream).await.starts_with("HTTP/1.1 200"), "a request that waited is answered");
    }

    let mut brief =
        Trial::new(config::Limits { requests: 1, queue: 2, queue_wait: Duration::from_millis(20) }).await;
    let _held = brief.ask("ann", false).await;
    assert_eq!(soon(brief.asked.recv()).await.unwrap(), "ann");
    assert_eq!(answer(brief.ask("ben", false).await).await, "", "it got no seat in time");
    assert_eq!(brief.errors.lines(), ["Busy"]);
    assert!(brief.asked.try_recv().is_err());
}

#[tokio::test]
async fn a_seat_lasts_to_the_last_byte_or_until_a_long_request_has_begun() {
    let mut trial = Trial::new(config::Limits { requests: 1, queue: 2, queue_wait: FOR_EVER }).await;
    let _watch = trial.ask("ann", true).await;
    assert_eq!(soon(trial.asked.recv()).await.unwrap(), "ann");
    trial.becomes(SeatFigures { taken: 0, waiting: 0 }).await;

    let request = trial.ask("ann", false).await;
    assert_eq!(soon(trial.asked.recv()).await.unwrap(), "ann");
    let next = trial.ask("ben", false).await;
    trial.becomes(SeatFigures { taken: 1, waiting: 1 }).await;
    // A caller that hangs up frees its seat, too.
    drop(request);

    assert_eq!(soon(trial.asked.recv()).await.unwrap(), "ben");
    drop(next);
    trial.becomes(SeatFigures::default()).await;
}

impl Trial {
    async fn new(limits: config::Limits) -> Self {
        let (asks, asked) = mpsc::channel(1_000);
        let ends = Arc::new(Semaphore::new(0));
        let told = Arc::clone(&ends);
        let (scope, fake, api_server) = pair(&["h2"], Timeouts::default(), move |connection, _| {
            let (asks, told) = (asks.clone(), Arc::clone(&told));
            http2(connection, move |request: Request<Incoming>| {
                let (asks, told) = (asks.clone(), Arc::clone(&told));
                let user = request.headers()["impersonate-user"].to_str().unwrap().to_owned();
                async move {
                    asks.send(user).await.unwrap();
                    // The head at once, and the end when the test says so.
                    let body = futures::stream::once(async move {
                        told.acquire_owned().await.unwrap().forget();
                        Ok::<_, std::io::Error>(Frame::data("x".into()))
                    });
                    Response::new(StreamBody::new(body))
                }
            })
        })
        .await;
        let queue = FairQueue::new(limits);
        let forwarder = Forwarder::new(api_server, None, queue.clone(), scope.clone());
        Self { scope, _fake: fake, forwarder, queue, asked, ends, errors: Log::default() }
    }

    async fn ask(&self, user: &'static str, long_running: bool) -> DuplexStream {
        let forwarder = self.forwarder.clone();
        let mut stream = stream_of(&self.scope, forwarder, (user, long_running), self.errors.clone());
        stream.write_all(GET).await.unwrap();
        stream
    }

    /// Waits until the queue has these figures.
    async fn becomes(&self, wanted: SeatFigures) {
        let looking = async {
            while self.queue.figures() != wanted {
                tokio::task::yield_now().await;
            }
        };
        let became = tokio::time::timeout(crate::fake::TIMEOUT, looking).await;
        assert!(became.is_ok(), "{:?} never became {wanted:?}", self.queue.figures());
    }
}

/// Everything that arrives on a stream.
async fn answer(mut stream: DuplexStream) -> String {
    let mut answer = String::new();
    let _ = soon(stream.read_to_string(&mut answer)).await;
    answer
}
