//! The reasons for a refusal, each with its message for the caller.

use audit::AuditError;
use http::StatusCode;
use policy::action::{ActionError, TARGET_BYTES_MAX};
use proto::ClusterId;
use proto::headers::{HEADER_BYTES_MAX, HEADERS_MAX, HeaderError};
use proto::upgrade_protocol::UpgradeError;
use summary::NotAQuestion;

use crate::authz::{Forbidden, NotDelegated};
use crate::dialing::DialError;
use crate::exchanges::TerminationReason;
use crate::forwarding::{ForwardError, NotAParkLimit};
use crate::gateway::cluster_sets::ClusterSetError;
use crate::gateway::connect_target::ConnectRequestError;
use crate::gateway::cross_origin::check::CrossOriginError;
use crate::gateway::summary_error::SummaryError;
use crate::identity::NotAuthenticated;
use crate::limits::LimitExceeded;

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
    /// The request was recorded, and has no acceptable answer of its cluster.
    #[error("{0}")]
    Forward(#[from] ForwardError),
    /// A read of a cluster set has no answer.
    #[error("{0}")]
    ClusterSet(#[from] ClusterSetError),
    /// The question of a summary cannot be read.
    #[error("tombolo-reduce: {0}")]
    Question(#[from] NotAQuestion),
    /// A summary was asked for, and the agent's answer is none.
    #[error("{0}")]
    Summary(#[from] SummaryError),
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
