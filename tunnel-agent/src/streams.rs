//! Accepts streams of a tunnel: reads the first frame of each, asks the guard, and serves its one exchange.

mod body;
pub mod ledgers;

use std::sync::Arc;
use std::time::Duration;

use daemon::metrics::requests::{ActiveRequest, RequestMetrics};
use daemon::{Scope, error_chain};
use http::header::UPGRADE;
use http::{Method, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use proto::AbortCode;
use proto::wire::{DialOpen, HttpOpen, stream_open};
use tokio::task::coop;
use tokio::time::timeout;
use tracing::{debug, warn};
use transport::{Tunnel, TunnelEnded, TunnelStream};

use crate::apiserver::AnswerDeadline;
use crate::forward::{ForwardError, Forwarder};
use crate::guard::{Cleared, Guard};
use crate::metrics::{self, RequestKind};
use crate::relay::Relay;
use body::AbortingBody;
use ledgers::SharedLedger;

/// Longest wait for a stream's first frame. It arrives with the stream, unless the server is broken.
const OPEN_FRAME_MAX: Duration = Duration::from_secs(10);

/// Longest wait for a request's head, which arrives with its stream, too.
const HEAD_MAX: Duration = Duration::from_secs(30);

/// Largest head, in bytes. The gateway allows less.
const HEAD_BYTES_MAX: usize = 128 * 1024;

/// Most headers in a head. The gateway allows less.
const HEADERS_MAX: usize = 200;

/// Serves the streams of all tunnels of the agent. Clones share everything.
#[derive(Clone)]
pub struct Streams(Arc<SharedStreams>);

struct SharedStreams {
    guard: Guard,
    forwarder: Forwarder,
    relay: Relay,
    exchanges: RequestMetrics,
}

/// The purpose of a stream, as its first frame has it.
enum Opened {
    /// An HTTP request that the guard has cleared.
    Request(ClearedRequest),
    /// A connection to a target, which the relay checks against the guard's list.
    Dial(DialOpen, StreamTicket),
}

/// The first frame of a stream that the guard has cleared.
struct ClearedRequest {
    cleared: Cleared,
    audit_id: String,
    deadline: AnswerDeadline,
    /// The question by which the list is reduced; empty for a request that is forwarded.
    question: String,
    ticket: StreamTicket,
}

/// The right of a stream to be carried out, unless its tunnel's ledger has fenced it.
struct StreamTicket {
    ledger: SharedLedger,
    number: u64,
}

impl Streams {
    /// Serves requests with `forwarder`, as far as `guard` allows, and dials with `relay`.
    #[must_use]
    pub fn new(guard: Guard, forwarder: Forwarder, relay: Relay) -> Self {
        Self(Arc::new(SharedStreams { guard, forwarder, relay, exchanges: metrics::exchanges() }))
    }

    /// Serves every stream of a tunnel until the tunnel ends, except those that `ledger` has fenced. Each is work
    /// of the scope, so a drain waits for it.
    pub async fn serve(self, tunnel: Tunnel, ledger: SharedLedger, scope: Scope) -> TunnelEnded {
        loop {
            match tunnel.accept().await {
                Ok(stream) => {
                    scope.spawn(self.clone().serve_stream(stream, ledger.clone()));
                    // QUIC has all streams ready that one packet opened.
                    coop::consume_budget().await;
                }
                Err(ended) => return ended,
            }
        }
    }

    async fn serve_stream(self, mut stream: TunnelStream, ledger: SharedLedger) {
        let active = Arc::new(self.0.exchanges.begin());
        match self.open(&mut stream, ledger).await {
            Ok(Opened::Request(cleared_request)) => {
                self.serve_exchange(stream, cleared_request, active).await
            }
            Ok(Opened::Dial(dial, ticket)) => {
                active.set_kind(RequestKind::Dial.as_str());
                match ticket.begin() {
                    Ok(()) => self.0.relay.serve(stream, dial).await,
                    Err(code) => {
                        metrics::refused(code);
                        stream.abort(code);
                    }
                }
            }
            Err(code) => {
                metrics::refused(code);
                stream.abort(code);
            }
        }
    }

    /// Reads the first frame of a stream, and asks the guard.
    async fn open(&self, stream: &mut TunnelStream, ledger: SharedLedger) -> Result<Opened, AbortCode> {
        let open = match timeout(OPEN_FRAME_MAX, stream.read_open()).await {
            Ok(Ok(open)) => open,
            Ok(Err(error)) => {
                debug!(error = %error_chain(&error), "a stream without a first frame");
                return Err(AbortCode::BadOpen);
            }
            Err(_) => return Err(AbortCode::BadOpen),
        };
        let ticket = StreamTicket { ledger, number: open.number };
        let HttpOpen { identity, audit_id, long_running, answer_seconds_max, reduce: question } = match open
            .kind
        {
            Some(stream_open::Kind::Http(open)) => open,
            Some(stream_open::Kind::Dial(dial)) => return Ok(Opened::Dial(dial, ticket)),
            Some(stream_open::Kind::Via(_)) => {
                warn!("the server opened a stream that only another server can serve: upgrade the server");
                return Err(AbortCode::BadOpen);
            }
            None => {
                warn!(
                    "the server opened a stream of a kind that this agent does not know: upgrade the agent"
                );
                return Err(AbortCode::BadOpen);
            }
        };
        // There is no default identity: a request without one is refused.
        let Some(identity) = identity else {
            warn!(audit_id, "the server opened a stream without an identity");
            return Err(AbortCode::BadOpen);
        };
        match self.0.guard.check(&identity) {
            Ok(cleared) => {
                let deadline = AnswerDeadline::new(long_running, answer_seconds_max);
                Ok(Opened::Request(ClearedRequest { cleared, audit_id, deadline, question, ticket }))
            }
            Err(refusal) => {
                // Above DEBUG nobody is named. The next line has the name.
                metrics::guard_refused(refusal.reason());
                warn!(audit_id, reason = refusal.reason().as_str(), "the guard refused an identity");
                debug!(audit_id, "the guard refused an identity: {refusal}");
                Err(refusal.code())
            }
        }
    }

    /// Serves the one exchange of a stream. A stream whose caller has gone is dropped at once, and with it
    /// the request to the API server.
    async fn serve_exchange(
        &self,
        stream: TunnelStream,
        cleared_request: ClearedRequest,
        active: Arc<ActiveRequest>,
    ) {
        let (verdict, gone) = (stream.abort_codes(), stream.gone());
        let cleared_request = Arc::new(cleared_request);
        let service = service_fn(|request: Request<Incoming>| {
            let (this, cleared_request, verdict) =
                (self.clone(), Arc::clone(&cleared_request), verdict.clone());
            let active = Arc::clone(&active);
            async move {
                let ClearedRequest { cleared, audit_id, deadline, question, ticket } = &*cleared_request;
                active.set_kind(request_kind(&request, deadline.is_long_running()).as_str());
                let forwarder = &this.0.forwarder;
                let answer = match ticket.begin() {
                    Ok(()) => forwarder.serve(cleared, audit_id, *deadline, question, request, &active).await,
                    Err(_) => Err(ForwardError::Fenced),
                };
                if let Ok(answer) = &answer {
                    active.answered(answer.status().as_u16());
                }
                answer
                    .map(|answer| answer.map(|body| AbortingBody { body, verdict: verdict.clone() }))
                    .inspect_err(|error| {
                        count_failure(error, &cleared_request.audit_id);
                        verdict.set(error.code());
                    })
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
        // Both arms are cancel-safe: a connection that is dropped here is to be cut short.
        tokio::select! {
            served = connection => if let Err(error) = served {
                debug!(audit_id = cleared_request.audit_id, error = %error_chain(&error), "an exchange broke");
            },
            () = gone => debug!(audit_id = cleared_request.audit_id, "the caller hung up"),
        }
    }
}

impl StreamTicket {
    /// Begins to carry the stream out. From here on the server can no longer be told that it was not.
    ///
    /// # Errors
    /// The stream is fenced.
    fn begin(&self) -> Result<(), AbortCode> {
        self.ledger.begin(self.number).map_err(|_| AbortCode::Fenced)
    }
}

/// The kind of a request, for metrics. Only the server knows its verb for policy.
fn request_kind(request: &Request<Incoming>, long_running: bool) -> RequestKind {
    if request.headers().contains_key(UPGRADE) {
        RequestKind::Upgrade
    } else if long_running {
        RequestKind::LongRunning
    } else if [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method()) {
        RequestKind::Read
    } else {
        RequestKind::Write
    }
}

fn count_failure(error: &ForwardError, audit_id: &str) {
    let code = error.code();
    metrics::refused(code);
    debug!(audit_id, error = %error_chain(error), "the API server gave no answer");
}
