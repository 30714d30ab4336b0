//! The one table of refusals: the facts of every variant. A new variant does not compile before it has them.

use audit::EndReason;
use http::StatusCode;
use policy::action::ActionError;
use proto::AbortCode;
use proto::headers::HeaderError;

use super::causes::RefusalCause as Cause;
use super::facts::{LATER, RefusalFacts, RetryAfter, SOON};
use super::reasons::{MalformedRequest, Refusal};
use crate::authz::NotDelegated;
use crate::dialing::DialError;
use crate::exchanges::TerminationReason;
use crate::exchanges::audit::{end_reason, end_reason_of_code};
use crate::forwarding::ForwardError;
use crate::gateway::cluster_sets::ClusterSetError;
use crate::gateway::connect_target::ConnectRequestError;
use crate::gateway::summary_error::SummaryError;
use crate::identity::{NotAuthenticated, SubprotocolError};
use crate::limits::LimitExceeded;
use crate::metrics::WatchEnded;
use crate::registry::RouteError;

/// Advice where the cluster's name is unknown.
const CHECK_NAME: &str = "no agent of that name has ever connected to this gateway: check the name (GET /clusters lists \
                          yours), or install an agent in the cluster";

/// Advice where the cluster has no tunnel.
const CHECK_AGENT: &str = "its agents have connected before and are away now: check that one is running in the cluster and \
                           that the site can send UDP to this gateway";

impl Refusal {
    /// The facts of this refusal.
    pub(crate) fn facts(&self) -> RefusalFacts {
        let refused = RefusalFacts::refused;
        let failed = RefusalFacts::failed;
        match self {
            Self::CrossOrigin(_) => refused(Cause::BrowserRefused, StatusCode::FORBIDDEN).closes_connection(),
            Self::NotAuthenticated(error) => of_authentication(error).watch_end(WatchEnded::NotAllowed),
            Self::Terminated(why) => of_termination(*why).watch_end(WatchEnded::NotAllowed),
            Self::Action(fault) => refused(Cause::NotARequest, status_of_action(fault)).closes_connection(),
            Self::Connect(error) => refused(Cause::NotARequest, status_of_connect(error)).closes_connection(),
            Self::DialError(fault) => of_dial(fault).closes_connection(),
            Self::Forbidden(_) => {
                refused(Cause::ForbiddenByPolicy, StatusCode::FORBIDDEN).watch_end(WatchEnded::NotAllowed)
            }
            Self::NotDelegated(NotDelegated::Forbidden { .. }) => {
                refused(Cause::ForbiddenByHost, StatusCode::FORBIDDEN).watch_end(WatchEnded::NotAllowed)
            }
            Self::NotDelegated(NotDelegated::Away) => {
                refused(Cause::HostAway, StatusCode::SERVICE_UNAVAILABLE).watch_end(WatchEnded::NotAllowed)
            }
            Self::Headers(fault) => {
                refused(Cause::HeadersRefused, status_of_headers(fault)).closes_connection()
            }
            Self::Malformed(fault) => {
                let (cause, status) = of_malformed(*fault);
                refused(cause, status).closes_connection()
            }
            Self::Upgrade(_) => refused(Cause::UpgradeRefused, StatusCode::BAD_REQUEST).closes_connection(),
            Self::ParkLimit(_) => refused(Cause::ParkLimitRefused, StatusCode::BAD_REQUEST),
            Self::Forward(error) => of_forwarding(error),
            Self::ClusterSet(error) => of_cluster_set(error),
            Self::Question(_) => refused(Cause::NotAQuestion, StatusCode::BAD_REQUEST),
            Self::Summary(error) => of_summary(error),
            Self::Busy => {
                refused(Cause::GatewayBusy, StatusCode::TOO_MANY_REQUESTS).retry(RetryAfter::Header(SOON))
            }
            Self::Limited(limit) => of_limit(*limit),
            Self::AuditFailed(_) => not_recorded(),
            Self::WatchNotResumed(_, status) => {
                failed(Cause::NotWatchedAgain, *status, EndReason::UpstreamReset)
                    .watch_end(WatchEnded::Answered)
            }
        }
    }
}

