//! Requests to the API server: sends them over pooled connections, and upgrades over connections of their
//! own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::Scope;
use http::header::{CONNECTION, HOST, UPGRADE};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Request, Response, StatusCode, Uri, request, response};
use http_body_util::Empty;
use hyper::body::{Body, Incoming};
use hyper::upgrade::{OnUpgrade, Upgraded};
use proto::upgrade_protocol::UpgradeProtocol;
use proto::wire::ServedCertificate;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::debug;

use super::balancer::Balancer;
use super::connection::Http1Connection;
use super::credential::{Credential, CredentialOwner, Snapshot};
use super::credential_check::CredentialCheck;
use super::error::ApiServerError;
use super::limits::{AnswerDeadline, Timeouts};
use super::material::CredentialError;
use super::pool::{Pool, PoolFigures, Slot};
use super::probing;
use super::request_body::{BoxError, Progress, RequestBody, ResendableBody};
use super::resend::{Resends, SendFailure, is_read};
use super::response_body::{Lease, ResponseBody};
use crate::clock::Clock;
use crate::config::ApiServerSource;
use crate::metrics;

/// The path of a request that shows whether the API server accepts the agent's credential. It refuses an
/// invalid one by 401 whatever the path is, and everybody who is authenticated may read this one.
const CREDENTIAL_PROBE: &str = "/version";

/// A client of the API server. Clones share one pool.
#[derive(Clone)]
pub struct ApiServer(Arc<SharedApiServer>);

struct SharedApiServer {
    credential: Arc<Credential>,
    balancer: Arc<Balancer>,
    pool: Pool,
    timeouts: Timeouts,
    check: CredentialCheck<Snapshot>,
}

/// An answer to a request, with the credential that the request bore.
struct Answered {
    response: Response<Incoming>,
    slot: Slot,
    progress: Progress,
    snapshot: Arc<Snapshot>,
}

/// The API server's answer to a request for an upgrade.
#[derive(Debug)]
pub enum UpgradeAnswer {
    /// It switched to the protocol that was requested.
    Switched {
        /// The head of the 101, unchanged.
        head: Box<response::Parts>,
        /// The connection, which speaks that protocol from now on.
        connection: SwitchedConnection,
    },
    /// It declined, and the connection ends with this answer.
    Declined(Box<Response<ResponseBody>>),
}

/// A connection that was upgraded to another protocol. Dropping it closes the connection.
#[derive(Debug)]
pub struct SwitchedConnection {
    upgrade: OnUpgrade,
    connection: Http1Connection,
}

impl ApiServer {
    /// A client whose connections are background tasks of `scope`. API servers' certificates are verified by
    /// `clock`. Reads the credential, and connects to nothing yet.
    ///
    /// # Errors
    ///
    /// [`CredentialError`] names the file and what to do.
    pub fn new(
        source: ApiServerSource,
        timeouts: Timeouts,
        clock: Clock,
        scope: &Scope,
    ) -> Result<Self, CredentialError> {
        let credential = Credential::load(source, CredentialOwner::Agent, timeouts.recheck, clock)?;
        let this = Self::with(credential, timeouts, Arc::default(), scope);
        let balancer = this.0.balancer.clone();
        scope.spawn_background(probing::run(balancer, Arc::downgrade(&this.0.credential), scope.clone()));
        Ok(this)
    }

