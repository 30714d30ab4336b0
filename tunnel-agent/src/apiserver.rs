//! The cluster's kube-apiserver, spoken to with the agent's own credential, or with those that callers bring.
//!
//! One value for the whole process and each of the two: a pool of verified connections (HTTP/2 where the server offers it, else HTTP/1.1),
//! and a connection of its own for every upgrade. Dropping what a call returned, or the call itself, tells the API
//! server at once.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::Scope;
use http::header::{AUTHORIZATION, CONNECTION, HOST, UPGRADE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version, response};
use http_body_util::Empty;
use hyper::body::{Body, Incoming};
use hyper::upgrade::{OnUpgrade, Upgraded};
use proto::AbortCode;
use proto::deadlines::API_SERVER_HEAD_MAX;
use proto::upgrade::Protocol;
use proto::wire::ServedCertificate;
use tokio::sync::watch;

mod body;
mod connection;
mod credential;
mod document;
mod endpoints;
mod in_cluster;
mod kubeconfig;
mod material;
mod pool;
mod probing;
mod served;
mod tls;

pub use body::ResponseBody;
pub use connection::STREAMS_MAX;
pub use document::DocumentError;
pub use endpoints::{PROBE_AGAIN_EVERY, PROBE_EVERY, PROBE_MAX};
pub use material::CredentialError;
pub use pool::{CONNECTIONS_MAX, PoolFigures, WAITING_MAX};

use crate::config::ApiServerSource;
use body::{Hold, Progress, RequestBody};
use connection::Single;
use credential::{Credential, Snapshot, Whose};
use pool::{Pool, Slot};
use probing::Balance;

/// How often a request that hyper handed back untouched is given to another connection.
const HANDED_BACK_MAX: usize = 4;

/// A boxed error of a request's body.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The API server. Clones share one pool.
#[derive(Clone)]
pub struct ApiServer(Arc<Inner>);

struct Inner {
    credential: Credential,
    balance: Arc<Balance>,
    pool: Pool,
    limits: Limits,
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// TCP and TLS together.
    pub connect: Duration,
    /// From the last byte of a request's body that was taken to the answer's head.
    pub head: Duration,
    /// How long a connection that nobody uses is kept.
    pub idle: Duration,
    /// How old what was read from the credential's files may be.
    pub recheck: Duration,
}

/// Why the API server gave no answer, or not all of it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiServerError {
    /// No connection.
    #[error(
        "cannot connect to the API server at {authority}; check that it runs and can be reached from here"
    )]
    Unreachable {
        /// `host:port`.
        authority: Authority,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// As many connections as allowed, all in use.
    #[error("all {CONNECTIONS_MAX} connections to the API server are in use")]
    Full,
    /// A connection, and then nothing.
    #[error("the API server did not answer within {} s", .0.as_secs_f32())]
    Silent(Duration),
    /// Not the server that the CA vouches for.
    #[error("the API server at {authority} could not be verified; check the CA that the agent was given")]
    Untrusted {
        /// `host:port`.
        authority: Authority,
        /// What TLS said.
        source: Arc<rustls::Error>,
    },
    /// The server refused our certificate.
    #[error("the API server at {authority} refused the agent's certificate; renew it")]
    NoCredential {
        /// `host:port`.
        authority: Authority,
        /// What TLS said.
        source: Arc<rustls::Error>,
    },
    /// The connection broke before the answer's end.
    #[error("the connection to the API server broke")]
    Lost(#[source] Arc<hyper::Error>),
    /// The answer's end did not come: the server stopped in the middle without saying why.
    #[error("the API server's answer ended too early")]
    CutShort,
    /// What came is not an answer to what was asked.
    #[error("the API server's answer breaks HTTP: {0}")]
    Nonsense(&'static str),
    /// The request's own body broke, so that it could not be sent whole.
    #[error("the request ended too early")]
    CallerGone,
}

/// What an API server answered to a request for an upgrade.
#[derive(Debug)]
pub enum Answer {
    /// It switched, as asked.
    Switched {
        /// The head of the 101, unchanged.
        head: Box<response::Parts>,
        /// The connection.
        connection: Switched,
    },
    /// It did not, and the connection ends with this answer.
    Declined(Response<ResponseBody>),
}

/// A connection that speaks another protocol from now on. Dropping it closes the connection.
#[derive(Debug)]
pub struct Switched {
    upgrade: OnUpgrade,
    single: Single,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            head: API_SERVER_HEAD_MAX,
            idle: Duration::from_secs(60),
            recheck: Duration::from_secs(5),
        }
    }
}

