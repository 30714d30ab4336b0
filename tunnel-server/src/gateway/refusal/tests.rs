//! Claims that the list of causes and the table of refusals agree.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use audit::AuditError;
use http::{HeaderMap, StatusCode};
use policy::action::ActionError;
use proto::headers::HeaderError;
use proto::help::{BY_THE_GATEWAY, TROUBLESHOOTING};
use proto::upgrade_protocol::UpgradeError;
use proto::{AbortCode, ClusterId};
use summary::{NotAQuestion, SumOverflow};
use tokio::time::Instant;

use super::{Refusal, RefusalCause};
use crate::authz::NotDelegated;
use crate::config::Parking;
use crate::dialing::DialError;
use crate::exchanges::TerminationReason;
use crate::forwarding::ForwardError;
use crate::forwarding::park_timeout::{PARK_LIMIT, ParkTimeout};
use crate::gateway::cluster_sets::{ClusterCauses, ClusterSetError};
use crate::gateway::cross_origin::check::CrossOriginError;
use crate::gateway::summary_error::SummaryError;
use crate::identity::{Method, NotAuthenticated};
use crate::limits::LimitExceeded;
use crate::registry::RouteError;

/// The page to which messages refer.
const PAGE: &str = include_str!("../../../../docs/operate/troubleshooting.md");

#[test]
fn every_listed_cause_is_the_cause_of_a_refusal() {
    let mut without_sample = Vec::new();
    for cause in RefusalCause::ALL {
        match sample(cause) {
            Some(refusal) => assert_eq!(refusal.cause(), cause.as_str(), "{refusal}"),
            None => without_sample.push(cause),
        }
    }
    assert_eq!(without_sample, [RefusalCause::ForbiddenByPolicy, RefusalCause::NotAsserted]);
}

/// Both lists come from tables of facts, and the causes that both can have are in both.
#[test]
fn no_cause_is_listed_twice() {
    let words: BTreeSet<&str> = RefusalCause::ALL.iter().map(|cause| cause.as_str()).collect();
    assert_eq!(words.len(), RefusalCause::ALL.len());
    let of_dials: BTreeSet<&str> = DialError::CAUSES.iter().copied().collect();
    assert_eq!(of_dials.len(), DialError::CAUSES.len());
}

#[test]
fn every_abort_code_and_every_limit_has_a_listed_cause() {
    let words: BTreeSet<&str> = RefusalCause::ALL.iter().map(|cause| cause.as_str()).collect();
    for code in (0..64).map(AbortCode::from_number) {
        assert!(words.contains(aborted(code).cause()), "{code}");
    }
    for limit in [
        LimitExceeded::SourceFailures(1),
        LimitExceeded::CallerExchanges(1),
        LimitExceeded::CallerRequests(1),
        LimitExceeded::CallerRate(1),
        LimitExceeded::CallerSetReads(1),
        LimitExceeded::CallerListWatches(1),
        LimitExceeded::ListWatches(1),
        LimitExceeded::ClusterWatches(1),
        LimitExceeded::ClusterQueue,
    ] {
        assert_eq!(Refusal::Limited(limit).cause(), limit.cause(), "the listeners name limits alike");
    }
}

/// An answer names its cause, so that its reader finds the heading. The headings in lower case are checks of the doctor.
#[test]
fn the_page_on_troubleshooting_has_a_heading_for_every_cause() {
    let headings = PAGE.lines().filter_map(|line| line.strip_prefix("### "));
    let headings: BTreeSet<&str> =
        headings.filter(|heading| heading.starts_with(|letter: char| letter.is_ascii_uppercase())).collect();
    let causes = RefusalCause::ALL.iter().map(|cause| cause.as_str());

    let wanted: BTreeSet<&str> = causes.chain(DialError::CAUSES.iter().copied()).collect();

    assert_eq!(headings, wanted);
}