fn of_forwarding(error: &ForwardError) -> RefusalFacts {
    let refused = RefusalFacts::refused;
    let failed = RefusalFacts::failed;
    match error {
        ForwardError::NotAsserted(_) => {
            refused(Cause::NotAsserted, StatusCode::FORBIDDEN).watch_end(WatchEnded::NotAllowed)
        }
        ForwardError::RouteError(fault) => of_route(fault),
        ForwardError::CannotReduce(_) => refused(Cause::AgentCannotReduce, StatusCode::NOT_IMPLEMENTED),
        ForwardError::NoStream(_) => refused(Cause::ClusterBusy, StatusCode::SERVICE_UNAVAILABLE),
        ForwardError::Lost(_) => {
            failed(Cause::ClusterLost, StatusCode::GATEWAY_TIMEOUT, EndReason::AgentLost)
        }
        ForwardError::AgentSilent(..) => {
            failed(Cause::AgentSilent, StatusCode::GATEWAY_TIMEOUT, EndReason::AgentLost)
        }
        ForwardError::LinkSilent(..) => {
            failed(Cause::LinkSilent, StatusCode::GATEWAY_TIMEOUT, EndReason::AgentLost)
        }
        ForwardError::CallerSilent => {
            failed(Cause::CallerSilent, StatusCode::REQUEST_TIMEOUT, EndReason::ClientCancel)
                .closes_connection()
        }
        ForwardError::ApiServerSilent(..) => of_abort(AbortCode::ApiServerSilent),
        ForwardError::Aborted(_, code) => of_abort(*code),
        ForwardError::Redirect { .. } => {
            failed(Cause::RedirectRefused, StatusCode::BAD_GATEWAY, EndReason::UpstreamReset)
        }
        ForwardError::NotHttp(_) => failed(Cause::NotHttp, StatusCode::BAD_GATEWAY, EndReason::UpstreamReset),
        ForwardError::BrokenBody => {
            failed(Cause::BrokenBody, StatusCode::BAD_REQUEST, EndReason::ClientCancel).closes_connection()
        }
        ForwardError::AuditFailed(_) => not_recorded(),
    }
}

fn of_cluster_set(error: &ClusterSetError) -> RefusalFacts {
    let facts = RefusalFacts::refused;
    match error {
        ClusterSetError::Unknown(_) => facts(Cause::ClusterSetUnknown, StatusCode::BAD_REQUEST),
        ClusterSetError::NotAcceptable => facts(Cause::NotAcceptable, StatusCode::NOT_ACCEPTABLE),
        ClusterSetError::ContinueRefused => facts(Cause::ContinueRefused, StatusCode::BAD_REQUEST),
        // client-go lists anew after this status.
        ClusterSetError::ContinueExpired => facts(Cause::ContinueExpired, StatusCode::GONE),
        ClusterSetError::NobodyAnswered(_) => facts(Cause::NobodyAnswered, StatusCode::SERVICE_UNAVAILABLE),
        ClusterSetError::Partial(_) => facts(Cause::PartialAnswer, StatusCode::GATEWAY_TIMEOUT),
        ClusterSetError::InSeveral(_) => facts(Cause::InSeveralClusters, StatusCode::CONFLICT),
        ClusterSetError::Absent => facts(Cause::InNoCluster, StatusCode::NOT_FOUND),
    }
}

fn of_summary(error: &SummaryError) -> RefusalFacts {
    let failed = |cause| RefusalFacts::failed(cause, StatusCode::BAD_GATEWAY, EndReason::UpstreamReset);
    match error {
        SummaryError::NotASummary(..) | SummaryError::NotReducing(_) => failed(Cause::NotASummary),
        SummaryError::BrokenOff(_) => failed(Cause::ClusterLost),
        SummaryError::NotReduced(..) | SummaryError::Sum(_) => failed(Cause::NotReduced),
    }
}