impl ApiServer {
    /// An API server whose connections are attendants of `scope`. Reads the credential; connects to nothing yet.
    ///
    /// # Errors
    ///
    /// [`CredentialError`] names the file and what to do.
    pub fn new(source: ApiServerSource, limits: Limits, scope: &Scope) -> Result<Self, CredentialError> {
        let this = Self::asked_by(Whose::Agent, source, limits, Arc::default(), scope)?;
        let balance = this.0.balance.clone();
        scope.attend(probing::keep(balance, Arc::downgrade(&this.0), scope.clone()));
        Ok(this)
    }

    /// The same API server for requests that bear a credential of their own: over connections of their own, on which no
    /// client certificate is shown, and without the agent's token. Balanced as this one is.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn of_callers(
        &self,
        source: ApiServerSource,
        limits: Limits,
        scope: &Scope,
    ) -> Result<Self, CredentialError> {
        Self::asked_by(Whose::Callers, source, limits, self.0.balance.clone(), scope)
    }

    fn asked_by(
        whose: Whose,
        source: ApiServerSource,
        limits: Limits,
        balance: Arc<Balance>,
        scope: &Scope,
    ) -> Result<Self, CredentialError> {
        let credential = Credential::load(source, whose, limits.recheck)?;
        let pool = Pool::new(scope.clone(), limits, balance.clone());
        Ok(Self(Arc::new(Inner { credential, balance, pool, limits })))
    }

    /// Balances requests among the API servers at these addresses, as far as they are ready, from now on. Each has to show a
    /// certificate for the name that the credential has. Where none is ready, requests go where the credential says.
    pub fn balance(&self, addresses: &[SocketAddr]) {
        self.0.balance.set(addresses);
    }

    /// The API servers that are ready, of those that requests are balanced among, beginning with another one each time.
    #[must_use]
    pub fn ready(&self) -> Vec<SocketAddr> {
        self.0.balance.ready()
    }

    /// Whether requests would be balanced to `address` if it were ready, which it is not.
    #[must_use]
    pub fn is_down(&self, address: SocketAddr) -> bool {
        self.0.balance.is_down(address)
    }

    /// Is told when requests go to others than before.
    #[must_use]
    pub fn moves(&self) -> watch::Receiver<()> {
        self.0.balance.subscribe()
    }

    /// The serving certificates that API servers have shown last, now and whenever they change.
    #[must_use]
    pub fn certificates(&self) -> watch::Receiver<Vec<ServedCertificate>> {
        self.0.balance.served.subscribe()
    }

    /// Where it is: `host:port`, as its credential's files last said.
    #[must_use]
    pub fn authority(&self) -> Authority {
        self.0.credential.authority()
    }

    /// Sends a request whose URI is in origin form, with its path byte for byte, and returns the answer's head. `Host`
    /// is ours, and so is `Authorization` unless it is [of callers](Self::of_callers). Dropping the future or the answer cancels at the API server.
    ///
    /// A request is sent again only if not one byte of it was written.
    ///
    /// # Errors
    ///
    /// [`ApiServerError`]. The body of the answer ends with one, too, if it is not whole.
    pub async fn send<B>(&self, request: Request<B>) -> Result<Response<ResponseBody>, ApiServerError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.send_within(request, Some(self.0.limits.head)).await
    }

    /// The same for a request to which Kubernetes gives no deadline: its answer's head may come whenever it likes, as
    /// long as somebody waits for it. A connection that has died is noticed by its pings.
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
        for _ in 0..HANDED_BACK_MAX {
            let snapshot = self.0.credential.current().await;
            let mut slot = self.0.pool.acquire(&snapshot).await?;
            self.address(&mut request, &target, &snapshot, slot.is_multiplexed());
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
                    None => return Err(progress.blame(refused.into_error())),
                },
            }
        }
        Err(ApiServerError::CutShort)
    }

    /// Asks for an upgrade on a connection of its own, with an empty body; not one byte follows before the answer.
    /// `Connection` and `Upgrade` are ours, too.
    ///
    /// # Errors
    ///
    /// [`ApiServerError`]; `Nonsense` for a 101 to anything else than `protocol`.
    pub async fn upgrade(&self, request: Request<()>, protocol: Protocol) -> Result<Answer, ApiServerError> {
        let (head, ()) = request.into_parts();
        let target = origin_form(&head.uri)?;
        let progress = Progress::default();
        let body = RequestBody::new(Empty::new(), &progress);
        let mut request = Request::from_parts(head, body);
        let snapshot = self.0.credential.current().await;
        let mut single = self.0.pool.dedicated(&snapshot).await?;
        request.headers_mut().remove(HOST);
        self.address(&mut request, &target, &snapshot, false);
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert(UPGRADE, protocol.token());
        progress.touch();
        let mut response = progress
            .head_within(self.0.limits.head, single.send(request))
            .await?
            .map_err(|refused| progress.blame(refused.into_error()))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            self.look_at(response.status());
            let hold = Hold::Dedicated(single);
            return Ok(Answer::Declined(response.map(|body| ResponseBody::new(body, hold, progress))));
        }
        if !protocol.is_accepted_by(response.status(), response.headers()) {
            return Err(ApiServerError::Nonsense("it switched to another protocol than was asked for"));
        }
        let upgrade = hyper::upgrade::on(&mut response);
        let (head, _) = response.into_parts();
        Ok(Answer::Switched { head: Box::new(head), connection: Switched { upgrade, single } })
    }

    /// Says whom a request is for, and who sends it, as the connection's HTTP version wants it said.
    fn address(
        &self,
        request: &mut Request<RequestBody>,
        path: &PathAndQuery,
        snapshot: &Snapshot,
        multiplexed: bool,
    ) {
        let authority = &snapshot.target.authority;
        let mut parts = http::uri::Parts::default();
        parts.path_and_query = Some(path.clone());
        if multiplexed {
            parts.scheme = Some(Scheme::HTTPS);
            parts.authority = Some(authority.clone());
            *request.version_mut() = Version::HTTP_2;
            request.headers_mut().remove(HOST);
        } else {
            *request.version_mut() = Version::HTTP_11;
            if let Ok(host) = HeaderValue::from_str(authority.as_str()) {
                request.headers_mut().insert(HOST, host);
            }
        }
        // A path alone and a whole URI are both complete: neither can fail.
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
        match (self.0.credential.whose(), &snapshot.authorization) {
            (Whose::Callers, _) => {}
            (Whose::Agent, Some(value)) => drop(request.headers_mut().insert(AUTHORIZATION, value.clone())),
            (Whose::Agent, None) => drop(request.headers_mut().remove(AUTHORIZATION)),
        }
    }

    /// What the pool of connections holds now.
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
            return Err(ApiServerError::Nonsense("it switched protocols without being asked"));
        }
        self.look_at(response.status());
        Ok(response.map(|body| ResponseBody::new(body, Hold::Pooled(slot), progress)))
    }

    fn look_at(&self, status: StatusCode) {
        if status == StatusCode::UNAUTHORIZED && self.0.credential.whose() == Whose::Agent {
            // Our token may have been replaced before the old one expired.
            self.0.credential.distrust();
        }
    }
}

