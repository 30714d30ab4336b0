//! A client of several servers behind one name. It dials, sends again and goes on as the clients of Kubernetes in Go do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::Reason;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tests::caller::GATEWAY;
use tests::dial::dial_name;
use tests::matrix::gateway::describe_error;
use tests::rig::{TOKEN, is_ready};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::sleep;
use tokio_rustls::client::TlsStream;

/// The balancer's pause between two looks at its servers. Until the next one it sends callers to a server that has just stopped.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// Most times that a request is sent which no server has processed, as in Go's `net/http`.
const SENT_MAX: usize = 7;

/// Most times that a read is sent whose connection ended before its answer, as in client-go.
const READ_MAX: usize = 10;

/// The servers behind one name, in the order in which a connection tries them.
pub(super) struct Balancer {
    servers: Vec<BalancedServer>,
    /// The number of the next connection; `None` if each begins with the first server.
    turn: Option<AtomicUsize>,
    refused: AtomicUsize,
}

struct BalancedServer {
    gateway: SocketAddr,
    probes: SocketAddr,
    is_ready: AtomicBool,
}

/// One HTTP/2 connection to one of the servers, dialed anew once it has ended.
pub(super) struct KubeClient {
    balancer: Arc<Balancer>,
    ca_pem: String,
    connection: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

/// The outcome of a read for its caller.
pub(super) struct ReadOutcome {
    /// The error that the caller gets.
    pub(super) error: Option<String>,
    /// The times that it was sent again, because its connection had ended without a byte of its answer.
    pub(super) repeated: usize,
    /// The time from the first attempt to the end.
    pub(super) took: Duration,
}

impl Balancer {
    /// Each connection tries the servers in this order.
    pub(super) fn in_order(servers: &[(SocketAddr, SocketAddr)]) -> Self {
        let server = |&(gateway, probes): &_| BalancedServer { gateway, probes, is_ready: true.into() };
        Self { servers: servers.iter().map(server).collect(), turn: None, refused: AtomicUsize::new(0) }
    }

    /// Each connection begins with the next server that said it was ready.
    pub(super) fn in_turns(servers: &[(SocketAddr, SocketAddr)]) -> Self {
        Self { turn: Some(AtomicUsize::new(0)), ..Self::in_order(servers) }
    }

    /// Asks the servers again and again whether they are ready.
    pub(super) async fn look(&self) {
        loop {
            for server in &self.servers {
                server.is_ready.store(is_ready(server.probes).await, Ordering::Relaxed);
            }
            sleep(LOOKS_EVERY).await;
        }
    }

    /// Returns true if the last look found all servers ready.
    pub(super) fn are_all_ready(&self) -> bool {
        self.servers.iter().all(|server| server.is_ready.load(Ordering::Relaxed))
    }

    /// The connections that a server refused, and that began with the next one.
    pub(super) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    async fn dial(&self, ca_pem: &str) -> Result<TlsStream<TcpStream>, String> {
        let mut failed = "no server is ready".to_owned();
        let first = self.turn.as_ref().map_or(0, |turn| turn.fetch_add(1, Ordering::Relaxed));
        for number in 0..self.servers.len() {
            let server = &self.servers[(first + number) % self.servers.len()];
            if !server.is_ready.load(Ordering::Relaxed) {
                continue;
            }
            match dial_name(server.gateway, GATEWAY, ca_pem, &["h2"], None).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = format!("no connection to {}: {error}", server.gateway),
            }
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        Err(failed)
    }
}

impl KubeClient {
    pub(super) fn new(balancer: &Arc<Balancer>, ca_pem: String) -> Arc<Self> {
        Arc::new(Self { balancer: Arc::clone(balancer), ca_pem, connection: Mutex::new(None) })
    }

    /// Several clients of the same servers.
    pub(super) fn several(count: usize, balancer: &Arc<Balancer>, ca_pem: &str) -> Vec<Arc<Self>> {
        (0..count).map(|_| Self::new(balancer, ca_pem.to_owned())).collect()
    }

    /// Sends a request, and returns the head of its answer. It is sent again only if the server says that it did not process it.
    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        body: &Bytes,
    ) -> Result<Response<Incoming>, String> {
        let mut failed = String::new();
        for _ in 0..SENT_MAX {
            let request = Request::builder()
                .method(method)
                .uri(format!("https://{GATEWAY}{path}"))
                .header("authorization", format!("Bearer {TOKEN}"))
                .body(Full::new(body.clone()))
                .expect("a request");
            match self.connected().await?.send_request(request).await {
                Ok(answer) => return Ok(answer),
                Err(error) if was_processed(&error) => return Err(describe_error(error)),
                Err(error) => failed = describe_error(error),
            }
        }
        Err(failed)
    }

    /// Reads an object. It is sent again if its connection ended without a byte of the answer.
    pub(super) async fn read(&self, path: &str) -> ReadOutcome {
        let began = Instant::now();
        let mut repeated = 0;
        let error = loop {
            match self.send("GET", path, &Bytes::new()).await {
                Ok(answer) => break whole(answer).await.err(),
                Err(error) if repeated == READ_MAX => break Some(error),
                Err(_) => repeated += 1,
            }
        };
        ReadOutcome { error, repeated, took: began.elapsed() }
    }

    async fn connected(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let mut connection = self.connection.lock().await;
        if let Some(open) = connection.as_ref().filter(|open| !open.is_closed()) {
            return Ok(open.clone());
        }
        let io = TokioIo::new(self.balancer.dial(&self.ca_pem).await?);
        let (sender, driver) =
            Builder::new(TokioExecutor::new()).handshake(io).await.map_err(describe_error)?;
        tokio::spawn(async move { drop(driver.await) });
        *connection = Some(sender.clone());
        Ok(sender)
    }
}

/// The answer of a read or of a write, which is right if it is complete and has a status of success.
pub(super) async fn whole(answer: Response<Incoming>) -> Result<Bytes, String> {
    let status = answer.status();
    let body = answer.into_body().collect().await;
    let body = body.map_err(|error| format!("the answer was cut: {}", describe_error(error)))?.to_bytes();
    let text = || String::from_utf8_lossy(&body).into_owned();
    if status.is_success() { Ok(body) } else { Err(format!("{status}: {}", text())) }
}

/// Returns false if the server has said that it did not process the request, or never got it.
fn was_processed(error: &hyper::Error) -> bool {
    if error.is_canceled() {
        return false;
    }
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    !cause.is_some_and(|error| {
        let is_graceful = error.is_go_away() && error.reason() == Some(Reason::NO_ERROR);
        error.is_remote() && (is_graceful || error.reason() == Some(Reason::REFUSED_STREAM))
    })
}
