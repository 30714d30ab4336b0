//! The enrollment listener, for agents that need a certificate: gRPC over TLS. An agent that has a certificate may show
//! it, and then gets in when unauthenticated clients have taken all other slots.

mod attestation;
mod audit_log;
mod nonce;
mod rate_limits;
mod service;
mod shared;
#[cfg(test)]
mod test_cluster;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use audit::Log;
use daemon::Scope;
use daemon::listen::LaneProof;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use proto::enrollment::enrollment_server::EnrollmentServer;
use proto::enrollment::{ANSWER_BYTES_MAX, REQUEST_BYTES_MAX};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::Status;
use tonic::codegen::Service as _;
use tracing::debug;
use trust::Signer;
use trust::proof::{EXPORTER_BYTES, EXPORTER_LABEL};

use crate::clocks::Clocks;
use crate::config::GRACE_DAYS_MAX;
use crate::directory::{Directory, GRACE_MAX};
use crate::identity::oidc::pod::Verifier;
use crate::listener::failed_attempts::FailedAttempts;
use crate::listener::{AcceptedConnection, ListenerLimits};
use nonce::Nonce;
use rate_limits::RateLimits;
use service::EnrollmentService;
use shared::SharedEnrollment;

pub use shared::EnrollmentSettings;

/// The limits of the listener. An agent comes once a day, and all agents come once after an outage. A valid certificate, a
/// token or a proof by a recorded key lets an agent in beyond the limits of its source.
pub const LIMITS: ListenerLimits = ListenerLimits {
    proof: LaneProof::Credential,
    reserved: RENEWALS_MAX,
    of_certificate: CONNECTIONS_OF_AGENT_MAX,
    ..ListenerLimits::DEFAULT
};

/// Connections beside the others, for agents that show a valid certificate or prove themselves soon.
const RENEWALS_MAX: usize = 1_000;

/// Most connections with one agent's certificate: the agent uses one.
const CONNECTIONS_OF_AGENT_MAX: usize = 8;

/// Most failures of one source in a minute. Beyond it, only the first attempt of each connection of that source is looked
/// at until the minute ends.
const FAILURES_MAX: u32 = 20;

/// Most streams of one connection: an agent sends one request at a time.
const STREAMS_MAX: u32 = 4;

/// Largest head of a request, in bytes.
const HEAD_BYTES_MAX: u32 = 16 * 1024;

/// Longest time for a request to arrive and to be answered.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Longest lifetime of a connection to this listener.
const CONNECTION_MAX: Duration = Duration::from_secs(30);

// Nobody is forgotten who may still come.
const _: () = assert!(GRACE_DAYS_MAX * 24 * 60 * 60 <= GRACE_MAX.as_secs());

/// The service behind the enrollment listener. Clones share one state.
#[derive(Clone)]
pub struct Enrollment(Arc<SharedEnrollment>);

impl Enrollment {
    /// A service in which the newest `signer` issues agents' certificates and `verifier` verifies pods' tokens. None is
    /// issued while `clocks` say that this server's own may be wrong.
    #[must_use]
    pub fn new(
        directory: Directory,
        signer: watch::Receiver<Arc<dyn Signer>>,
        settings: EnrollmentSettings,
        verifier: Verifier,
        clocks: Clocks,
        log: Log,
    ) -> Self {
        let (failures, pod_failures) = (FailedAttempts::new(FAILURES_MAX), FailedAttempts::new(FAILURES_MAX));
        let rate_limits = RateLimits::default();
        Self(Arc::new(SharedEnrollment {
            directory,
            signer,
            settings,
            failures,
            pod_failures,
            rate_limits,
            verifier,
            clocks,
            log,
        }))
    }

    /// Serves one connection to its end.
    pub async fn serve(self, accepted: AcceptedConnection, scope: Scope) {
        let AcceptedConnection { stream, peer, permit, .. } = accepted;
        let permit = Arc::new(permit);
        // The exporter binds a proof to this connection and no other.
        let exporter = stream.get_ref().1.export_keying_material([0; EXPORTER_BYTES], EXPORTER_LABEL, None);
        let Ok(exporter) = exporter else {
            debug!(%peer, "a connection without an exporter");
            return;
        };
        let proving = Arc::clone(&permit);
        let service_of_connection = EnrollmentService {
            shared: Arc::clone(&self.0),
            peer,
            exporter,
            nonce: Nonce::default(),
            proved: Box::new(move || proving.proved()),
            has_failed: AtomicBool::new(false),
        };
        let services = EnrollmentServer::new(service_of_connection)
            .max_decoding_message_size(REQUEST_BYTES_MAX)
            .max_encoding_message_size(ANSWER_BYTES_MAX);
        let service = service_fn(move |request: Request<Incoming>| {
            let mut services = services.clone();
            async move {
                Ok::<_, Infallible>(match timeout(ANSWER_MAX, services.call(request)).await {
                    Ok(Ok(response)) => response,
                    Err(_) => {
                        Status::deadline_exceeded("the request did not arrive completely in time").into_http()
                    }
                })
            }
        });
        let connection = http2::Builder::new(scope.background())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        if let Ok(Err(error)) = timeout(CONNECTION_MAX, connection).await {
            debug!(%peer, %error, "a connection to the enrollment listener failed");
        }
        drop(permit);
    }
}

impl std::fmt::Debug for Enrollment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Enrollment").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}