fn not_recorded() -> RefusalFacts {
    RefusalFacts::failed(Cause::NotRecorded, StatusCode::SERVICE_UNAVAILABLE, EndReason::AuditFailed)
        .retry(RetryAfter::Header(SOON))
}

fn of_authentication(error: &NotAuthenticated) -> RefusalFacts {
    match error {
        NotAuthenticated::TwoCredentials
        | NotAuthenticated::TwoAuthorizations
        | NotAuthenticated::Subprotocol(SubprotocolError::Two) => {
            RefusalFacts::refused(Cause::NotAuthenticated, StatusCode::BAD_REQUEST)
        }
        NotAuthenticated::Unreachable(_) => {
            RefusalFacts::refused(Cause::AuthenticatorAway, StatusCode::SERVICE_UNAVAILABLE)
        }
        NotAuthenticated::NoCredential(_)
        | NotAuthenticated::NoCertificate
        | NotAuthenticated::Scheme(_)
        | NotAuthenticated::NotAToken
        | NotAuthenticated::UnknownToken
        | NotAuthenticated::Certificate(_)
        | NotAuthenticated::Subprotocol(SubprotocolError::Encoding | SubprotocolError::Alone)
        | NotAuthenticated::Token(_)
        | NotAuthenticated::Review(_) => {
            RefusalFacts::refused(Cause::NotAuthenticated, StatusCode::UNAUTHORIZED)
        }
    }
}

fn of_termination(why: TerminationReason) -> RefusalFacts {
    let (cause, status) = match why {
        TerminationReason::Revoked => (Cause::CredentialRevoked, StatusCode::UNAUTHORIZED),
        TerminationReason::Expired => (Cause::CredentialExpired, StatusCode::UNAUTHORIZED),
        TerminationReason::TooOld => (Cause::SessionTooOld, StatusCode::UNAUTHORIZED),
        TerminationReason::PolicyChanged => (Cause::PolicyChanged, StatusCode::FORBIDDEN),
        TerminationReason::ForbiddenByHost => (Cause::ForbiddenByHost, StatusCode::FORBIDDEN),
        TerminationReason::HostAway => (Cause::HostAway, StatusCode::SERVICE_UNAVAILABLE),
        TerminationReason::Stale => (Cause::ServerStale, StatusCode::SERVICE_UNAVAILABLE),
    };
    let facts = RefusalFacts::failed(cause, status, end_reason(why));
    // The caller's next connection may reach a server that is fresh.
    if why == TerminationReason::Stale {
        facts.retry(RetryAfter::Header(SOON)).closes_connection()
    } else {
        facts
    }
}

/// The status is never 404, although a cluster may be unknown: a controller would read that as "the object is
/// gone".
fn of_route(fault: &RouteError) -> RefusalFacts {
    let facts = |cause| RefusalFacts::refused(cause, StatusCode::SERVICE_UNAVAILABLE);
    match fault {
        RouteError::NeverSeen(_) => {
            facts(Cause::ClusterNeverSeen).advice(CHECK_NAME).watch_end(WatchEnded::Away)
        }
        RouteError::Deleted { .. } => facts(Cause::ClusterDeleted).watch_end(WatchEnded::Away),
        RouteError::Away { .. } => facts(Cause::ClusterNotConnected)
            .advice(CHECK_AGENT)
            .retry(RetryAfter::DetailsOnly(LATER))
            .watch_end(WatchEnded::Away),
        RouteError::QueueFull(_) => facts(Cause::ClusterCrowded)
            .advice(CHECK_AGENT)
            .retry(RetryAfter::Header(SOON))
            .watch_end(WatchEnded::NoSlot),
    }
}

