//! Takes streams off a tunnel: reads what each is for, asks the guard, and serves its one exchange.

mod told;

use std::sync::Arc;
use std::time::Duration;

use daemon::metrics::exchanges::{Active, Exchanges};
use daemon::{Scope, chain};
use http::header::UPGRADE;
use http::{Method, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use proto::AbortCode;
use proto::wire::{DialOpen, HttpOpen, StreamOpen, stream_open};
use tokio::time::timeout;
use tracing::{debug, warn};
use transport::{Tunnel, TunnelEnded, TunnelStream};

use crate::forward::{ForwardError, Forwarder};
use crate::guard::{Cleared, Guard};
use crate::metrics;
use crate::relay::Relay;
use told::Told;

/// The first frame of a stream arrives with the stream; a server that opens one and says nothing is broken.
const OPEN_FRAME_MAX: Duration = Duration::from_secs(10);

/// A request's head arrives with its stream, too.
const HEAD_MAX: Duration = Duration::from_secs(30);

/// Largest head, in bytes; the gateway allows less.
const HEAD_BYTES_MAX: usize = 128 * 1024;

/// Most headers in a head; the gateway allows less.
const HEADERS_MAX: usize = 200;

/// What every stream of an agent needs.
#[derive(Clone)]
pub struct Streams(Arc<Inner>);

struct Inner {
    guard: Guard,
    forwarder: Forwarder,
    relay: Relay,
    exchanges: Exchanges,
}

/// What a stream is for.
enum Opened {
    /// A request that the guard has let pass.
    Request(Guarded),
    /// Bytes to a target, which the relay holds against the guard's list.
    Dial(DialOpen),
}

/// A stream that the guard has let pass.
struct Guarded {
    cleared: Cleared,
    audit_id: String,
    long_running: bool,
}

impl Streams {
    /// Serves requests with `forwarder`, as far as `guard` allows, and dials with `relay`.
    #[must_use]
    pub fn new(guard: Guard, forwarder: Forwarder, relay: Relay) -> Self {
        Self(Arc::new(Inner { guard, forwarder, relay, exchanges: metrics::exchanges() }))
    }

    /// Serves every stream of a tunnel until the tunnel ends. Each is work of the scope, so a drain waits for it.
    pub async fn serve(self, tunnel: Tunnel, scope: Scope) -> TunnelEnded {
        loop {
            match tunnel.accept().await {
                Ok(stream) => scope.spawn(self.clone().serve_stream(stream)),
                Err(ended) => return ended,
            }
        }
    }

    async fn serve_stream(self, mut stream: TunnelStream) {
        let active = Arc::new(self.0.exchanges.begin());
        match self.open(&mut stream).await {
            Ok(Opened::Request(guarded)) => self.serve_exchange(stream, guarded, active).await,
            Ok(Opened::Dial(dial)) => {
                active.set_sort(metrics::DIAL);
                self.0.relay.serve(stream, dial).await;
            }
            Err(code) => {
                metrics::refused(code);
                stream.abort(code);
            }
        }
    }

    /// Reads what the stream is for, and asks the guard.
    async fn open(&self, stream: &mut TunnelStream) -> Result<Opened, AbortCode> {
        let open = match timeout(OPEN_FRAME_MAX, stream.read_open()).await {
            Ok(Ok(open)) => open,
            Ok(Err(error)) => {
                debug!(error = %chain(&error), "a stream without a first frame");
                return Err(AbortCode::BadOpen);
            }
            Err(_) => return Err(AbortCode::BadOpen),
        };
        let HttpOpen { identity, audit_id, long_running } = match open {
            StreamOpen { kind: Some(stream_open::Kind::Http(open)) } => open,
            StreamOpen { kind: Some(stream_open::Kind::Dial(dial)) } => return Ok(Opened::Dial(dial)),
            StreamOpen { kind: None } => {
                warn!(
                    "the server opened a stream of a kind that this agent does not know: upgrade the agent"
                );
                return Err(AbortCode::BadOpen);
            }
        };
        // Nobody's request is nobody's: an identity that is absent is never taken for a default.
        let Some(identity) = identity else {
            warn!(audit_id, "the server opened a stream without an identity");
            return Err(AbortCode::BadOpen);
        };
        match self.0.guard.check(&identity) {
            Ok(cleared) => Ok(Opened::Request(Guarded { cleared, audit_id, long_running })),
            Err(refusal) => {
                // Who it was is in the line below: above DEBUG nobody is named.
                metrics::guard_refused(refusal.reason());
                warn!(audit_id, reason = refusal.reason(), "the guard refused an identity");
                debug!(audit_id, "the guard refused an identity: {refusal}");
                Err(refusal.code())
            }
        }
    }

    /// Serves the one exchange of a stream. A stream whose caller has gone is dropped at once, and with it the request
    /// to the API server.
    async fn serve_exchange(&self, stream: TunnelStream, guarded: Guarded, active: Arc<Active>) {
        let (verdict, gone) = (stream.verdict(), stream.gone());
        let guarded = Arc::new(guarded);
        let service = service_fn(|request: Request<Incoming>| {
            let (this, guarded, verdict) = (self.clone(), Arc::clone(&guarded), verdict.clone());
            let active = Arc::clone(&active);
            async move {
                let Guarded { cleared, audit_id, long_running } = &*guarded;
                active.set_sort(kind(&request, *long_running));
                let forwarder = &this.0.forwarder;
                let answer = forwarder.serve(cleared, audit_id, *long_running, request, &active).await;
                if let Ok(answer) = &answer {
                    active.answered(answer.status().as_u16());
                }
                answer.map(|answer| answer.map(|body| Told { body, verdict: verdict.clone() })).inspect_err(
                    |error| {
                        note(error, &guarded.audit_id);
                        verdict.set(error.code());
                    },
                )
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_MAX)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            // One exchange a stream.
            .keep_alive(false)
            .half_close(false)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        // Both arms are cancel-safe: what is dropped here is meant to be cut short.
        tokio::select! {
            served = connection => if let Err(error) = served {
                debug!(audit_id = guarded.audit_id, error = %chain(&error), "an exchange broke");
            },
            () = gone => debug!(audit_id = guarded.audit_id, "the caller has gone"),
        }
    }
}

/// What a request is, as a metric tells it apart: how long it may last, and whether it changes anything. What it is to
/// policy is the server's to know.
fn kind(request: &Request<Incoming>, long_running: bool) -> &'static str {
    if request.headers().contains_key(UPGRADE) {
        metrics::UPGRADE
    } else if long_running {
        metrics::LONG_RUNNING
    } else if [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method()) {
        metrics::READ
    } else {
        metrics::WRITE
    }
}

fn note(error: &ForwardError, audit_id: &str) {
    let code = error.code();
    metrics::refused(code);
    debug!(audit_id, error = %chain(error), "no answer of the API server");
}
