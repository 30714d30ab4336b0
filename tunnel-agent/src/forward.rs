//! From a tunnel's stream to the API server: the second wall, the caller's identity, and upgrades.

mod turns;

use std::sync::Arc;
use std::time::Duration;

use daemon::metrics::exchanges::Active;
use daemon::{NoSeat, Scope};
use http::header::{AUTHORIZATION, CONNECTION, HeaderMap, HeaderName, UPGRADE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use proto::AbortCode;
use proto::allow_list::Assertable;
use proto::headers::{
    self, AUDIT_ID_BYTES_MAX, HeaderFault, clean_request, clean_response, is_audit_id, secret,
};
use proto::upgrade::{Protocol, UpgradeFault};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use tracing::debug;

use crate::apiserver::{Answer, ApiServer, ApiServerError, ResponseBody, Switched};
use crate::guard::Cleared;
use crate::pipe;

pub use turns::Turns;

/// The caller takes the answer to a declined upgrade within this time, or its stream is aborted.
const FINISH_MAX: Duration = Duration::from_secs(30);

const AUDIT_ID: HeaderName = HeaderName::from_static(headers::AUDIT_ID);
const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const IMPERSONATE_PREFIX: &str = "impersonate-";
const BEARER: &[u8] = b"Bearer ";

/// Hands requests to the API server. Clones are the same.
#[derive(Debug, Clone)]
pub struct Forwarder {
    api_server: ApiServer,
    /// The same, asked with callers' own credentials, if these pass through.
    of_callers: Option<ApiServer>,
    turns: Turns,
    scope: Scope,
}

/// Why a request was not answered; its stream is aborted with [`ForwardError::code`].
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The audit id of the stream.
    #[error("the stream's audit id is not 1 to {AUDIT_ID_BYTES_MAX} printable ASCII characters")]
    AuditId,
    /// Not a path.
    #[error("the request's target is not a path, or its method is CONNECT")]
    Target,
    /// Its headers.
    #[error("the request's headers are refused")]
    Headers(#[from] HeaderFault),
    /// Its upgrade.
    #[error("the request's upgrade is refused")]
    Upgrade(#[from] UpgradeFault),
    /// The identity in the headers is not the one that was to be asserted. A fault of ours; nothing was sent.
    #[error("the identity could not be rendered as it must be")]
    Identity,
    /// Callers' credentials do not pass through here.
    #[error("callers' credentials do not pass through this agent")]
    NoPassThrough,
    /// The caller's credential.
    #[error("the request does not bear exactly one bearer token")]
    NoBearer,
    /// The API server does not know the agent. To the caller a 401 would say that its own credential was refused, which
    /// the API server never saw.
    #[error(
        "the API server refused the agent's credential; check its ServiceAccount token, or its kubeconfig"
    )]
    CredentialRefused,
    /// As many requests as may be are under way.
    #[error("the API server is asked as much at once as limits say")]
    Busy(#[source] NoSeat),
    /// The API server.
    #[error(transparent)]
    ApiServer(#[from] ApiServerError),
}

impl Forwarder {
    /// A forwarder whose upgraded connections are work of `scope`. Callers' own credentials reach `of_callers` alone. Requests
    /// take `turns`.
    #[must_use]
    pub fn new(api_server: ApiServer, of_callers: Option<ApiServer>, turns: Turns, scope: Scope) -> Self {
        Self { api_server, of_callers, turns, scope }
    }

    /// Asks the API server as `cleared` says, and returns its answer for the stream: cleaned, and otherwise as it is. A
    /// `long_running` one may take its time; an upgrade is answered soon or not at all. After a 101 the bytes flow
    /// both ways in a task of the scope, until either side ends; `active` is held until then.
    ///
    /// Dropping the future or the answer's body cancels at the API server.
    ///
    /// # Errors
    ///
    /// [`ForwardError`]. The answer's body ends with an [`ApiServerError`], if it is not whole.
    pub async fn serve(
        &self,
        cleared: &Cleared,
        audit_id: &str,
        long_running: bool,
        mut request: Request<Incoming>,
        active: &Arc<Active>,
    ) -> Result<Response<ResponseBody>, ForwardError> {
        check_target(request.method(), request.uri())?;
        // Before the headers are cleaned, which takes the question away.
        let protocol = Protocol::asked(request.method(), request.headers())?;
        let bearer = one_bearer(request.headers());
        clean_request(request.headers_mut())?;
        let headers = request.headers_mut();
        name(headers, audit_id)?;
        let api_server = match cleared {
            Cleared::Assert(identity) => {
                assert_identity(headers, identity)?;
                &self.api_server
            }
            Cleared::PassThrough(_) => {
                headers.insert(AUTHORIZATION, bearer.clone().ok_or(ForwardError::NoBearer)?);
                self.of_callers.as_ref().ok_or(ForwardError::NoPassThrough)?
            }
        };
        let check_accepted = |status| check_accepted(cleared, status);
        let seat = self.turns.take(cleared, bearer.as_ref()).await?;
        *request.version_mut() = Version::HTTP_11;
        let Some(protocol) = protocol else {
            // What hyper knows of the tunnel's stream is no business of the other connection.
            request.extensions_mut().clear();
            let mut response = if long_running {
                api_server.send_long_running(request).await?
            } else {
                api_server.send(request).await?
            };
            check_accepted(response.status())?;
            clean_response(response.headers_mut());
            if long_running {
                // It has begun: from here on it is its caller who takes its time.
                drop(seat);
            } else {
                response.body_mut().keep(seat);
            }
            return Ok(answer(response));
        };
        let caller = hyper::upgrade::on(&mut request);
        request.extensions_mut().clear();
        match api_server.upgrade(request.map(drop), protocol).await? {
            Answer::Declined(mut response) => {
                check_accepted(response.status())?;
                clean_response(response.headers_mut());
                // The stream carries this one answer: what was sent behind the request is no next request.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                self.scope.spawn(wind_up(caller));
                Ok(answer(response))
            }
            Answer::Switched { head, connection } => {
                let mut headers = head.headers;
                clean_response(&mut headers);
                headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
                headers.insert(UPGRADE, protocol.token());
                self.scope.spawn(copy(protocol, caller, connection, Arc::clone(active)));
                let mut response = Response::new(ResponseBody::empty());
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                *response.headers_mut() = headers;
                Ok(response)
            }
        }
    }
}

impl ForwardError {
    /// What the stream is aborted with.
    #[must_use]
    pub fn code(&self) -> AbortCode {
        match self {
            Self::AuditId => AbortCode::BadOpen,
            Self::Target | Self::Headers(_) | Self::Upgrade(_) => AbortCode::BadRequest,
            Self::Identity => AbortCode::GuardRefused,
            Self::NoPassThrough => AbortCode::NoPassThrough,
            Self::NoBearer => AbortCode::NoBearer,
            Self::Busy(_) => AbortCode::Busy,
            Self::CredentialRefused => AbortCode::NoCredential,
            Self::ApiServer(error) => error.code(),
        }
    }
}

/// A path, and nothing that names another server. Its bytes stay as they are.
fn check_target(method: &Method, uri: &Uri) -> Result<(), ForwardError> {
    let is_path = uri.scheme().is_none() && uri.authority().is_none() && uri.path().starts_with('/');
    if is_path && method != Method::CONNECT { Ok(()) } else { Err(ForwardError::Target) }
}

/// Whether the API server has accepted the agent, whatever it thinks of the caller. A caller's own credential that it does
/// not accept is the caller's to hear of.
fn check_accepted(cleared: &Cleared, status: StatusCode) -> Result<(), ForwardError> {
    match cleared {
        Cleared::Assert(_) if status == StatusCode::UNAUTHORIZED => Err(ForwardError::CredentialRefused),
        Cleared::Assert(_) | Cleared::PassThrough(_) => Ok(()),
    }
}

/// The one credential that a caller sent for the API server, if it is a bearer token.
fn one_bearer(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, token) = value.as_bytes().split_at_checked(BEARER.len())?;
    let is_bearer = scheme.eq_ignore_ascii_case(BEARER);
    (is_bearer && !token.is_empty() && token.iter().all(u8::is_ascii_graphic)).then(|| secret(value))
}

/// Names the exchange, for the API server's log.
fn name(headers: &mut HeaderMap, audit_id: &str) -> Result<(), ForwardError> {
    let audit_id = HeaderValue::from_str(audit_id).ok().filter(|id| is_audit_id(id.as_bytes()));
    headers.insert(AUDIT_ID, audit_id.ok_or(ForwardError::AuditId)?);
    Ok(())
}

/// Says on whose behalf, last of all and with set semantics, and then looks whether it is so.
fn assert_identity(headers: &mut HeaderMap, identity: &Assertable) -> Result<(), ForwardError> {
    headers.remove(IMPERSONATE_GROUP);
    headers.insert(IMPERSONATE_USER, secret(identity.user()));
    for group in identity.groups() {
        headers.append(IMPERSONATE_GROUP, secret(group));
    }
    if is_asserted(headers, identity) { Ok(()) } else { Err(ForwardError::Identity) }
}

/// Whether the headers assert this identity and nothing else.
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

/// The tunnel's stream speaks HTTP/1.1, whatever the API server spoke.
fn answer(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    *response.version_mut() = Version::HTTP_11;
    response.extensions_mut().clear();
    response
}

/// Ends a stream whose upgrade was declined. hyper gives it up behind the answer as it would behind a 101: unfinished, and
/// what is dropped unfinished is aborted, answer and all.
async fn wind_up(caller: OnUpgrade) {
    // Whoever left before has no use for an end.
    let Ok(caller) = caller.await else {
        return;
    };
    let mut stream = TokioIo::new(caller);
    let ending = async {
        if stream.shutdown().await.is_ok() {
            // Behind the request comes nothing that anybody would serve.
            let _ = stream.read(&mut [0]).await;
        }
    };
    if timeout(FINISH_MAX, ending).await.is_err() {
        debug!("a stream was not wound up in time");
    }
}

/// Copies both ways until both directions have ended, or one has broken: then both are dropped, which aborts them.
async fn copy(protocol: Protocol, caller: OnUpgrade, connection: Switched, _active: Arc<Active>) {
    // In this order: hyper gives the stream up only after the 101 was written.
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