fn of_dial(fault: &DialError) -> RefusalFacts {
    let facts = RefusalFacts::of_word(fault.cause(), fault.status(), fault.end());
    if matches!(fault, DialError::NotRecorded(_)) { facts.retry(RetryAfter::Header(SOON)) } else { facts }
}

fn of_limit(limit: LimitExceeded) -> RefusalFacts {
    let facts = |cause| RefusalFacts::refused(cause, StatusCode::TOO_MANY_REQUESTS);
    match limit {
        LimitExceeded::SourceFailures(_) => {
            facts(Cause::TooManyFailedLogins).retry(RetryAfter::Header(LATER))
        }
        LimitExceeded::CallerExchanges(_)
        | LimitExceeded::CallerRequests(_)
        | LimitExceeded::CallerWatches(_)
        | LimitExceeded::CallerUpgrades(_)
        | LimitExceeded::CallerConnections(_)
        | LimitExceeded::CallerSetReads(_)
        | LimitExceeded::CallerListWatches(_)
        | LimitExceeded::EgressConnections(_)
        | LimitExceeded::PassthroughConnections(_)
        | LimitExceeded::PassthroughSource(_)
        | LimitExceeded::VipConnections(_)
        | LimitExceeded::VipSource(_) => facts(Cause::CallerBusy).retry(RetryAfter::Header(SOON)),
        LimitExceeded::ListWatches(_) => facts(Cause::GatewayBusy).retry(RetryAfter::Header(SOON)),
        LimitExceeded::CallerRate(_) => facts(Cause::CallerTooFast).retry(RetryAfter::Header(SOON)),
        LimitExceeded::ClusterWatches(_)
        | LimitExceeded::ClusterUpgrades(_)
        | LimitExceeded::ClusterQueue
        | LimitExceeded::ClusterRequests(_) => facts(Cause::ClusterFull).retry(RetryAfter::Header(SOON)),
    }
}

/// The facts of an answer that the agent has aborted with `code`.
fn of_abort(code: AbortCode) -> RefusalFacts {
    let (cause, status) = match code {
        AbortCode::ApiServerUnreachable => (Cause::ApiServerUnreachable, StatusCode::SERVICE_UNAVAILABLE),
        AbortCode::ApiServerSilent => (Cause::ApiServerSilent, StatusCode::GATEWAY_TIMEOUT),
        AbortCode::ApiServerUntrusted
        | AbortCode::ApiServerUnknownIssuer
        | AbortCode::ApiServerWrongName
        | AbortCode::ApiServerCertificateExpired
        | AbortCode::ApiServerWeakCertificate => (Cause::ApiServerUntrusted, StatusCode::SERVICE_UNAVAILABLE),
        AbortCode::ApiServerNotProcessed => (Cause::ApiServerNotProcessed, StatusCode::SERVICE_UNAVAILABLE),
        AbortCode::ApiServerLost => (Cause::ApiServerLost, StatusCode::BAD_GATEWAY),
        AbortCode::ApiServerProtocolError => (Cause::ApiServerNotHttp, StatusCode::BAD_GATEWAY),
        AbortCode::NoCredential => (Cause::AgentWithoutCredential, StatusCode::SERVICE_UNAVAILABLE),
        AbortCode::GuardRefused | AbortCode::NoPassThrough => {
            (Cause::ForbiddenByAgent, StatusCode::FORBIDDEN)
        }
        AbortCode::TunnelLost => (Cause::ClusterLost, StatusCode::GATEWAY_TIMEOUT),
        AbortCode::TargetLost => (Cause::TargetLost, StatusCode::BAD_GATEWAY),
        AbortCode::NoBearer => (Cause::NoBearerToken, StatusCode::UNAUTHORIZED),
        AbortCode::Busy => (Cause::AgentBusy, StatusCode::TOO_MANY_REQUESTS),
        AbortCode::Fenced => (Cause::NeverBegun, StatusCode::SERVICE_UNAVAILABLE),
        AbortCode::BadRequest => (Cause::HeadersRefused, StatusCode::BAD_REQUEST),
        AbortCode::Draining => (Cause::AgentStopping, StatusCode::SERVICE_UNAVAILABLE),
        AbortCode::Abandoned | AbortCode::SlowReader | AbortCode::BadOpen | AbortCode::Unknown(_) => {
            (Cause::AgentGaveUp, StatusCode::BAD_GATEWAY)
        }
    };
    let facts = RefusalFacts::failed(cause, status, end_reason_of_code(code));
    if matches!(code, AbortCode::Busy | AbortCode::Fenced) {
        // These agents abort before they ask their API server.
        facts.retry(RetryAfter::Header(SOON))
    } else if code == AbortCode::ApiServerNotProcessed {
        // The agent has sent it several times, so client-go is not to repeat all of that by itself.
        facts.retry(RetryAfter::DetailsOnly(SOON))
    } else {
        facts
    }
}

