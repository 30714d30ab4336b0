//! The requests of a trial, as their callers see them. Each returns its observation and judges nothing.

use std::time::{Duration, Instant};

use tokio::time::{sleep_until, timeout};

use super::code::{Request, Timing};
use super::gateway::{GatewayClient, OpenResponse};
use super::phases::FaultPhases;
use crate::check::reflector::Reflector;
use crate::fake_api::{Gate, HttpVersion, Store};

mod apply;
mod exec;
mod read;
mod watch;

/// The limit for a request to reach its stage before the fault.
const READY_MAX: Duration = Duration::from_secs(60);
/// The limit for the body of a refusal.
const STATUS_MAX: Duration = Duration::from_secs(10);

/// The parameters of every request.
#[derive(Debug)]
pub struct RequestContext {
    /// The kind of the request.
    pub request: Request,
    /// The stage that it is to reach.
    pub timing: Timing,
    /// The gateway to which it is sent.
    pub gateway: GatewayClient,
    /// The HTTP version of the request; an exec always asks in HTTP/1.1.
    pub version: HttpVersion,
    /// The path that it asks for.
    pub path: String,
    /// The gate at which its answer waits, if it is to be in flight.
    pub gate: Option<Gate>,
    /// True if the gate is opened as soon as the fault has begun, false if at its end.
    pub opens_gate: bool,
    /// The phases of the fault.
    pub phases: FaultPhases,
    /// The time from the fault's begin to the begin of a request that is to begin during it.
    pub new_after: Duration,
    /// The seed of its bytes.
    pub seed: u64,
    /// Bytes of a read's answer.
    pub bytes: usize,
    /// The time after the fault's end without any byte after which a request counts as hung.
    pub wait_max: Duration,
    /// The collection that is watched.
    pub store: Store,
}

/// The end of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestEnd {
    /// The answer was complete and right.
    Complete,
    /// An answer of the gateway or the API server that is not a success.
    Refused {
        /// The HTTP status of the refusal.
        status: u16,
        /// The body of the refusal.
        text: String,
        /// The header `Retry-After`, if there was one.
        retry_after: Option<String>,
    },
    /// The answer broke off with this error of the transport.
    Broken(String),
    /// An observation that is never allowed.
    Wrong(String),
    /// No byte came before the limit.
    Hung,
}

/// The observation of one request.
#[derive(Debug)]
pub struct Observation {
    /// The end of the request.
    pub end: RequestEnd,
    /// The time when its caller first got an error.
    pub noticed_at: Option<Instant>,
    /// The time when a byte first came after the fault's end.
    pub resumed: Option<Instant>,
    /// Number of missing bytes or events, as far as the request can find them.
    pub lost: u64,
    /// A watch's reflector, with the number of breaks and of refusals.
    pub reflector: Option<(Reflector, usize, usize)>,
}

/// Does a request from its begin to its end.
pub async fn perform(context: RequestContext) -> Observation {
    match context.request {
        Request::Get | Request::Download => read::perform(&context).await,
        Request::Apply => apply::perform(&context).await,
        Request::Exec => exec::perform(&context).await,
        Request::Watch => watch::perform(&context).await,
    }
}

impl RequestContext {
    /// Waits for the moment at which a request is to begin; those that are new begin during the fault.
    async fn may_begin(&self) {
        if self.timing == Timing::New {
            self.phases.ready(self.request).await;
            let begun = self.phases.begun().await;
            sleep_until((begun + self.new_after).into()).await;
        }
    }

    /// Beside a request in flight: waits until it has reached its gate, reports that, and opens the gate at
    /// the right time.
    async fn pass_gate(&self) {
        let Some(gate) = self.gate.as_ref().filter(|_| self.timing != Timing::New) else { return };
        // A request that never comes so far times out here, and its own end gives the reason.
        let _ = gate.reached(READY_MAX).await;
        self.phases.ready(self.request).await;
        self.phases.begun().await;
        if !self.opens_gate {
            self.phases.ended().await;
        }
        gate.open();
    }

    /// A future's output, or `None` where patience ends.
    async fn unless_hung<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let hung = async {
            let ended = self.phases.ended().await;
            sleep_until((ended + self.wait_max).into()).await;
        };
        // What is dropped here is no longer wanted.
        tokio::select! {
            output = future => Some(output),
            () = hung => None,
        }
    }
}

impl Observation {
    fn of(end: RequestEnd, noticed_at: Option<Instant>, resumed: Option<Instant>) -> Self {
        Self { end, noticed_at, resumed, lost: 0, reflector: None }
    }

    fn hung() -> Self {
        Self::of(RequestEnd::Hung, None, None)
    }

    /// That it was broken off just now.
    fn broken(how: String) -> Self {
        Self::of(RequestEnd::Broken(how), Some(Instant::now()), None)
    }
}

impl RequestEnd {
    /// An answer that is not a success.
    async fn refused(mut answer: OpenResponse) -> Self {
        let status = answer.response.status().as_u16();
        let retry_after = answer.response.headers().get("retry-after");
        let retry_after = retry_after.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        Self::Refused { status, text: answer.text(STATUS_MAX).await, retry_after }
    }
}

/// `future` for at most this long.
async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Result<T, String> {
    timeout(limit, future).await.map_err(|_| format!("nothing within {limit:?}"))
}
