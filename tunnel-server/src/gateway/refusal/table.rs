//! The one table of refusals: the facts of every variant. A new variant does not compile before it has them.

use audit::EndReason;
use http::StatusCode;
use policy::action::ActionFault;
use proto::AbortCode;
use proto::headers::HeaderFault;

use super::causes::RefusalCause as Cause;
use super::facts::{LATER, RefusalFacts, RetryAfter, SOON};
use super::reasons::Refusal;
use crate::dialing::NotConnected;
use crate::exchanges::TerminationReason;
use crate::exchanges::audit::{end_reason, end_reason_of_code};
use crate::gateway::connect_target::ConnectRequestError;
use crate::identity::{NotAuthenticated, SubprotocolFault};
use crate::metrics::WatchEnded;
use crate::permit::NotDelegated;
use crate::registry::NoTunnel;
use crate::shares::Limit;

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
            Self::NotConnected(fault) => of_dial(fault).closes_connection(),
            Self::Forbidden(_) => {
                refused(Cause::ForbiddenByPolicy, StatusCode::FORBIDDEN).watch_end(WatchEnded::NotAllowed)
            }
            Self::NotDelegated(NotDelegated::Forbidden { .. }) => {
                refused(Cause::ForbiddenByHost, StatusCode::FORBIDDEN).watch_end(WatchEnded::NotAllowed)
            }
            Self::NotDelegated(NotDelegated::Away) => {
                refused(Cause::HostAway, StatusCode::SERVICE_UNAVAILABLE).watch_end(WatchEnded::NotAllowed)
            }
            Self::NotAsserted(_) => {
                refused(Cause::NotAsserted, StatusCode::FORBIDDEN).watch_end(WatchEnded::NotAllowed)
            }
            Self::Headers(fault) => {
                refused(Cause::HeadersRefused, status_of_headers(fault)).closes_connection()
            }
            Self::Upgrade(_) => refused(Cause::UpgradeRefused, StatusCode::BAD_REQUEST).closes_connection(),
            Self::ParkLimit(_) => refused(Cause::ParkLimitRefused, StatusCode::BAD_REQUEST),
            Self::NoTunnel(fault) => of_route(fault),
            Self::NoStream(_) => refused(Cause::ClusterBusy, StatusCode::SERVICE_UNAVAILABLE),
            Self::Lost(_) => failed(Cause::ClusterLost, StatusCode::GATEWAY_TIMEOUT, EndReason::AgentLost),
            Self::AgentSilent(_) => {
                failed(Cause::AgentSilent, StatusCode::GATEWAY_TIMEOUT, EndReason::AgentLost)
            }
            Self::LinkSilent(_) => {
                failed(Cause::LinkSilent, StatusCode::GATEWAY_TIMEOUT, EndReason::AgentLost)
            }
            Self::CallerSilent => {
                failed(Cause::CallerSilent, StatusCode::REQUEST_TIMEOUT, EndReason::ClientCancel)
                    .closes_connection()
            }
            Self::Aborted(_, code) => of_abort(*code),
            Self::Redirect(_) => {
                failed(Cause::RedirectRefused, StatusCode::BAD_GATEWAY, EndReason::UpstreamReset)
            }
            Self::NotHttp(_) => failed(Cause::NotHttp, StatusCode::BAD_GATEWAY, EndReason::UpstreamReset),
            Self::BrokenBody => failed(Cause::BrokenBody, StatusCode::BAD_REQUEST, EndReason::ClientCancel)
                .closes_connection(),
            Self::Busy => {
                refused(Cause::GatewayBusy, StatusCode::TOO_MANY_REQUESTS).retry(RetryAfter::Header(SOON))
            }
            Self::Limited(limit) => of_limit(*limit),
            Self::AuditFailed(_) => {
                failed(Cause::NotRecorded, StatusCode::SERVICE_UNAVAILABLE, EndReason::AuditFailed)
                    .retry(RetryAfter::Header(SOON))
            }
            Self::WatchNotResumed(_, status) => {
                failed(Cause::NotWatchedAgain, *status, EndReason::UpstreamReset)
                    .watch_end(WatchEnded::Answered)
            }
        }
    }
}

fn of_authentication(error: &NotAuthenticated) -> RefusalFacts {
    match error {
        NotAuthenticated::TwoCredentials
        | NotAuthenticated::TwoAuthorizations
        | NotAuthenticated::Subprotocol(SubprotocolFault::Two) => {
            RefusalFacts::refused(Cause::NotAuthenticated, StatusCode::BAD_REQUEST)
        }
        NotAuthenticated::Away(_) => {
            RefusalFacts::refused(Cause::AuthenticatorAway, StatusCode::SERVICE_UNAVAILABLE)
        }
        NotAuthenticated::NoCredential(_)
        | NotAuthenticated::NoCertificate
        | NotAuthenticated::Scheme(_)
        | NotAuthenticated::NotAToken
        | NotAuthenticated::UnknownToken
        | NotAuthenticated::Certificate(_)
        | NotAuthenticated::Subprotocol(SubprotocolFault::Encoding | SubprotocolFault::Alone)
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
    };
    RefusalFacts::failed(cause, status, end_reason(why))
}

