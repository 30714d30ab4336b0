//! Forwards requests from a tunnel's stream to the API server: cleans headers, asserts the identity, and
//! joins upgrades.

mod fair_queue;
mod reduce;

use std::sync::Arc;
use std::time::Duration;

use daemon::metrics::requests::ActiveRequest;
use daemon::{NoSeat, Scope};
use http::header::{AUTHORIZATION, CONNECTION, HeaderMap, HeaderName, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use proto::AbortCode;
use proto::allow_list::Assertable;
use proto::headers::{
    self, AUDIT_ID_BYTES_MAX, HeaderError, clean_request, clean_response, is_audit_id, secret,
};
use proto::upgrade_protocol::{UpgradeError, UpgradeProtocol};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use tracing::debug;

use crate::apiserver::{
    AnswerDeadline, ApiServer, ApiServerError, ResponseBody, SwitchedConnection, UpgradeAnswer,
};
use crate::guard::Cleared;
use crate::guard::request_target::{self, RequestTargetError};
use crate::pipe;

pub use fair_queue::FairQueue;

/// Longest time for the caller to read the answer to a declined upgrade. After it the stream is aborted.
const FINISH_MAX: Duration = Duration::from_secs(30);

const AUDIT_ID: HeaderName = HeaderName::from_static(headers::AUDIT_ID);
const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const IMPERSONATE_PREFIX: &str = "impersonate-";
const BEARER: &[u8] = b"Bearer ";

/// Forwards requests to the API server. Clones share everything.
#[derive(Debug, Clone)]
pub struct Forwarder {
    api_server: ApiServer,
    /// The same API server, for requests with callers' own credentials, if these pass through.
    for_callers: Option<ApiServer>,
    queue: FairQueue,
    scope: Scope,
}

/// A request was not answered. Its stream is aborted with [`ForwardError::code`].
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The stream's audit id is not valid.
    #[error("the stream's audit id is not 1 to {AUDIT_ID_BYTES_MAX} printable ASCII characters")]
    AuditId,
    /// The request's target is not a path, or could be read in two ways.
    #[error("the request's target is refused")]
    Target(#[from] RequestTargetError),
    /// A header breaks the rules for requests.
    #[error("the request's headers are refused")]
    Headers(#[from] HeaderError),
    /// The upgrade breaks the rules for upgrades.
    #[error("the request's upgrade is refused")]
    Upgrade(#[from] UpgradeError),
    /// The identity in the headers is not the one to be asserted. This is a bug of the agent, and nothing was
    /// sent.
    #[error("the identity could not be rendered as it must be")]
    Identity,
    /// Callers' credentials do not pass through this agent.
    #[error("callers' credentials do not pass through this agent")]
    NoPassThrough,
    /// The caller's own credential is missing.
    #[error("the request does not bear exactly one bearer token")]
    NoBearer,
    /// The server was told that the request is not carried out, before it arrived.
    #[error("the request was reported as not begun before it arrived")]
    Fenced,
    /// The limit of requests is reached.
    #[error("the agent's limit of requests at the API server is reached")]
    Busy(#[source] NoSeat),
    /// The API server gave no answer.
    #[error(transparent)]
    ApiServer(#[from] ApiServerError),
}

impl Forwarder {
    /// A forwarder whose upgraded connections are work of `scope`. Callers' own credentials reach only
    /// `for_callers`. Requests wait in `queue` for a seat.
    #[must_use]
    pub fn new(
        api_server: ApiServer,
        for_callers: Option<ApiServer>,
        queue: FairQueue,
        scope: Scope,
    ) -> Self {
        Self { api_server, for_callers, queue, scope }
    }

    /// Sends a request to the API server with the credential of `cleared`, and returns the answer with
    /// cleaned headers. Its head comes by the `deadline`; an upgrade always has one. After a 101 a task of the scope copies bytes in both directions until either side ends, and
    /// `active` lasts until then. A list with a question (`question` is not empty) is reduced here.
    ///
    /// Dropping the future or the answer's body cancels at the API server.
    ///
    /// # Errors
    ///
    /// [`ForwardError`]. The answer's body ends with an [`ApiServerError`] if it is not complete.
    pub async fn serve(
        &self,
        cleared: &Cleared,
        audit_id: &str,
        deadline: AnswerDeadline,
        question: &str,
        mut request: Request<Incoming>,
        active: &Arc<ActiveRequest>,
    ) -> Result<Response<ResponseBody>, ForwardError> {
        *request.uri_mut() = request_target::canonical(request.method(), request.uri())?.into();
        // Before the headers are cleaned, which removes the request for an upgrade.
        let protocol = UpgradeProtocol::requested(request.method(), request.headers())?;
        let bearer = one_bearer(request.headers());
        clean_request(request.headers_mut())?;
        let headers = request.headers_mut();
        set_audit_id(headers, audit_id)?;
        let api_server = match cleared {
            Cleared::Assert(identity) => {
                assert_identity(headers, identity)?;
                &self.api_server
            }
            Cleared::PassThrough(_) => {
                headers.insert(AUTHORIZATION, bearer.clone().ok_or(ForwardError::NoBearer)?);
                self.for_callers.as_ref().ok_or(ForwardError::NoPassThrough)?
            }
        };
        let seat = self.queue.take(cleared, bearer.as_ref()).await.map_err(ForwardError::Busy)?;
        *request.version_mut() = Version::HTTP_11;
        if !question.is_empty() {
            let (head, _) = request.into_parts();
            // The seat is held until the last page has been read.
            return reduce::answer(api_server, &head, deadline, question)
                .await
                .map(as_http1)
                .map_err(ForwardError::from);
        }
        let Some(protocol) = protocol else {
            // hyper's extensions belong to the tunnel's stream, not to the other connection.
            request.extensions_mut().clear();
            let mut response = api_server.send_by(request, deadline).await?;
            clean_response(response.headers_mut());
            if deadline.is_long_running() {
                // It has begun: from here on its caller decides how long it lasts.
                drop(seat);
            } else {
                response.body_mut().keep_seat(seat);
            }
            return Ok(as_http1(response));
        };
        let caller = hyper::upgrade::on(&mut request);
        request.extensions_mut().clear();
        match api_server.upgrade_by(request.map(drop), protocol, deadline).await? {
            UpgradeAnswer::Declined(mut response) => {
                clean_response(response.headers_mut());
                // The stream carries only this answer: bytes behind the request are no next request.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                self.scope.spawn(finish_declined(caller));
                Ok(as_http1(*response))
            }
            UpgradeAnswer::Switched { head, connection } => {
                let mut headers = head.headers;
                clean_response(&mut headers);
                headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
                headers.insert(UPGRADE, protocol.token());
                self.scope.spawn(join_upgraded(protocol, caller, connection, Arc::clone(active)));
                let mut response = Response::new(ResponseBody::empty());
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                *response.headers_mut() = headers;
                Ok(response)
            }
        }
    }
}

impl ForwardError {
    /// The code with which the stream is aborted.
    #[must_use]
    pub fn code(&self) -> AbortCode {
        match self {
            Self::AuditId => AbortCode::BadOpen,
            Self::Target(_) | Self::Headers(_) | Self::Upgrade(_) => AbortCode::BadRequest,
            Self::Identity => AbortCode::GuardRefused,
            Self::NoPassThrough => AbortCode::NoPassThrough,
            Self::NoBearer => AbortCode::NoBearer,
            Self::Busy(_) => AbortCode::Busy,
            Self::Fenced => AbortCode::Fenced,
            Self::ApiServer(error) => error.code(),
        }
    }
}

/// The caller's own credential for the API server, if there is exactly one and it is a bearer token.
fn one_bearer(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, token) = value.as_bytes().split_at_checked(BEARER.len())?;
    let is_bearer = scheme.eq_ignore_ascii_case(BEARER);
    (is_bearer && !token.is_empty() && token.iter().all(u8::is_ascii_graphic)).then(|| secret(value))
}

/// Sets the audit id, by which the API server's log names the exchange.
fn set_audit_id(headers: &mut HeaderMap, audit_id: &str) -> Result<(), ForwardError> {
    let audit_id = HeaderValue::from_str(audit_id).ok().filter(|id| is_audit_id(id.as_bytes()));
    headers.insert(AUDIT_ID, audit_id.ok_or(ForwardError::AuditId)?);
    Ok(())
}

/// Sets the identity after all other headers, in place of any that is there, and verifies the result.
fn assert_identity(headers: &mut HeaderMap, identity: &Assertable) -> Result<(), ForwardError> {
    headers.remove(IMPERSONATE_GROUP);
    headers.insert(IMPERSONATE_USER, secret(identity.user()));
    for group in identity.groups() {
        headers.append(IMPERSONATE_GROUP, secret(group));
    }
    if is_asserted(headers, identity) { Ok(()) } else { Err(ForwardError::Identity) }
}

/// Returns true if the headers assert exactly this identity.
fn is_asserted(headers: &HeaderMap, identity: &Assertable) -> bool {
    let users = headers.get_all(IMPERSONATE_USER).iter();
    let groups = headers.get_all(IMPERSONATE_GROUP).iter();
    let others = headers.keys().filter(|name| {
        name.as_str().replace('_', "-").starts_with(IMPERSONATE_PREFIX)
            && *name != IMPERSONATE_USER
            && *name != IMPERSONATE_GROUP
    });
    users.eq([identity.user()]) && groups.eq(identity.groups()) && others.count() == 0
}

/// Turns an answer into one of HTTP/1.1, which is what the tunnel's stream speaks.
fn as_http1(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    *response.version_mut() = Version::HTTP_11;
    response.extensions_mut().clear();
    response
}

/// Ends a stream whose upgrade was declined. hyper hands the stream over after the answer, as after a 101. A
/// stream that is dropped before its end is aborted, and its answer lost.
async fn finish_declined(caller: OnUpgrade) {
    // The caller has hung up.
    let Ok(caller) = caller.await else {
        return;
    };
    let mut stream = TokioIo::new(caller);
    let ending = async {
        if stream.shutdown().await.is_ok() {
            // Bytes behind the request are not served.
            let _ = stream.read(&mut [0]).await;
        }
    };
    if timeout(FINISH_MAX, ending).await.is_err() {
        debug!("a stream with a declined upgrade was not read to its end in time");
    }
}

/// Copies both ways until both directions have ended. If one breaks, both are dropped, which aborts them.
async fn join_upgraded(
    protocol: UpgradeProtocol,
    caller: OnUpgrade,
    connection: SwitchedConnection,
    _active: Arc<ActiveRequest>,
) {
    // In this order: hyper hands the stream over only after the 101 was written.
    let caller = match caller.await {
        Ok(caller) => caller,
        Err(error) => return debug!(%error, "the caller left before the upgrade"),
    };
    let connection = match connection.connection().await {
        Ok(connection) => connection,
        Err(error) => return debug!(%error, "the API server left before the upgrade"),
    };
    let (mut caller, mut connection) = (TokioIo::new(caller), TokioIo::new(connection));
    if let Err(error) = pipe::join(Some(protocol), &mut caller, &mut connection).await {
        debug!(%error, "an upgraded connection broke");
    }
}

#[cfg(test)]
mod tests;