/// The reference is in each encoding, and kubectl's one line does not have it.
#[test]
fn every_refusal_refers_to_a_heading_that_exists() {
    let anchors: BTreeSet<String> = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .map(|heading| heading.to_ascii_lowercase().replace(' ', "-"))
        .collect();
    for refusal in RefusalCause::ALL.into_iter().filter_map(sample) {
        let json = refusal.json();
        let cause = &json["details"]["causes"][0];
        let message = cause["message"].as_str().unwrap();
        let reference =
            message.strip_prefix(BY_THE_GATEWAY).and_then(|rest| rest.strip_prefix(": see ")).unwrap();
        let (file, anchor) = reference.split_once('#').unwrap();
        assert_eq!(file, TROUBLESHOOTING);
        assert!(anchors.contains(anchor), "{message}");
        assert!(!json["message"].as_str().unwrap().contains(TROUBLESHOOTING), "{json}");
        assert_ne!(json["reason"], "Invalid", "kubectl would print the causes, too");
        let has = |bytes: &[u8]| bytes.windows(message.len()).any(|part| part == message.as_bytes());
        assert!(has(&refusal.protobuf()) && has(&refusal.cbor()), "{message}");
    }
}

/// A refusal with this cause. `None` where only the policy or an allow-list can make one.
fn sample(cause: RefusalCause) -> Option<Refusal> {
    Some(match cause {
        RefusalCause::ForbiddenByPolicy | RefusalCause::NotAsserted => return None,
        RefusalCause::BrowserRefused => CrossOriginError::Origin.into(),
        RefusalCause::AuthenticatorAway => NotAuthenticated::Unreachable(Method::StaticToken).into(),
        RefusalCause::NotAuthenticated => NotAuthenticated::NotAToken.into(),
        RefusalCause::CredentialRevoked => TerminationReason::Revoked.into(),
        RefusalCause::CredentialExpired => TerminationReason::Expired.into(),
        RefusalCause::PolicyChanged => TerminationReason::PolicyChanged.into(),
        RefusalCause::SessionTooOld => TerminationReason::TooOld.into(),
        RefusalCause::ServerStale => TerminationReason::Stale.into(),
        RefusalCause::NotARequest => ActionError::TooLong.into(),
        RefusalCause::ForbiddenByHost => TerminationReason::ForbiddenByHost.into(),
        RefusalCause::HostAway => NotDelegated::Away.into(),
        RefusalCause::HeadersRefused => HeaderError::TooMany.into(),
        RefusalCause::UpgradeRefused => UpgradeError::Protocol.into(),
        RefusalCause::ParkLimitRefused => park_limit_refused(),
        RefusalCause::ClusterNeverSeen => of_route(RouteError::NeverSeen(cluster())),
        RefusalCause::ClusterDeleted => of_route(RouteError::Deleted {
            cluster: cluster(),
            deleted: SystemTime::UNIX_EPOCH,
            is_reserved: true,
        }),
        RefusalCause::ClusterNotConnected => {
            of_route(RouteError::Away { cluster: cluster(), last_seen: SystemTime::UNIX_EPOCH })
        }
        RefusalCause::ClusterCrowded => of_route(RouteError::QueueFull(cluster())),
        RefusalCause::ClusterBusy => ForwardError::NoStream(cluster()).into(),
        RefusalCause::ClusterLost => ForwardError::Lost(cluster()).into(),
        RefusalCause::AgentSilent => ForwardError::AgentSilent(cluster(), Duration::ZERO).into(),
        RefusalCause::LinkSilent => ForwardError::LinkSilent(cluster(), Duration::ZERO).into(),
        RefusalCause::CallerSilent => ForwardError::CallerSilent.into(),
        RefusalCause::ApiServerUnreachable => aborted(AbortCode::ApiServerUnreachable),
        RefusalCause::ApiServerSilent => ForwardError::ApiServerSilent(cluster(), Duration::ZERO).into(),
        RefusalCause::ApiServerUntrusted => aborted(AbortCode::ApiServerUntrusted),
        RefusalCause::ApiServerLost => aborted(AbortCode::ApiServerLost),
        RefusalCause::ApiServerNotProcessed => aborted(AbortCode::ApiServerNotProcessed),
        RefusalCause::ApiServerNotHttp => aborted(AbortCode::ApiServerProtocolError),
        RefusalCause::AgentWithoutCredential => aborted(AbortCode::NoCredential),
        RefusalCause::ForbiddenByAgent => aborted(AbortCode::GuardRefused),
        RefusalCause::NoBearerToken => aborted(AbortCode::NoBearer),
        RefusalCause::AgentBusy => aborted(AbortCode::Busy),
        RefusalCause::NeverBegun => aborted(AbortCode::Fenced),
        RefusalCause::TargetLost => aborted(AbortCode::TargetLost),
        RefusalCause::AgentStopping => aborted(AbortCode::Draining),
        RefusalCause::AgentGaveUp => aborted(AbortCode::Abandoned),
        RefusalCause::RedirectRefused => {
            ForwardError::Redirect { cluster: cluster(), status: StatusCode::FOUND, host: None }.into()
        }
        RefusalCause::NotHttp => ForwardError::NotHttp(cluster()).into(),
        RefusalCause::BrokenBody => ForwardError::BrokenBody.into(),
        RefusalCause::GatewayBusy => Refusal::Busy,
        RefusalCause::TooManyFailedLogins => LimitExceeded::SourceFailures(1).into(),
        RefusalCause::CallerBusy => LimitExceeded::CallerRequests(1).into(),
        RefusalCause::CallerTooFast => LimitExceeded::CallerRate(1).into(),
        RefusalCause::ClusterFull => LimitExceeded::ClusterQueue.into(),
        RefusalCause::NotRecorded => AuditError::Closed.into(),
        RefusalCause::ClusterSetUnknown => ClusterSetError::Unknown("x".to_owned()).into(),
        RefusalCause::NotAcceptable => ClusterSetError::NotAcceptable.into(),
        RefusalCause::ContinueRefused => ClusterSetError::ContinueRefused.into(),
        RefusalCause::ContinueExpired => ClusterSetError::ContinueExpired.into(),
        RefusalCause::NobodyAnswered => ClusterSetError::NobodyAnswered(ClusterCauses::default()).into(),
        RefusalCause::PartialAnswer => ClusterSetError::Partial(ClusterCauses::default()).into(),
        RefusalCause::InSeveralClusters => ClusterSetError::InSeveral(ClusterCauses::default()).into(),
        RefusalCause::InNoCluster => ClusterSetError::Absent.into(),
        RefusalCause::NotAQuestion => NotAQuestion::TooLong.into(),
        RefusalCause::AgentCannotReduce => ForwardError::CannotReduce(cluster()).into(),
        RefusalCause::NotASummary => SummaryError::NotReducing(cluster()).into(),
        RefusalCause::NotReduced => SummaryError::Sum(SumOverflow).into(),
        RefusalCause::NotWatchedAgain => Refusal::WatchNotResumed(cluster(), StatusCode::BAD_GATEWAY),
    })
}

fn of_route(fault: RouteError) -> Refusal {
    ForwardError::from(fault).into()
}

fn aborted(code: AbortCode) -> Refusal {
    ForwardError::Aborted(cluster(), code).into()
}

fn park_limit_refused() -> Refusal {
    let limit = Duration::from_secs(1);
    let parking = Parking { limit, caller_limit: limit, per_cluster: 1 };
    let headers: HeaderMap = [(PARK_LIMIT, "-1".parse().unwrap())].into_iter().collect();
    ParkTimeout::parse(&parking, None, &headers, Instant::now()).unwrap_err().into()
}

fn cluster() -> ClusterId {
    "edge-a".parse().unwrap()
}
