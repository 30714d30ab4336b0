//! Why a caller is not served, as the one kind of answer that Kubernetes' programs understand.

mod codes;
mod status;
mod written;

use std::time::Duration;

use audit::NotRecorded;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use policy::action::ActionFault;
use proto::{AbortCode, ClusterId};
use serde_json::Value;

use super::{BrowserFault, CALLER_SILENCE_MAX, ConnectFault, NotAParkLimit};
use crate::assertion::NotAsserted;
use crate::dialing::NotConnected;
use crate::exchanges::Ended;
use crate::identity::{NotAuthenticated, SubprotocolError};
use crate::permit::{Forbidden, NotDelegated};
use crate::registry::NoTunnel;
use crate::shares::Limit;
use codes::{cause_of_code, of_code, status_of_code};
use proto::deadlines::AGENT_HEAD_MAX;
use proto::headers::HeaderFault;
use proto::upgrade::UpgradeFault;
use status::Status;

/// Why a request was not served. Each becomes a `Status` object, here and nowhere else.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// A browser asks, for a page that has no business here.
    #[error("{0}")]
    Browser(#[from] BrowserFault),
    /// Who asks is not known.
    #[error("{0}")]
    NotAuthenticated(#[from] NotAuthenticated),
    /// It may not go on, or not even begin.
    #[error("{0}")]
    Ended(#[from] Ended),
    /// What is asked cannot be told, or not without guessing.
    #[error("{0}")]
    Action(#[from] ActionFault),
    /// A CONNECT that does not say enough.
    #[error("{0}")]
    Connect(#[from] ConnectFault),
    /// A CONNECT came to no connection.
    #[error("{0}")]
    NotConnected(#[from] NotConnected),
    /// Policy does not let this caller reach this cluster.
    #[error("{0}")]
    Forbidden(#[from] Forbidden),
    /// Policy does, and the cluster that is asked too does not, or does not say.
    #[error("{0}")]
    NotDelegated(#[from] NotDelegated),
    /// The cluster may not be told who asks.
    #[error("{0}")]
    NotAsserted(#[from] NotAsserted),
    /// The request's headers try to be what they must not.
    #[error("{0}")]
    Headers(#[from] HeaderFault),
    /// The request asks for an upgrade that is not passed on.
    #[error("{0}")]
    Upgrade(#[from] UpgradeFault),
    /// The request says for how long it wants to wait, and not in a way that can be granted.
    #[error("{0}")]
    ParkLimit(#[from] NotAParkLimit),
    /// There is no way to the cluster.
    #[error("{0}")]
    NoTunnel(#[from] NoTunnel),
    /// The tunnel was there and took no stream; nothing was sent.
    #[error("cluster {0} takes no new request at the moment: try again")]
    NoStream(ClusterId),
    /// The tunnel ended, or the stream broke, before the answer's head.
    #[error(
        "the connection to cluster {0} was lost before it answered: the outcome of this request is not known"
    )]
    Lost(ClusterId),
    /// The tunnel lives, and the agent has said nothing of the answer for too long.
    #[error(
        "cluster {0} is connected, but its agent did not answer within {max} s: check the agent's log; the outcome of this \
         request is not known",
        max = AGENT_HEAD_MAX.as_secs()
    )]
    AgentSilent(ClusterId),
    /// Nothing at all comes from the cluster, and nothing of the answer for too long.
    #[error(
        "nothing has been heard from cluster {0}, and no answer came within {max} s: check the site's link; the outcome \
         of this request is not known",
        max = AGENT_HEAD_MAX.as_secs()
    )]
    LinkSilent(ClusterId),
    /// The caller stopped in the middle of its request's body.
    #[error(
        "the request's body stopped for {max} s: send it without such pauses; the outcome of this request is not known",
        max = CALLER_SILENCE_MAX.as_secs()
    )]
    CallerSilent,
    /// The agent or its API server gave up, with this code.
    #[error("{}", of_code(.0, *.1))]
    Aborted(ClusterId, AbortCode),
    /// The answer of the cluster would lead the caller elsewhere.
    #[error("cluster {0} answered with a redirect to another host, which is not followed")]
    Redirect(ClusterId),
    /// The answer breaks the protocol.
    #[error("cluster {0} answered what is not HTTP, or an upgrade that nobody asked for")]
    Nonsense(ClusterId),
    /// The request's own body broke off or is not framed as its head says. Part of it may have reached the API server.
    #[error("the request's body cannot be read to its end: the outcome of this request is not known")]
    BrokenBody,
    /// As many requests are being served as may be.
    #[error("this gateway serves as many requests as it may: try again in a second")]
    Busy,
    /// As many requests of this caller, or of this cluster, are being served as may be.
    #[error("{0}")]
    Limited(#[from] Limit),
    /// It cannot be recorded, and so is not done. Why is for who runs the server.
    #[error("this server cannot write its audit log and serves nothing new until it can: try again later")]
    NotRecorded(#[from] NotRecorded),
    /// The API server did not begin a watch again, and did not say why in a way that the caller understands.
    #[error(
        "cluster {0} was away, and its API server answered {1} when the watch was begun again: list and watch anew"
    )]
    NotWatchedAgain(ClusterId, StatusCode),
}

/// When to try again.
enum Retry {
    /// Said in the header too, upon which client-go repeats *any* request, writes too, up to ten times. Only where not one
    /// byte of the request reached an API server and nobody has waited, so that repeating is harmless and helps.
    ByItself(Duration),
    /// Said in `details` alone, to whoever decides to try again.
    AsItLikes(Duration),
}

/// Where a moment may help.
const SOON: Duration = Duration::from_secs(1);

/// Where waiting has not helped.
const LATER: Duration = Duration::from_secs(10);

impl Refusal {
    /// The kind of object that each becomes.
    pub const KIND: &str = "Status";

    /// Every word that [`Refusal::cause`] knows.
    pub const CAUSES: [&str; 42] = [
        "BrowserRefused",
        "AuthenticatorAway",
        "NotAuthenticated",
        "CredentialRevoked",
        "CredentialExpired",
        "PolicyChanged",
        "SessionTooOld",
        "NotARequest",
        "ForbiddenByPolicy",
        "ForbiddenByHost",
        "HostAway",
        "NotAsserted",
        "HeadersRefused",
        "UpgradeRefused",
        "ParkLimitRefused",
        "ClusterNeverSeen",
        "ClusterNotConnected",
        "ClusterCrowded",
        "ClusterBusy",
        "ClusterLost",
        "APIServerUnreachable",
        "APIServerSilent",
        "APIServerUntrusted",
        "APIServerLost",
        "APIServerNotHTTP",
        "AgentWithoutCredential",
        "ForbiddenByAgent",
        "NoBearerToken",
        "AgentBusy",
        "TargetLost",
        "AgentStopping",
        "AgentGaveUp",
        "RedirectRefused",
        "NotHTTP",
        "BrokenBody",
        "GatewayBusy",
        "TooManyFailedLogins",
        "CallerBusy",
        "CallerTooFast",
        "ClusterFull",
        "NotRecorded",
        "NotWatchedAgain",
    ];

    /// The status that a caller sees. Total: a new refusal does not compile until it has one.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NotAuthenticated(
                NotAuthenticated::TwoCredentials
                | NotAuthenticated::TwoAuthorizations
                | NotAuthenticated::Subprotocol(SubprotocolError::Two),
            ) => StatusCode::BAD_REQUEST,
            Self::NotAuthenticated(NotAuthenticated::Unreachable(_)) => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotAuthenticated(
                NotAuthenticated::NoCredential(_)
                | NotAuthenticated::NoCertificate
                | NotAuthenticated::Scheme(_)
                | NotAuthenticated::NotAToken
                | NotAuthenticated::UnknownToken
                | NotAuthenticated::Certificate(_)
                | NotAuthenticated::Subprotocol(SubprotocolError::Encoding | SubprotocolError::Alone)
                | NotAuthenticated::Token(_)
                | NotAuthenticated::Review(_),
            )
            | Self::Ended(Ended::Revoked | Ended::Expired | Ended::TooOld) => StatusCode::UNAUTHORIZED,
            Self::Action(fault) => status_of_fault(fault),
            Self::Connect(ConnectFault::NothingElse) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Connect(ConnectFault::Multiplexed) => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::Connect(
                ConnectFault::NoTarget | ConnectFault::NoCluster | ConnectFault::NotANetwork(_),
            ) => StatusCode::BAD_REQUEST,
            Self::NotConnected(fault) => fault.status(),
            Self::Upgrade(_) | Self::ParkLimit(_) | Self::BrokenBody => StatusCode::BAD_REQUEST,
            Self::Browser(_)
            | Self::Headers(HeaderFault::Impersonation(_))
            | Self::Forbidden(_)
            | Self::NotAsserted(_)
            | Self::NotDelegated(NotDelegated::Forbidden { .. })
            | Self::Ended(Ended::PolicyChanged | Ended::ForbiddenByHost) => StatusCode::FORBIDDEN,
            Self::Headers(
                HeaderFault::Alias(_)
                | HeaderFault::ConnectionNames(_)
                | HeaderFault::TooMany
                | HeaderFault::TooLarge
                | HeaderFault::Hosts,
            ) => StatusCode::BAD_REQUEST,
            // Never 404, although one cluster is not known: a controller would take that for "the object is gone".
            Self::NoTunnel(_)
            | Self::NoStream(_)
            | Self::NotRecorded(_)
            | Self::NotDelegated(NotDelegated::Away)
            | Self::Ended(Ended::HostAway) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Lost(_) | Self::AgentSilent(_) | Self::LinkSilent(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::CallerSilent => StatusCode::REQUEST_TIMEOUT,
            Self::Aborted(_, code) => status_of_code(*code),
            Self::Redirect(_) | Self::Nonsense(_) => StatusCode::BAD_GATEWAY,
            Self::Busy | Self::Limited(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::NotWatchedAgain(_, status) => *status,
        }
    }

    /// When to try again, and whether a program may do so by itself.
    fn retry(&self) -> Option<Retry> {
        match self {
            Self::Limited(Limit::SourceFailures(_)) => Some(Retry::ByItself(LATER)),
            // The agent says so before it asks its API server.
            Self::Busy
            | Self::Limited(_)
            | Self::Aborted(_, AbortCode::Busy)
            | Self::NoTunnel(NoTunnel::Crowded(_)) => Some(Retry::ByItself(SOON)),
            Self::NoTunnel(NoTunnel::Away { .. }) => Some(Retry::AsItLikes(LATER)),
            Self::NotRecorded(_) | Self::NotConnected(NotConnected::NotRecorded(_)) => {
                Some(Retry::ByItself(SOON))
            }
            Self::Browser(_)
            | Self::NotAuthenticated(_)
            | Self::Ended(_)
            | Self::Action(_)
            | Self::Connect(_)
            | Self::NotConnected(_)
            | Self::Forbidden(_)
            | Self::NotDelegated(_)
            | Self::NotAsserted(_)
            | Self::Headers(_)
            | Self::Upgrade(_)
            | Self::ParkLimit(_)
            | Self::NoTunnel(NoTunnel::NeverSeen(_))
            | Self::NoStream(_)
            | Self::Lost(_)
            | Self::AgentSilent(_)
            | Self::LinkSilent(_)
            | Self::CallerSilent
            | Self::Aborted(..)
            | Self::Redirect(_)
            | Self::Nonsense(_)
            | Self::BrokenBody
            | Self::NotWatchedAgain(..) => None,
        }
    }

    /// A word for programs, in `details.causes` and in metrics.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Browser(_) => "BrowserRefused",
            Self::NotAuthenticated(NotAuthenticated::Unreachable(_)) => "AuthenticatorAway",
            Self::NotAuthenticated(_) => "NotAuthenticated",
            Self::Ended(Ended::Revoked) => "CredentialRevoked",
            Self::Ended(Ended::Expired) => "CredentialExpired",
            Self::Ended(Ended::PolicyChanged) => "PolicyChanged",
            Self::Ended(Ended::TooOld) => "SessionTooOld",
            Self::Ended(Ended::ForbiddenByHost) | Self::NotDelegated(NotDelegated::Forbidden { .. }) => {
                "ForbiddenByHost"
            }
            Self::Ended(Ended::HostAway) | Self::NotDelegated(NotDelegated::Away) => "HostAway",
            Self::Action(_) | Self::Connect(_) => "NotARequest",
            Self::NotConnected(fault) => fault.cause(),
            Self::Forbidden(_) => "ForbiddenByPolicy",
            Self::NotAsserted(_) => "NotAsserted",
            Self::Headers(_) => "HeadersRefused",
            Self::Upgrade(_) => "UpgradeRefused",
            Self::ParkLimit(_) => "ParkLimitRefused",
            Self::NoTunnel(NoTunnel::NeverSeen(_)) => "ClusterNeverSeen",
            Self::NoTunnel(NoTunnel::Away { .. }) => "ClusterNotConnected",
            Self::NoTunnel(NoTunnel::Crowded(_)) => "ClusterCrowded",
            Self::NoStream(_) => "ClusterBusy",
            Self::Lost(_) => "ClusterLost",
            Self::AgentSilent(_) => "AgentSilent",
            Self::LinkSilent(_) => "LinkSilent",
            Self::CallerSilent => "CallerSilent",
            Self::Aborted(_, code) => cause_of_code(*code),
            Self::Redirect(_) => "RedirectRefused",
            Self::Nonsense(_) => "NotHTTP",
            Self::BrokenBody => "BrokenBody",
            Self::Busy => "GatewayBusy",
            Self::Limited(limit) => limit.cause(),
            Self::NotRecorded(_) => "NotRecorded",
            Self::NotWatchedAgain(..) => "NotWatchedAgain",
        }
    }

    /// What to do, said to the caller.
    fn advice(&self) -> Option<&'static str> {
        match self {
            Self::NoTunnel(NoTunnel::NeverSeen(_)) => Some(
                "no agent of that name has ever connected to this gateway: check the name (GET /clusters lists yours), \
                 or install an agent in the cluster",
            ),
            Self::NoTunnel(NoTunnel::Away { .. } | NoTunnel::Crowded(_)) => Some(
                "its agents have connected before and are away now: check that one is running in the cluster and that \
                 the site can send UDP to this gateway",
            ),
            Self::Browser(_)
            | Self::NotAuthenticated(_)
            | Self::Ended(_)
            | Self::Action(_)
            | Self::Connect(_)
            | Self::NotConnected(_)
            | Self::Forbidden(_)
            | Self::NotDelegated(_)
            | Self::NotAsserted(_)
            | Self::Headers(_)
            | Self::Upgrade(_)
            | Self::ParkLimit(_)
            | Self::NoStream(_)
            | Self::Lost(_)
            | Self::AgentSilent(_)
            | Self::LinkSilent(_)
            | Self::CallerSilent
            | Self::Aborted(..)
            | Self::Redirect(_)
            | Self::Nonsense(_)
            | Self::BrokenBody
            | Self::Busy
            | Self::Limited(_)
            | Self::NotRecorded(_)
            | Self::NotWatchedAgain(..) => None,
        }
    }

    /// The `Status` (meta/v1) in JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        self.written().value()
    }

    fn written(&self) -> Status {
        let code = self.status();
        let message = match self.advice() {
            Some(advice) => format!("{self}: {advice}"),
            None => self.to_string(),
        };
        let after = self.retry().map(|(Retry::ByItself(after) | Retry::AsItLikes(after))| after.as_secs());
        Status::new(code.as_u16(), reason(code), self.cause(), message, after)
    }

    /// The `Status` in protobuf, as an answer's body has it.
    #[must_use]
    pub fn protobuf(&self) -> Vec<u8> {
        written::protobuf(&self.json())
    }

    /// The `Status` in CBOR, as an answer's body has it.
    #[must_use]
    pub fn cbor(&self) -> Vec<u8> {
        written::cbor(&self.json())
    }

    /// The answer, in JSON, which every client decodes by its content type.
    #[must_use]
    pub fn response(&self) -> Response<String> {
        let mut response = Response::new(self.written().text());
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(Retry::ByItself(after)) = self.retry() {
            headers.insert(RETRY_AFTER, after.as_secs().into());
        }
        if self.ends_the_connection() {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Whether what stands behind the request's head on an HTTP/1.1 connection must not be read as another request.
    fn ends_the_connection(&self) -> bool {
        matches!(
            self,
            Self::Browser(_)
                | Self::Upgrade(_)
                | Self::Headers(_)
                | Self::Action(_)
                | Self::Connect(_)
                | Self::NotConnected(_)
                | Self::BrokenBody
                | Self::CallerSilent
        )
    }
}

fn status_of_fault(fault: &ActionFault) -> StatusCode {
    match fault {
        ActionFault::Method(_) | ActionFault::ListOnlyGet => StatusCode::METHOD_NOT_ALLOWED,
        ActionFault::TooLong => StatusCode::URI_TOO_LONG,
        ActionFault::NotAClusterPath => StatusCode::NOT_FOUND,
        ActionFault::ForeignHost | ActionFault::TwiceNamed(_) | ActionFault::OtherConnection => {
            StatusCode::MISDIRECTED_REQUEST
        }
        ActionFault::NotAPath
        | ActionFault::RawByte
        | ActionFault::EmptySegment
        | ActionFault::DotSegment
        | ActionFault::HiddenCharacter
        | ActionFault::Encoding
        | ActionFault::NoHost
        | ActionFault::Hosts
        | ActionFault::HostsDisagree
        | ActionFault::NotAHost
        | ActionFault::NotAClusterName
        | ActionFault::UpgradeNotHere => StatusCode::BAD_REQUEST,
    }
}

/// Kubernetes' word for a status (`metav1.StatusReason`), where it has one.
fn reason(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST | StatusCode::MISDIRECTED_REQUEST => "BadRequest",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::GONE => "Expired",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => "Timeout",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        _ => "InternalError",
    }
}

#[cfg(test)]
mod tests;
