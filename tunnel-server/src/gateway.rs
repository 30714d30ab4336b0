//! The callers' door: who asks, what for, whether they may, through which tunnel, and then the exchange itself.

mod body;
mod clusters;
mod connection;
mod forward;
mod hangup;
mod refusal;
mod upgrade;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use daemon::Scope;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::{Body, Incoming};
use proto::upgrade::Protocol;
use proto::{ClusterId, headers};
use tokio::sync::Semaphore;
use tracing::debug;
use uuid::Uuid;

use crate::action::{Action, Asked, Head, Names};
use crate::identity::{Authenticator, Caller};
use crate::metrics;
use crate::policy::{Permit, Policy};
use crate::registry::Registry;
use body::{AnswerBody, Slot};
use forward::Exchange;
use hangup::Exchange as Watched;

pub use connection::Peer;
pub use refusal::Refusal;

/// Requests that are served at once, to the last byte of their answers; beyond, callers are asked to come again.
pub const EXCHANGES_MAX: usize = 10_000;

/// Longest `Audit-ID` of a caller that is kept, in bytes (a UUID has 36).
const AUDIT_ID_BYTES_MAX: usize = 64;

/// The callers' door. Clones are the same door.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

struct Inner {
    authenticator: Authenticator,
    names: Names,
    policy: Policy,
    registry: Registry,
    slots: Arc<Semaphore>,
    scope: Scope,
}

/// A request that may be served, with the proof.
enum Admitted {
    /// `GET /clusters`.
    List(Caller),
    /// Everything for a cluster.
    Exchange(Box<ForCluster>),
}

struct ForCluster {
    permit: Permit,
    upgrade: Option<Protocol>,
}

impl Gateway {
    /// A door for callers whom `authenticator` knows, to clusters that `policy` allows and `registry` reaches.
    #[must_use]
    pub fn new(
        authenticator: Authenticator,
        names: Names,
        policy: Policy,
        registry: Registry,
        scope: Scope,
    ) -> Self {
        let slots = Arc::new(Semaphore::new(EXCHANGES_MAX));
        Self(Arc::new(Inner { authenticator, names, policy, registry, slots, scope }))
    }

    /// Serves one request. Whatever goes wrong before the answer's head becomes a `Status`; what goes wrong after it
    /// breaks the body off.
    async fn serve(
        self,
        peer: Arc<Peer>,
        mut request: Request<Incoming>,
        watched: Option<Arc<Watched>>,
    ) -> Result<Response<AnswerBody>, Infallible> {
        let began = Instant::now();
        let running = watched.map(|watched| watched.begin(!request.body().is_end_stream()));
        let audit_id = audit_id(&request);
        let asks_upgrade = request.headers().contains_key(UPGRADE);
        let (verb, served) = match self.admit(&peer, &mut request) {
            Ok(Admitted::List(caller)) => {
                ("list", Ok(clusters::list(&self.0.registry, &self.0.policy, &caller)))
            }
            Ok(Admitted::Exchange(admitted)) => {
                let verb = admitted.permit.action().verb().as_str();
                (verb, self.exchange(*admitted, &audit_id, request, running).await)
            }
            Err(refusal) => ("unknown", Err(refusal)),
        };
        let mut response = served.unwrap_or_else(|refusal| {
            debug!(from = %peer.address, audit_id, %refusal, "refused");
            refusal.response().map(AnswerBody::text)
        });
        if asks_upgrade && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            // What stands behind the request was meant for another protocol, and is no next request.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Ok(audit_id) = HeaderValue::from_str(&audit_id) {
            response.headers_mut().entry("audit-id").or_insert(audit_id);
        }
        metrics::answered(verb, response.status().as_u16(), began.elapsed());
        Ok(response)
    }

    /// Each step takes the proof of the one before; nothing is sent before the last.
    fn admit(&self, peer: &Peer, request: &mut Request<Incoming>) -> Result<Admitted, Refusal> {
        let inner = &self.0;
        let now = SystemTime::now();
        let caller = inner.authenticator.authenticate(peer.certified.as_ref(), request.headers(), now)?;
        let upgrade = Protocol::asked(request.method(), request.headers())?;
        headers::clean_request(request.headers_mut())?;
        let (version, method) = (request.version(), request.method());
        let server_name = peer.server_name.as_deref();
        let head = Head::received(server_name, version, method, request.uri(), request.headers(), upgrade)?;
        match Action::parse(&inner.names, &head)? {
            Asked::ClusterList => Ok(Admitted::List(caller)),
            Asked::Cluster(action) => {
                let permit = inner.policy.authorize(&caller, action)?;
                Ok(Admitted::Exchange(Box::new(ForCluster { permit, upgrade })))
            }
        }
    }

    async fn exchange(
        &self,
        admitted: ForCluster,
        audit_id: &str,
        request: Request<Incoming>,
        running: Option<hangup::Running>,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let ForCluster { permit, upgrade } = admitted;
        let permit_to_run = Arc::clone(&self.0.slots).try_acquire_owned().map_err(|_| Refusal::Busy)?;
        let slot = Slot::new(permit_to_run, running);
        let prefix = prefix(request.uri().path(), permit.action().cluster());
        let exchange =
            Exchange::begin(permit, &self.0.registry, audit_id, prefix, self.0.scope.clone()).await?;
        match upgrade {
            None => exchange.forward(request, slot).await,
            Some(protocol) => exchange.upgrade(protocol, request, slot).await,
        }
    }
}

/// What stands before a cluster's own paths where callers see them: its name, where it was chosen by path. By host name
/// no path begins so, because that is refused.
fn prefix(path: &str, cluster: &ClusterId) -> String {
    if path.starts_with("/clusters/") { format!("/clusters/{cluster}") } else { String::new() }
}

/// The name of an exchange in every log: the caller's, if it sent one that can be printed, or a new one.
fn audit_id(request: &Request<Incoming>) -> String {
    request
        .headers()
        .get("audit-id")
        .and_then(|id| id.to_str().ok())
        .filter(|id| !id.is_empty() && id.len() <= AUDIT_ID_BYTES_MAX)
        .map_or_else(|| Uuid::now_v7().to_string(), str::to_owned)
}
