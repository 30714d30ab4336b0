//! Callers that send requests at an even pace over HTTP/2, and do after a GOAWAY what Go's clients do.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

use super::LB;
use crate::dial::{config, secured};
use crate::lab::NamespaceRuntime;
use crate::pki::Issued;

/// The pause between two requests of a caller.
pub const PACE: Duration = Duration::from_millis(50);

/// Longest wait for an answer, after which a request has failed.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Attempts for one request that was not processed, as of Go's transport and client-go together.
const ATTEMPTS_MAX: usize = 6;

/// The pause of client-go before it repeats a GET after a reset.
const RESET_PAUSE: Duration = Duration::from_secs(1);

/// Callers that run until [`Callers::stop`].
#[derive(Debug)]
#[must_use = "nobody counts their requests"]
pub struct Callers {
    tasks: tokio::task::JoinHandle<Vec<Report>>,
    stop: Arc<AtomicBool>,
}

/// The requests of one caller.
#[derive(Debug, Default, Clone)]
pub struct Report {
    /// The number of requests that were answered.
    pub answered: usize,
    /// Requests that failed, each with its reason.
    pub failed: Vec<String>,
    /// The longest time between two answers.
    pub longest: Duration,
    /// The time of each answer, in no order.
    pub times: AnswerTimes,
}

/// The times at which requests were answered.
#[derive(Default, Clone)]
pub struct AnswerTimes(pub Vec<Instant>);

impl std::fmt::Debug for AnswerTimes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} times", self.0.len())
    }
}

/// A request failed. Go's clients send it again if it was not processed.
struct NotAnswered {
    reason: String,
    is_processed: bool,
}

impl Callers {
    /// Starts so many callers on the worker, each with a connection of its own.
    ///
    /// # Panics
    /// If the identity cannot be used.
    pub async fn start(on_worker: &NamespaceRuntime, count: usize, ca_pem: &str, identity: &Issued) -> Self {
        Self::start_at(on_worker, LB.parse().expect("an address"), count, ca_pem, identity).await
    }

    /// The same, at another load balancer on the worker.
    ///
    /// # Panics
    /// If the identity cannot be used.
    pub async fn start_at(
        on_worker: &NamespaceRuntime,
        address: SocketAddr,
        count: usize,
        ca_pem: &str,
        identity: &Issued,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut config = config(ca_pem, Some(identity)).expect("an identity");
        config.alpn_protocols = vec![b"h2".to_vec()];
        let (config, stopped) = (Arc::new(config), Arc::clone(&stop));
        let started = async move {
            let tasks = tokio::spawn(async move {
                let mut callers = JoinSet::new();
                for _ in 0..count {
                    callers.spawn(call(address, Arc::clone(&config), Arc::clone(&stopped)));
                }
                callers.join_all().await
            });
            Self { tasks, stop }
        };
        on_worker.run(started).await
    }

    /// Ends all callers, and returns the sum of their requests and the longest of their gaps.
    ///
    /// # Panics
    /// If a caller panicked.
    pub async fn stop(self) -> Report {
        self.stop.store(true, Ordering::Relaxed);
        let mut sum = Report::default();
        for report in self.tasks.await.expect("no caller panics") {
            sum.answered += report.answered;
            sum.failed.extend(report.failed);
            sum.longest = sum.longest.max(report.longest);
            sum.times.0.extend(report.times.0);
        }
        sum
    }
}

async fn call(address: SocketAddr, config: Arc<ClientConfig>, stop: Arc<AtomicBool>) -> Report {
    let (mut report, mut connection) = (Report::default(), None);
    let (mut next, mut last_answer) = (tokio::time::Instant::now(), Instant::now());
    while !stop.load(Ordering::Relaxed) {
        match timeout(ANSWER_MAX, request(address, &config, &mut connection)).await {
            Ok(Ok(())) => {
                report.answered += 1;
                report.longest = report.longest.max(last_answer.elapsed());
                last_answer = Instant::now();
                report.times.0.push(last_answer);
            }
            Ok(Err(reason)) => report.failed.push(reason),
            Err(_) => report.failed.push(format!("no answer within {ANSWER_MAX:?}")),
        }
        next = (next + PACE).max(tokio::time::Instant::now());
        sleep_until(next).await;
    }
    report.longest = report.longest.max(last_answer.elapsed());
    report
}

type CallerConnection = SendRequest<Empty<Bytes>>;

/// One request, sent again as long as it was not processed.
async fn request(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
    connection: &mut Option<CallerConnection>,
) -> Result<(), String> {
    let mut reasons = Vec::new();
    let is_node_lb = LB.parse() == Ok(address);
    for _ in 0..ATTEMPTS_MAX {
        let mut sender = match connection.take() {
            Some(sender) => sender,
            None => match dial(address, config).await {
                Ok(sender) => sender,
                // An API server that ends resets what waits to be accepted. client-go repeats a GET then (rest/request.go). node-lb
                // must not need that.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset && !is_node_lb => {
                    reasons.push(format!("dial: {error}"));
                    sleep(RESET_PAUSE).await;
                    continue;
                }
                Err(error) => return Err(format!("{reasons:?} dial: {error}")),
            },
        };
        match send(&mut sender).await {
            Ok(()) => {
                *connection = Some(sender);
                return Ok(());
            }
            Err(NotAnswered { reason, is_processed: true }) => return Err(format!("{reasons:?} {reason}")),
            Err(NotAnswered { reason, is_processed: false }) => reasons.push(reason),
        }
    }
    Err(format!("sent {ATTEMPTS_MAX} times: {reasons:?}"))
}

async fn dial(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<CallerConnection> {
    let stream = TcpStream::connect(address).await?;
    let tls = secured(stream, "127.0.0.1", config).await?;
    let (sender, driver) =
        handshake(TokioExecutor::new(), TokioIo::new(tls)).await.map_err(io::Error::other)?;
    tokio::spawn(async move { drop(driver.await) });
    Ok(sender)
}

async fn send(sender: &mut CallerConnection) -> Result<(), NotAnswered> {
    let not_sent = |error: &hyper::Error| NotAnswered { reason: format!("{error:?}"), is_processed: false };
    sender.ready().await.map_err(|error| not_sent(&error))?;
    let request = Request::get(format!("https://{LB}/api/v1/namespaces/default")).body(Empty::new());
    let response =
        sender.try_send_request(request.expect("a request")).await.map_err(|error| NotAnswered {
            is_processed: error.message().is_none() && !is_refused(error.error()),
            reason: format!("{:?}", error.error()),
        })?;
    let (status, again) = (response.status(), response.headers().contains_key("retry-after"));
    let body = response.into_body().collect().await;
    match status {
        StatusCode::OK => match body {
            Ok(_) => Ok(()),
            Err(error) => Err(NotAnswered { reason: format!("body: {error:?}"), is_processed: true }),
        },
        // client-go repeats what the API server has sent back with Retry-After.
        status => Err(NotAnswered { reason: status.to_string(), is_processed: !again }),
    }
}

/// Returns true if the API server says that it has not processed the request: by a GOAWAY or REFUSED_STREAM.
fn is_refused(error: &hyper::Error) -> bool {
    let h2 = std::error::Error::source(error).and_then(|source| source.downcast_ref::<h2::Error>());
    h2.is_some_and(|error| error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
}
