//! What an agent's code for aborting a stream means to the caller.

use http::StatusCode;
use proto::{AbortCode, ClusterId};

/// What an answer that an agent has aborted so says to its caller.
pub(super) fn of_code(cluster: &ClusterId, code: AbortCode) -> String {
    match code {
        AbortCode::ApiServerUnreachable => format!(
            "cluster {cluster} is connected, but its agent cannot reach its API server: check that the API server runs, \
             and the agent's apiServer configuration"
        ),
        AbortCode::ApiServerSilent => format!(
            "cluster {cluster} is connected, but its API server did not answer in time: check that API server; the outcome \
             of this request is not known"
        ),
        AbortCode::ApiServerUntrusted => format!(
            "cluster {cluster} is connected, but its agent does not trust its API server's certificate: check the CA in \
             the agent's apiServer configuration"
        ),
        AbortCode::NoCredential => format!(
            "cluster {cluster} is connected, but its agent has no credential that its API server accepts: check the \
             agent's apiServer configuration and its ServiceAccount token"
        ),
        AbortCode::GuardRefused => format!(
            "the agent of cluster {cluster} does not let this identity be asserted: check the agent's impersonation \
             configuration"
        ),
        AbortCode::NoPassThrough => format!(
            "this server has callers' own credentials pass through to cluster {cluster}, and its agent does not: set \
             passThrough in the configurations of both, or of neither"
        ),
        AbortCode::NoBearer => format!(
            "cluster {cluster} takes its callers' own tokens: send one, beside your client certificate for this gateway, \
             as Authorization: Bearer TOKEN"
        ),
        AbortCode::ApiServerLost => format!(
            "the API server of cluster {cluster} broke the connection off: the outcome of this request is not known"
        ),
        AbortCode::TargetLost => format!("the connection to a target in cluster {cluster} broke"),
        AbortCode::ApiServerNonsense => {
            format!("the API server of cluster {cluster} answered what is not HTTP")
        }
        AbortCode::BadRequest => format!("the agent of cluster {cluster} refused the request's head"),
        AbortCode::Busy => format!(
            "the agent of cluster {cluster} asks its API server as much as it may, and too many requests wait: try again in a \
             second"
        ),
        AbortCode::Draining => format!("the agent of cluster {cluster} is stopping: try again"),
        AbortCode::Abandoned | AbortCode::CallerStalled | AbortCode::BadOpen | AbortCode::Unknown(_) => {
            format!("the agent of cluster {cluster} gave up: {code}")
        }
    }
}

/// The status of an answer that an agent has aborted so.
pub(super) fn status_of_code(code: AbortCode) -> StatusCode {
    match code {
        AbortCode::ApiServerUnreachable
        | AbortCode::ApiServerUntrusted
        | AbortCode::NoCredential
        | AbortCode::Draining => StatusCode::SERVICE_UNAVAILABLE,
        AbortCode::ApiServerSilent => StatusCode::GATEWAY_TIMEOUT,
        AbortCode::GuardRefused | AbortCode::NoPassThrough => StatusCode::FORBIDDEN,
        AbortCode::NoBearer => StatusCode::UNAUTHORIZED,
        AbortCode::Busy => StatusCode::TOO_MANY_REQUESTS,
        AbortCode::BadRequest => StatusCode::BAD_REQUEST,
        AbortCode::ApiServerLost
        | AbortCode::TargetLost
        | AbortCode::ApiServerNonsense
        | AbortCode::Abandoned
        | AbortCode::CallerStalled
        | AbortCode::BadOpen
        | AbortCode::Unknown(_) => StatusCode::BAD_GATEWAY,
    }
}

/// The same in one word.
pub(super) fn cause_of_code(code: AbortCode) -> &'static str {
    match code {
        AbortCode::ApiServerUnreachable => "APIServerUnreachable",
        AbortCode::ApiServerSilent => "APIServerSilent",
        AbortCode::ApiServerUntrusted => "APIServerUntrusted",
        AbortCode::ApiServerLost => "APIServerLost",
        AbortCode::ApiServerNonsense => "APIServerNotHTTP",
        AbortCode::NoCredential => "AgentWithoutCredential",
        AbortCode::GuardRefused | AbortCode::NoPassThrough => "ForbiddenByAgent",
        AbortCode::TargetLost => "TargetLost",
        AbortCode::NoBearer => "NoBearerToken",
        AbortCode::Busy => "AgentBusy",
        AbortCode::BadRequest => "HeadersRefused",
        AbortCode::Draining => "AgentStopping",
        AbortCode::Abandoned | AbortCode::CallerStalled | AbortCode::BadOpen | AbortCode::Unknown(_) => {
            "AgentGaveUp"
        }
    }
}