/// The status is never 404, although a cluster may be unknown: a controller would read that as "the object is
/// gone".
fn of_route(fault: &NoTunnel) -> RefusalFacts {
    let facts = |cause| RefusalFacts::refused(cause, StatusCode::SERVICE_UNAVAILABLE);
    match fault {
        NoTunnel::NeverSeen(_) => {
            facts(Cause::ClusterNeverSeen).advice(CHECK_NAME).watch_end(WatchEnded::Away)
        }
        NoTunnel::Away { .. } => facts(Cause::ClusterNotConnected)
            .advice(CHECK_AGENT)
            .retry(RetryAfter::DetailsOnly(LATER))
            .watch_end(WatchEnded::Away),
        NoTunnel::Crowded(_) => facts(Cause::ClusterCrowded)
            .advice(CHECK_AGENT)
            .retry(RetryAfter::Header(SOON))
            .watch_end(WatchEnded::NoPlace),
    }
}

fn of_dial(fault: &NotConnected) -> RefusalFacts {
    let facts = RefusalFacts::of_word(fault.cause(), fault.status(), fault.end());
    if matches!(fault, NotConnected::NotRecorded(_)) { facts.retry(RetryAfter::Header(SOON)) } else { facts }
}

fn of_limit(limit: Limit) -> RefusalFacts {
    let facts = |cause| RefusalFacts::refused(cause, StatusCode::TOO_MANY_REQUESTS);
    match limit {
        Limit::SourceFailures(_) => facts(Cause::TooManyFailedLogins).retry(RetryAfter::Header(LATER)),
        Limit::CallerExchanges(_)
        | Limit::CallerRequests(_)
        | Limit::CallerWatches(_)
        | Limit::CallerUpgrades(_)
        | Limit::EgressConnections(_)
        | Limit::PassthroughConnections(_)
        | Limit::PassthroughSource(_)
        | Limit::VipConnections(_)
        | Limit::VipSource(_) => facts(Cause::CallerBusy).retry(RetryAfter::Header(SOON)),
        Limit::CallerRate(_) => facts(Cause::CallerTooFast).retry(RetryAfter::Header(SOON)),
        Limit::ClusterWatches(_)
        | Limit::ClusterUpgrades(_)
        | Limit::ClusterQueue
        | Limit::ClusterRequests(_) => facts(Cause::ClusterFull).retry(RetryAfter::Header(SOON)),
    }
}

/// The facts of an answer that the agent has aborted with `code`.
fn of_abort(code: AbortCode) -> RefusalFacts {
    let (cause, status) = match code {
        AbortCode::ApiServerUnreachable => (Cause::ApiServerUnreachable, StatusCode::SERVICE_UNAVAILABLE),
        AbortCode::ApiServerSilent => (Cause::ApiServerSilent, StatusCode::GATEWAY_TIMEOUT),
        AbortCode::ApiServerUntrusted => (Cause::ApiServerUntrusted, StatusCode::SERVICE_UNAVAILABLE),
        AbortCode::ApiServerLost => (Cause::ApiServerLost, StatusCode::BAD_GATEWAY),
        AbortCode::ApiServerNonsense => (Cause::ApiServerNotHttp, StatusCode::BAD_GATEWAY),
        AbortCode::NoCredential => (Cause::AgentWithoutCredential, StatusCode::SERVICE_UNAVAILABLE),
        AbortCode::GuardRefused | AbortCode::NoPassThrough => {
            (Cause::ForbiddenByAgent, StatusCode::FORBIDDEN)
        }
        AbortCode::TargetLost => (Cause::TargetLost, StatusCode::BAD_GATEWAY),
        AbortCode::NoBearer => (Cause::NoBearerToken, StatusCode::UNAUTHORIZED),
        AbortCode::Busy => (Cause::AgentBusy, StatusCode::TOO_MANY_REQUESTS),
        AbortCode::BadRequest => (Cause::HeadersRefused, StatusCode::BAD_REQUEST),
        AbortCode::Draining => (Cause::AgentStopping, StatusCode::SERVICE_UNAVAILABLE),
        AbortCode::Abandoned | AbortCode::CallerStalled | AbortCode::BadOpen | AbortCode::Unknown(_) => {
            (Cause::AgentGaveUp, StatusCode::BAD_GATEWAY)
        }
    };
    let facts = RefusalFacts::failed(cause, status, end_reason_of_code(code));
    // A busy agent aborts before it asks its API server.
    if code == AbortCode::Busy { facts.retry(RetryAfter::Header(SOON)) } else { facts }
}

fn status_of_action(fault: &ActionFault) -> StatusCode {
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

fn status_of_connect(error: &ConnectRequestError) -> StatusCode {
    match error {
        ConnectRequestError::NothingElse => StatusCode::METHOD_NOT_ALLOWED,
        ConnectRequestError::Multiplexed => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
        ConnectRequestError::NoTarget
        | ConnectRequestError::NoCluster
        | ConnectRequestError::NotANetwork(_) => StatusCode::BAD_REQUEST,
    }
}

fn status_of_headers(fault: &HeaderFault) -> StatusCode {
    match fault {
        HeaderFault::Impersonation(_) => StatusCode::FORBIDDEN,
        HeaderFault::Alias(_)
        | HeaderFault::ConnectionNames(_)
        | HeaderFault::TooMany
        | HeaderFault::TooLarge
        | HeaderFault::Hosts => StatusCode::BAD_REQUEST,
    }
}
