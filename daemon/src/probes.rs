//! The listener of the probes: `/livez` (`/healthz` is the same), `/readyz` and `/metrics`.

use std::{convert::Infallible, io, net::SocketAddr, os::fd::OwnedFd, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpStream, time::timeout};
use tracing::debug;

use crate::listen::{GuardedConnection, GuardedListener, ListenerLimits, PerSourceLimits};
use crate::{BindError, Metrics, Rate, Readiness, Scope};

/// The configuration key of the address, with its flag.
const KEY: &str = "probes.listen (--probes-listen)";

/// Connections that are served at the same time; the newest beyond them is closed.
const CONNECTIONS_MAX: usize = 1_000;

/// The same of one address, or one /64. Further ones of that address are served for [`PROVING_TIME_MAX`].
///
/// [`PROVING_TIME_MAX`]: crate::listen::PROVING_TIME_MAX
const CONNECTIONS_OF_SOURCE_MAX: usize = 32;

/// The limits of the listener. Nobody proves who it is here, so that a connection beyond the limits of its source has time
/// for a request or two.
const LIMITS: ListenerLimits = ListenerLimits {
    connections_max: CONNECTIONS_MAX,
    handshakes_max: CONNECTIONS_MAX,
    source: PerSourceLimits {
        connections: CONNECTIONS_OF_SOURCE_MAX,
        rate: Rate { per_second: 50, burst: 100 },
        ..PerSourceLimits::DEFAULT
    },
    ..ListenerLimits::DEFAULT
};

/// Longest time until a request's head is complete, on a new or a kept-alive connection.
const HEAD_MAX: Duration = Duration::from_secs(10);

/// Longest lifetime of a connection, so that slow readers cannot block probes for ever.
const CONNECTION_MAX: Duration = Duration::from_secs(60);

/// Namespace of the constructor of [`BoundProbes`].
#[derive(Debug)]
pub struct Probes;

/// Probes with a bound address, which do not answer yet.
#[derive(Debug)]
pub struct BoundProbes {
    listener: GuardedListener,
    state: Arc<ProbeState>,
}

/// The state that the answers are made from.
#[derive(Debug)]
struct ProbeState {
    readiness: Readiness,
    metrics: Metrics,
}

impl Probes {
    /// Binds the address of the probes.
    ///
    /// # Errors
    ///
    /// [`BindError`], which names the key and the address.
    pub fn bind(
        address: SocketAddr,
        readiness: Readiness,
        metrics: Metrics,
    ) -> Result<BoundProbes, BindError> {
        let listener = GuardedListener::bind(KEY, address, LIMITS)?;
        Ok(BoundProbes { listener, state: Arc::new(ProbeState { readiness, metrics }) })
    }

    /// Takes over the socket of the probes of another process, which listens.
    ///
    /// # Errors
    /// The socket is none of TCP that listens, or the system refused.
    pub fn take_over(socket: OwnedFd, readiness: Readiness, metrics: Metrics) -> io::Result<BoundProbes> {
        let listener = GuardedListener::take_over(KEY, socket, LIMITS)?;
        Ok(BoundProbes { listener, state: Arc::new(ProbeState { readiness, metrics }) })
    }
}

impl BoundProbes {
    /// The bound address; with the port that the system chose if 0 was configured.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// One more descriptor of the socket, for a process that takes it over.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.listener.share()
    }

    /// Answers until the scope has no work left: during the drain too, when `/readyz` answers 503. Returns at
    /// once; the listener, its connections and the upkeep of the metrics are background tasks of `scope`.
    pub fn run(self, scope: &Scope) {
        self.state.metrics.run_upkeep(scope);
        scope.spawn_background(self.accept(scope.clone()));
    }

    async fn accept(self, scope: Scope) {
        loop {
            let accepted = self.listener.next().await;
            scope.spawn_background(serve(accepted, self.state.clone(), scope.clone()));
        }
    }
}

impl ProbeState {
    async fn answer(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        draining: bool,
    ) -> Response<Full<Bytes>> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "use GET or HEAD\n");
            refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        match path {
            // Manifests made for konnectivity probe /healthz.
            "/livez" | "/healthz" => plain(StatusCode::OK, "ok\n"),
            "/readyz" => self.readyz(query.split('&').any(|word| word == "verbose"), draining),
            "/metrics" => {
                let mut metrics = plain(StatusCode::OK, self.metrics.scrape().await);
                let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
                metrics.headers_mut().insert(header::CONTENT_TYPE, text);
                metrics
            }
            _ => plain(StatusCode::NOT_FOUND, "try /livez, /readyz or /metrics\n"),
        }
    }

    fn readyz(&self, verbose: bool, draining: bool) -> Response<Full<Bytes>> {
        let ready = self.readiness.is_ready() && !draining;
        let mut report = String::new();
        // As in Kubernetes: the list is shown on request, or when a part is not ready or degraded.
        let healthy = self.readiness.is_healthy();
        if verbose || !ready || !healthy {
            report = self.readiness.report();
            if draining {
                report.push_str("[-]draining not ready\n");
            }
        }
        match ready {
            true if verbose || !healthy => plain(StatusCode::OK, report + "readyz check passed\n"),
            true => plain(StatusCode::OK, "ok\n"),
            false => plain(StatusCode::SERVICE_UNAVAILABLE, report + "readyz check failed\n"),
        }
    }
}

/// Serves one connection until its end, or until another of its source needs its slot.
async fn serve(accepted: GuardedConnection, state: Arc<ProbeState>, scope: Scope) {
    let GuardedConnection { stream, permit: _permit, handshake: _handshake, mut expulsion, .. } = accepted;
    if expulsion.unless_expelled(answer_requests(stream, state, scope)).await.is_none() {
        debug!("a probe's connection was one too many of its source");
    }
}

async fn answer_requests(stream: TcpStream, state: Arc<ProbeState>, scope: Scope) {
    let service = service_fn(|request: Request<Incoming>| {
        let (state, draining) = (&state, scope.is_stopping());
        async move {
            let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
            Ok::<_, Infallible>(state.answer(request.method(), path, query, draining).await)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(CONNECTION_MAX, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "a probe's connection failed"),
        Err(_) => debug!("a probe's connection became too old"),
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests;
