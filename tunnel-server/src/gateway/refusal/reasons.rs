//! The reasons for a refusal, each with its message for the caller.

use std::time::Duration;

use audit::AuditError;
use http::StatusCode;
use policy::action::{ActionError, TARGET_BYTES_MAX};
use proto::headers::{HEADER_BYTES_MAX, HEADERS_MAX, HeaderError};
use proto::upgrade_protocol::UpgradeError;
use proto::{AbortCode, ClusterId};

use super::abort_message::abort_message;
use crate::authz::{Forbidden, NotDelegated};
use crate::dialing::DialError;
use crate::exchanges::TerminationReason;
use crate::gateway::connect_target::ConnectRequestError;
use crate::gateway::cross_origin::check::CrossOriginError;
use crate::gateway::head_timeout::CALLER_SILENCE_MAX;
use crate::gateway::park_timeout::NotAParkLimit;
use crate::identity::NotAuthenticated;
use crate::impersonation::NotAsserted;
use crate::limits::LimitExceeded;
use crate::registry::RouteError;

/// The reason why a request is not served. Each variant becomes a `Status` object, in this module and nowhere
/// else.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// A browser sent the request for a page of another origin.
    #[error("{0}")]
    CrossOrigin(#[from] CrossOriginError),
    /// The caller is not authenticated.
    #[error("{0}")]
    NotAuthenticated(#[from] NotAuthenticated),
    /// The exchange was ended early, or may not begin.
    #[error("{0}")]
    Terminated(#[from] TerminationReason),
    /// The action cannot be read from the request without guessing.
    #[error("{0}")]
    Action(#[from] ActionError),
    /// A CONNECT does not name its target or its cluster.
    #[error("{0}")]
    Connect(#[from] ConnectRequestError),
    /// A CONNECT was not connected to its target.
    #[error("{0}")]
    DialError(#[from] DialError),
    /// The policy forbids the action.
    #[error("{0}")]
    Forbidden(#[from] Forbidden),
    /// The policy allows the action, and the cluster of `policy.delegation` does not, or does not answer.
    #[error("{0}")]
    NotDelegated(#[from] NotDelegated),
    /// The caller's identity may not be asserted at the cluster.
    #[error("{0}")]
    NotAsserted(#[from] NotAsserted),
    /// The request has forbidden or malformed headers.
    #[error("{0}")]
    Headers(#[from] HeaderError),
    /// The HTTP library cannot read the request.
    #[error("{0}")]
    Malformed(MalformedRequest),
    /// The request asks for an upgrade that is not supported.
    #[error("{0}")]
    Upgrade(#[from] UpgradeError),
    /// The request's park limit is malformed or too large.
    #[error("{0}")]
    ParkLimit(#[from] NotAParkLimit),
    /// No tunnel leads to the cluster.
    #[error("{0}")]
    RouteError(#[from] RouteError),
    /// The tunnel is connected and accepted no stream. Nothing was sent.
    #[error("cluster {0} takes no new request at the moment: try again")]
    NoStream(ClusterId),
    /// The tunnel ended, or the stream broke, before the head of the answer.
    #[error(
        "the connection to cluster {0} was lost before it answered: the outcome of this request is not known"
    )]
    Lost(ClusterId),
    /// The tunnel is live, and the agent sent no head of an answer in time.
    #[error(
        "cluster {0} is connected, but its agent did not answer within {max} s: check the agent's log; the outcome of this \
         request is not known",
        max = .1.as_secs()
    )]
    AgentSilent(ClusterId, Duration),
    /// The tunnel is silent, and no head of an answer came in time.
    #[error(
        "nothing has been heard from cluster {0}, and no answer came within {max} s: check the site's link; the outcome \
         of this request is not known",
        max = .1.as_secs()
    )]
    LinkSilent(ClusterId, Duration),
    /// The API server has not answered its agent in time.
    #[error(
        "cluster {0} is connected, but its API server did not answer in time: check that API server; this request has a \
         limit of {max} s, which the operator of this server raises by requestTimeoutSeconds in clusters[], and a caller by the \
         request's own timeout; the outcome of this request is not known",
        max = .1.as_secs()
    )]
    ApiServerSilent(ClusterId, Duration),
    /// The caller paused for too long in its request's body.
    #[error(
        "the request's body stopped for {max} s: send it without such pauses; the outcome of this request is not known",
        max = CALLER_SILENCE_MAX.as_secs()
    )]
    CallerSilent,
    /// The agent or its API server aborted the stream with this code.
    #[error("{}", abort_message(.0, *.1))]
    Aborted(ClusterId, AbortCode),
    /// The answer redirects the caller out of the cluster.
    #[error(
        "cluster {cluster} has carried this request out, and answered {status} with a redirect to {}: it is not passed on, \
         because the caller's credential could follow it",
        redirect_target(.host.as_deref())
    )]
    Redirect {
        /// The cluster whose API server answered.
        cluster: ClusterId,
        /// The answer's status, 300 to 399: clients follow no other one.
        status: StatusCode,
        /// The host and port of the redirect's target. `None` if it names none, or there are several targets.
        host: Option<String>,
    },
    /// The answer violates HTTP, or is an upgrade that was not asked for.
    #[error("cluster {0} answered what is not HTTP, or an upgrade that nobody asked for")]
    NotHttp(ClusterId),
    /// The request's body broke off, or is not framed as its head says. Part of it may have reached the API
    /// server.
    #[error("the request's body cannot be read to its end: the outcome of this request is not known")]
    BrokenBody,
    /// The gateway serves its largest number of requests.
    #[error("this gateway serves as many requests as it may: try again in a second")]
    Busy,
    /// The caller, its source or the cluster has reached a limit.
    #[error("{0}")]
    Limited(#[from] LimitExceeded),
    /// The audit log cannot be written, so that the request is not served. Only the server's log says why.
    #[error("this server cannot write its audit log and serves nothing new until it can: try again later")]
    AuditFailed(#[from] AuditError),
    /// The API server refused to resume a watch, without a `Status` in the watch's encoding.
    #[error(
        "cluster {0} was away, and its API server answered {1} when the watch was begun again: list and watch anew"
    )]
    WatchNotResumed(ClusterId, StatusCode),
}

/// The reason why the HTTP library cannot read a request. The library says no more than this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MalformedRequest {
    /// A character is where none may be, or a header contradicts another.
    #[error(
        "this gateway cannot read the request: percent-encode spaces, quotation marks, angle brackets and other such characters \
         in the path and query, and check the names, values and lengths in the headers"
    )]
    Unreadable,
    /// The path with its query is longer than the library takes.
    #[error("the path with its query is longer than {max} bytes", max = TARGET_BYTES_MAX)]
    TargetTooLong,
    /// The head has more headers or bytes than the library takes.
    #[error("more than {headers} headers, or headers of more than {bytes} bytes", headers = HEADERS_MAX, bytes = HEADER_BYTES_MAX)]
    HeadTooLarge,
}

/// The target of a redirect in words.
fn redirect_target(host: Option<&str>) -> String {
    match host {
        Some(host) => format!("another host, {host}"),
        None => "a place that is unclear".to_owned(),
    }
}