impl Switched {
    /// The connection, once hyper has let go of it.
    ///
    /// # Errors
    ///
    /// `Lost`.
    pub async fn connection(self) -> Result<Upgraded, ApiServerError> {
        let Self { upgrade, single } = self;
        let upgraded = upgrade.await.map_err(|error| ApiServerError::Lost(Arc::new(error)));
        // Until here: it ends the task that hands the connection over.
        drop(single);
        upgraded
    }
}

impl ApiServerError {
    /// What the stream is aborted with.
    #[must_use]
    pub fn code(&self) -> AbortCode {
        match self {
            Self::Unreachable { .. } | Self::Full => AbortCode::ApiServerUnreachable,
            Self::Silent(_) => AbortCode::ApiServerSilent,
            Self::Untrusted { .. } => AbortCode::ApiServerUntrusted,
            Self::NoCredential { .. } => AbortCode::NoCredential,
            Self::Lost(_) | Self::CutShort => AbortCode::ApiServerLost,
            Self::Nonsense(_) => AbortCode::ApiServerNonsense,
            Self::CallerGone => AbortCode::Abandoned,
        }
    }
}

impl From<&ApiServerError> for AbortCode {
    fn from(error: &ApiServerError) -> Self {
        error.code()
    }
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}

/// The path and query of a URI in origin form.
fn origin_form(uri: &Uri) -> Result<PathAndQuery, ApiServerError> {
    let path = uri.path_and_query().filter(|path| path.as_str().starts_with('/'));
    match path {
        Some(path) if uri.authority().is_none() => Ok(path.clone()),
        Some(_) | None => Err(ApiServerError::Nonsense("the request's target is not a path")),
    }
}