    /// A client of the same API servers for requests with their callers' own credentials. Its own connections
    /// show no client certificate and send no token of the agent's. It shares this one's balancer.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn for_callers(
        &self,
        source: ApiServerSource,
        timeouts: Timeouts,
        scope: &Scope,
    ) -> Result<Self, CredentialError> {
        let clock = self.0.credential.clock().clone();
        let credential = Credential::load(source, CredentialOwner::Callers, timeouts.recheck, clock)?;
        Ok(Self::with(credential, timeouts, self.0.balancer.clone(), scope))
    }

    fn with(credential: Credential, timeouts: Timeouts, balancer: Arc<Balancer>, scope: &Scope) -> Self {
        let credential = Arc::new(credential);
        let pool = Pool::new(scope.clone(), timeouts, balancer.clone());
        let check = CredentialCheck::default();
        Self(Arc::new(SharedApiServer { credential, balancer, pool, timeouts, check }))
    }

    /// Balances requests from now on among those API servers at these addresses that are ready. Each has to
    /// show a certificate for the name in the credential. Where none is ready, requests go to the address in
    /// the credential.
    pub fn balance(&self, addresses: &[SocketAddr]) {
        self.0.balancer.set(addresses);
    }

    /// The balanced API servers that are ready, beginning with another one each time.
    #[must_use]
    pub fn ready(&self) -> Vec<SocketAddr> {
        self.0.balancer.ready()
    }

    /// Returns true if `address` is a balanced API server that is not ready.
    #[must_use]
    pub fn is_down(&self, address: SocketAddr) -> bool {
        self.0.balancer.is_down(address)
    }

    /// Changes whenever requests go to other API servers than before.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.balancer.subscribe()
    }

    /// The serving certificates that API servers have shown last, as they change.
    #[must_use]
    pub fn certificates(&self) -> watch::Receiver<Vec<ServedCertificate>> {
        self.0.balancer.certificates.subscribe()
    }

    /// The address in the credential's files, as `host:port`, when they were last read.
    #[must_use]
    pub fn authority(&self) -> Authority {
        self.0.credential.authority()
    }

    /// Sends a request whose URI is in origin form, with its path byte for byte, and returns the answer's
    /// head. Sets `Host`, and also `Authorization` unless it is [for callers](Self::for_callers). Dropping
    /// the future or the answer cancels at the API server.
    ///
    /// A request is sent again on another connection if the API server has processed nothing of it: no byte
    /// of it was written, or the API server says so by GOAWAY or REFUSED_STREAM. That goes for writes, too, as
    /// long as the part of the body that was sent is kept. A read is also sent again if its connection is
    /// lost before its answer.
    ///
    /// # Errors
    ///
    /// [`ApiServerError`]. The answer's body ends with one, too, if it is not complete.
    pub async fn send<B>(&self, request: Request<B>) -> Result<Response<ResponseBody>, ApiServerError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.send_by(request, AnswerDeadline::Default).await
    }

    /// The same for a request to which Kubernetes gives no deadline.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub async fn send_long_running<B>(
        &self,
        request: Request<B>,
    ) -> Result<Response<ResponseBody>, ApiServerError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.send_by(request, AnswerDeadline::LongRunning).await
    }

    /// The same with a deadline for the answer's head.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub async fn send_by<B>(
        &self,
        request: Request<B>,
        deadline: AnswerDeadline,
    ) -> Result<Response<ResponseBody>, ApiServerError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (head, body) = request.into_parts();
        let limit = deadline.limit(self.0.timeouts.head);
        let is_read = is_read(&head, !body.is_end_stream());
        let progress = Progress::default();
        let body = ResendableBody::new(body, &progress);
        let answered = self.exchange(head, (body, progress), Resends::new(is_read), limit, None).await?;
        self.received(answered).await
    }

    /// Sends a request until it is answered, or may not be sent again. It bears the credential of `with`, or
    /// else the current one.
    async fn exchange(
        &self,
        mut head: request::Parts,
        (body, progress): (ResendableBody, Progress),
        mut resends: Resends,
        limit: Option<Duration>,
        with: Option<&Arc<Snapshot>>,
    ) -> Result<Answered, ApiServerError> {
        let target = origin_form(&head.uri)?;
        head.headers.remove(HOST);
        // Only the first sending always has all of the body.
        while let Some(sending) = body.next_sending() {
            let mut request = Request::from_parts(head.clone(), sending);
            let snapshot = match with {
                Some(snapshot) => snapshot.clone(),
                None => self.0.credential.current().await,
            };
            let mut slot = self.0.pool.acquire(&snapshot).await?;
            self.0.credential.set_address(&mut request, &target, &snapshot, slot.is_multiplexed());
            progress.touch();
            let answer = match limit {
                Some(limit) => progress.head_within(limit, slot.send(request)).await?,
                None => progress.head(slot.send(request)).await,
            };
            let failed = match answer {
                Ok(response) => {
                    body.forget();
                    return Ok(Answered { response, slot, progress, snapshot });
                }
                Err(failed) => failed,
            };
            let failure = SendFailure::of(&failed);
            let resend = if progress.is_broken() { None } else { resends.after(failure) };
            let Some(resend) = resend else {
                let error = progress.error_from(failed.into_error());
                let is_unprocessed = failure.is_unprocessed() && matches!(error, ApiServerError::Lost(_));
                return Err(if is_unprocessed { ApiServerError::NotProcessed } else { error });
            };
            if resend.leaves_connection {
                slot.discard();
            } else {
                drop(slot);
            }
            debug!(?failure, ?resend, "a request to the API server is sent again");
            metrics::apiserver_resent(resend.reason);
            if !resend.pause.is_zero() {
                sleep(resend.pause).await;
            }
        }
        Err(ApiServerError::NotProcessed)
    }

    /// Requests an upgrade on a connection of its own, with an empty body. No byte is sent after it before
    /// the answer, whose head always has a deadline. Sets `Connection` and `Upgrade`, too.
    ///
    /// # Errors
    ///
    /// [`ApiServerError`]. `ProtocolError` for a 101 to anything else than `protocol`.
    pub async fn upgrade_by(
        &self,
        request: Request<()>,
        protocol: UpgradeProtocol,
        deadline: AnswerDeadline,
    ) -> Result<UpgradeAnswer, ApiServerError> {
        let (head, ()) = request.into_parts();
        let target = origin_form(&head.uri)?;
        let limit = deadline.limit(self.0.timeouts.head).unwrap_or(self.0.timeouts.head);
        let progress = Progress::default();
        let body = RequestBody::once(Empty::new(), &progress);
        let mut request = Request::from_parts(head, body);
        let snapshot = self.0.credential.current().await;
        let mut connection = self.0.pool.dedicated(&snapshot).await?;
        request.headers_mut().remove(HOST);
        self.0.credential.set_address(&mut request, &target, &snapshot, false);
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert(UPGRADE, protocol.token());
        progress.touch();
        let mut response = progress
            .head_within(limit, connection.send(request))
            .await?
            .map_err(|refused| progress.error_from(refused.into_error()))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            self.check_credential(response.status(), &snapshot).await?;
            snapshot.target.strip_base_path(response.headers_mut());
            let lease = Lease::Dedicated(connection);
            let declined = response.map(|body| ResponseBody::new(body, lease, progress));
            return Ok(UpgradeAnswer::Declined(Box::new(declined)));
        }
        if !protocol.is_accepted_by(response.status(), response.headers()) {
            return Err(ApiServerError::ProtocolError(
                "it switched to another protocol than the requested one",
            ));
        }
        let upgrade = hyper::upgrade::on(&mut response);
        let (head, _) = response.into_parts();
        Ok(UpgradeAnswer::Switched {
            head: Box::new(head),
            connection: SwitchedConnection { upgrade, connection },
        })
    }

    /// The numbers of connections, streams and waiting requests in the pool.
    #[must_use]
    pub fn pool_figures(&self) -> PoolFigures {
        self.0.pool.figures()
    }

    async fn received(&self, answered: Answered) -> Result<Response<ResponseBody>, ApiServerError> {
        let Answered { mut response, slot, progress, snapshot } = answered;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            slot.discard();
            return Err(ApiServerError::ProtocolError(
                "it switched protocols without a request for an upgrade",
            ));
        }
        self.check_credential(response.status(), &snapshot).await?;
        snapshot.target.strip_base_path(response.headers_mut());
        Ok(response.map(|body| ResponseBody::new(body, Lease::Pooled(slot), progress)))
    }

    /// Fails if an answer of this status refuses the agent's own credential. A 401 may also come from a
    /// workload, a kubelet or an aggregated API server behind the API server, and is an answer to the caller
    /// then. So the API server is asked whether it accepts the credential that the request bore.
    async fn check_credential(
        &self,
        status: StatusCode,
        snapshot: &Arc<Snapshot>,
    ) -> Result<(), ApiServerError> {
        if status != StatusCode::UNAUTHORIZED || self.0.credential.owner() != CredentialOwner::Agent {
            return Ok(());
        }
        let is_refused = self.0.check.is_refused(snapshot, || self.probe_credential(snapshot)).await;
        if !is_refused {
            return Ok(());
        }
        // The agent's token may have been replaced before the old one expired.
        self.0.credential.invalidate();
        Err(ApiServerError::CredentialRefused)
    }

    /// Says whether the API server refuses the agent's own credential. `None` if it does not answer.
    async fn probe_credential(&self, snapshot: &Arc<Snapshot>) -> Option<bool> {
        let (head, ()) = Request::get(CREDENTIAL_PROBE).body(()).ok()?.into_parts();
        let progress = Progress::default();
        let body = ResendableBody::new(Empty::<Bytes>::new(), &progress);
        let asked = self.exchange(head, (body, progress), Resends::new(true), None, Some(snapshot));
        let Answered { response, slot, progress, .. } = asked.await.ok()?;
        let is_refused = response.status() == StatusCode::UNAUTHORIZED;
        // The rest of the answer is of no use: it is dropped, and its stream with it.
        drop(ResponseBody::new(response.into_body(), Lease::Pooled(slot), progress));
        Some(is_refused)
    }
}

impl SwitchedConnection {
    /// The connection, once hyper has handed it over.
    ///
    /// # Errors
    ///
    /// `Lost`: the connection broke before that.
    pub async fn connection(self) -> Result<Upgraded, ApiServerError> {
        let Self { upgrade, connection } = self;
        let upgraded = upgrade.await.map_err(|error| ApiServerError::Lost(Arc::new(error)));
        // Not earlier: this ends the task that hands the connection over.
        drop(connection);
        upgraded
    }
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("timeouts", &self.0.timeouts).finish_non_exhaustive()
    }
}

/// The path and query of a URI in origin form.
fn origin_form(uri: &Uri) -> Result<PathAndQuery, ApiServerError> {
    let path = uri.path_and_query().filter(|path| path.as_str().starts_with('/'));
    match path {
        Some(path) if uri.authority().is_none() => Ok(path.clone()),
        Some(_) | None => Err(ApiServerError::ProtocolError("the request's target is not a path")),
    }
}
