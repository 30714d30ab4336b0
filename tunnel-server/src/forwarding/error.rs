//! The reasons for which a request does not reach its cluster, or has no answer, each with its message for the caller.

use std::time::Duration;

use audit::AuditError;
use http::StatusCode;
use proto::{AbortCode, ClusterId};

use super::abort_message::abort_message;
use super::head_timeout::CALLER_SILENCE_MAX;
use crate::impersonation::NotAsserted;
use crate::registry::RouteError;

/// The reason why a recorded request has no acceptable answer of its cluster.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The caller's identity may not be asserted at the cluster.
    #[error("{0}")]
    NotAsserted(#[from] NotAsserted),
    /// No tunnel leads to the cluster.
    #[error("{0}")]
    RouteError(#[from] RouteError),
    /// The audit log cannot be written any more, so no stream is opened.
    #[error("{0}")]
    AuditFailed(#[from] AuditError),
    /// The tunnel is connected and accepted no stream. Nothing was sent.
    #[error("cluster {0} takes no new request at the moment: try again")]
    NoStream(ClusterId),
    /// The list was to be reduced, and the agent is of a version that cannot. Nothing was sent.
    #[error(
        "the agent of cluster {0} is of a version that makes no summaries: upgrade it, or list without tombolo-reduce"
    )]
    CannotReduce(ClusterId),
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
}

/// The target of a redirect in words.
fn redirect_target(host: Option<&str>) -> String {
    match host {
        Some(host) => format!("another host, {host}"),
        None => "a place that is unclear".to_owned(),
    }
}
