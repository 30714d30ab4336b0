//! Requests to the API server: sends them over pooled connections, and upgrades over connections of their
//! own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::Scope;
use http::header::{CONNECTION, HOST, UPGRADE};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Request, Response, StatusCode, Uri, response};
use http_body_util::Empty;
use hyper::body::{Body, Incoming};
use hyper::upgrade::{OnUpgrade, Upgraded};
use proto::upgrade_protocol::UpgradeProtocol;
use proto::wire::ServedCertificate;
use tokio::sync::watch;

use super::balancer::Balancer;
use super::connection::Http1Connection;
use super::credential::{Credential, CredentialOwner};
use super::error::ApiServerError;
use super::limits::Timeouts;
use super::material::CredentialError;
use super::pool::{Pool, PoolFigures, Slot};
use super::probing;
use super::request_body::{BoxError, Progress, RequestBody};
use super::response_body::{Lease, ResponseBody};
use crate::config::ApiServerSource;

/// Most connections that a request is sent on, where hyper hands it back because no byte of it was written.
const RESEND_MAX: usize = 4;

/// A client of the API server. Clones share one pool.
#[derive(Clone)]
pub struct ApiServer(Arc<SharedApiServer>);

struct SharedApiServer {
    credential: Arc<Credential>,
    balancer: Arc<Balancer>,
    pool: Pool,
    timeouts: Timeouts,
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
    Declined(Response<ResponseBody>),
}

/// A connection that was upgraded to another protocol. Dropping it closes the connection.
#[derive(Debug)]
pub struct SwitchedConnection {
    upgrade: OnUpgrade,
    connection: Http1Connection,
}

impl ApiServer {
    /// A client whose connections are background tasks of `scope`. Reads the credential, and connects to
    /// nothing yet.
    ///
    /// # Errors
    ///
    /// [`CredentialError`] names the file and what to do.
    pub fn new(source: ApiServerSource, timeouts: Timeouts, scope: &Scope) -> Result<Self, CredentialError> {
        let this = Self::with_owner(CredentialOwner::Agent, source, timeouts, Arc::default(), scope)?;
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
        Self::with_owner(CredentialOwner::Callers, source, timeouts, self.0.balancer.clone(), scope)
    }

    fn with_owner(
        owner: CredentialOwner,
        source: ApiServerSource,
        timeouts: Timeouts,
        balancer: Arc<Balancer>,
        scope: &Scope,
    ) -> Result<Self, CredentialError> {
        let credential = Arc::new(Credential::load(source, owner, timeouts.recheck)?);
        let pool = Pool::new(scope.clone(), timeouts, balancer.clone());
        Ok(Self(Arc::new(SharedApiServer { credential, balancer, pool, timeouts })))
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
    /// A request is sent again only if not one byte of it was written.
    ///
    /// # Errors
    ///
    /// [`ApiServerError`]. The answer's body ends with one, too, if it is not complete.
    pub async fn send<B>(&self, request: Request<B>) -> Result<Response<ResponseBody>, ApiServerError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.send_within(request, Some(self.0.timeouts.head)).await
    }

    /// The same for a request to which Kubernetes gives no deadline: its answer's head may take any time, as
    /// long as the caller waits. A dead connection is noticed by its pings.
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
        self.send_within(request, None).await
    }

    async fn send_within<B>(
        &self,
        request: Request<B>,
        limit: Option<Duration>,
    ) -> Result<Response<ResponseBody>, ApiServerError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut head, body) = request.into_parts();
        let target = origin_form(&head.uri)?;
        let progress = Progress::default();
        let body = RequestBody::new(body, &progress);
        head.headers.remove(HOST);
        let mut request = Request::from_parts(head, body);
        for _ in 0..RESEND_MAX {
            let snapshot = self.0.credential.current().await;
            let mut slot = self.0.pool.acquire(&snapshot).await?;
            self.0.credential.set_address(&mut request, &target, &snapshot, slot.is_multiplexed());
            progress.touch();
            let answer = match limit {
                Some(limit) => progress.head_within(limit, slot.send(request)).await?,
                None => progress.head(slot.send(request)).await,
            };
            match answer {
                Ok(response) => return self.received(response, slot, progress),
                Err(mut refused) => match refused.take_message() {
                    Some(untouched) => {
                        slot.discard();
                        request = untouched;
                    }
                    None => return Err(progress.error_from(refused.into_error())),
                },
            }
        }
        Err(ApiServerError::CutShort)
    }

    /// Requests an upgrade on a connection of its own, with an empty body. No byte is sent after it before
    /// the answer. Sets `Connection` and `Upgrade`, too.
    ///
    /// # Errors
    ///
    /// [`ApiServerError`]. `ProtocolError` for a 101 to anything else than `protocol`.
    pub async fn upgrade(
        &self,
        request: Request<()>,
        protocol: UpgradeProtocol,
    ) -> Result<UpgradeAnswer, ApiServerError> {
        let (head, ()) = request.into_parts();
        let target = origin_form(&head.uri)?;
        let progress = Progress::default();
        let body = RequestBody::new(Empty::new(), &progress);
        let mut request = Request::from_parts(head, body);
        let snapshot = self.0.credential.current().await;
        let mut connection = self.0.pool.dedicated(&snapshot).await?;
        request.headers_mut().remove(HOST);
        self.0.credential.set_address(&mut request, &target, &snapshot, false);
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert(UPGRADE, protocol.token());
        progress.touch();
        let mut response = progress
            .head_within(self.0.timeouts.head, connection.send(request))
            .await?
            .map_err(|refused| progress.error_from(refused.into_error()))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            self.check_status(response.status());
            let lease = Lease::Dedicated(connection);
            return Ok(UpgradeAnswer::Declined(
                response.map(|body| ResponseBody::new(body, lease, progress)),
            ));
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

    fn received(
        &self,
        response: Response<Incoming>,
        slot: Slot,
        progress: Progress,
    ) -> Result<Response<ResponseBody>, ApiServerError> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            slot.discard();
            return Err(ApiServerError::ProtocolError(
                "it switched protocols without a request for an upgrade",
            ));
        }
        self.check_status(response.status());
        Ok(response.map(|body| ResponseBody::new(body, Lease::Pooled(slot), progress)))
    }

    fn check_status(&self, status: StatusCode) {
        if status == StatusCode::UNAUTHORIZED && self.0.credential.owner() == CredentialOwner::Agent {
            // The agent's token may have been replaced before the old one expired.
            self.0.credential.invalidate();
        }
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