fn status_of_action(fault: &ActionError) -> StatusCode {
    match fault {
        ActionError::Method(_) | ActionError::ListOnlyGet | ActionError::SetOnlyRead => {
            StatusCode::METHOD_NOT_ALLOWED
        }
        ActionError::TooLong => StatusCode::URI_TOO_LONG,
        ActionError::NotAClusterPath => StatusCode::NOT_FOUND,
        ActionError::ForeignHost | ActionError::TwiceNamed(_) | ActionError::OtherConnection => {
            StatusCode::MISDIRECTED_REQUEST
        }
        ActionError::NotAPath
        | ActionError::RawByte
        | ActionError::EmptySegment
        | ActionError::DotSegment
        | ActionError::HiddenCharacter
        | ActionError::Encoding
        | ActionError::QueryEncoding
        | ActionError::Semicolon
        | ActionError::TooManyParameters
        | ActionError::AmbiguousWatch
        | ActionError::NestedCluster
        | ActionError::NoHost
        | ActionError::Hosts
        | ActionError::HostsDisagree
        | ActionError::NotAHost
        | ActionError::NotAClusterName
        | ActionError::NotOfASet
        | ActionError::NotASetName
        | ActionError::ClusterSelector(_)
        | ActionError::LabelSelector(_)
        | ActionError::ListVersion
        | ActionError::IncludeObject
        | ActionError::Twice(_)
        | ActionError::NotANumber(_)
        | ActionError::SetVersion
        | ActionError::ReduceNotAList
        | ActionError::ReduceWithPages(_)
        | ActionError::UpgradeNotHere => StatusCode::BAD_REQUEST,
    }
}

fn status_of_connect(error: &ConnectRequestError) -> StatusCode {
    match error {
        ConnectRequestError::NothingElse => StatusCode::METHOD_NOT_ALLOWED,
        ConnectRequestError::Multiplexed => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
        ConnectRequestError::NoTarget
        | ConnectRequestError::NoCluster
        | ConnectRequestError::NotANetwork(_) => StatusCode::BAD_REQUEST,
    }
}

fn of_malformed(fault: MalformedRequest) -> (Cause, StatusCode) {
    match fault {
        MalformedRequest::Unreadable => (Cause::NotARequest, StatusCode::BAD_REQUEST),
        MalformedRequest::TargetTooLong => (Cause::NotARequest, StatusCode::URI_TOO_LONG),
        MalformedRequest::HeadTooLarge => {
            (Cause::HeadersRefused, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
        }
    }
}

fn status_of_headers(fault: &HeaderError) -> StatusCode {
    match fault {
        HeaderError::Impersonation(_) => StatusCode::FORBIDDEN,
        HeaderError::TooMany | HeaderError::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        HeaderError::Alias(_) | HeaderError::ConnectionNames(_) | HeaderError::Hosts => {
            StatusCode::BAD_REQUEST
        }
    }
}
