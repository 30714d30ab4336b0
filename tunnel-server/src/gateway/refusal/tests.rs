//! Claims that the list of causes and the table of refusals agree.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use audit::NotRecorded;
use http::{HeaderMap, StatusCode};
use policy::action::ActionFault;
use proto::headers::HeaderFault;
use proto::upgrade::UpgradeFault;
use proto::{AbortCode, ClusterId};
use tokio::time::Instant;

use super::{Refusal, RefusalCause};
use crate::config::Parking;
use crate::dialing::NotConnected;
use crate::exchanges::TerminationReason;
use crate::gateway::cross_origin::check::CrossOriginError;
use crate::gateway::park_timeout::{PARK_LIMIT, ParkTimeout};
use crate::identity::{Method, NotAuthenticated};
use crate::permit::NotDelegated;
use crate::registry::NoTunnel;
use crate::shares::Limit;

#[test]
fn every_listed_cause_is_the_cause_of_a_refusal() {
    let mut without_sample = Vec::new();
    for cause in RefusalCause::ALL {
        match sample(*cause) {
            Some(refusal) => assert_eq!(refusal.cause(), cause.as_str(), "{refusal}"),
            None => without_sample.push(*cause),
        }
    }
    assert_eq!(without_sample, [RefusalCause::ForbiddenByPolicy, RefusalCause::NotAsserted]);
}

#[test]
fn no_cause_is_listed_twice() {
    let words: BTreeSet<&str> = RefusalCause::ALL.iter().map(|cause| cause.as_str()).collect();
    assert_eq!(words.len(), RefusalCause::ALL.len());
    assert!(NotConnected::CAUSES.iter().all(|cause| !words.contains(cause)));
}

#[test]
fn every_abort_code_and_every_limit_has_a_listed_cause() {
    let words: BTreeSet<&str> = RefusalCause::ALL.iter().map(|cause| cause.as_str()).collect();
    for code in (0..64).map(AbortCode::from_number) {
        assert!(words.contains(Refusal::Aborted(cluster(), code).cause()), "{code}");
    }
    for limit in [
        Limit::SourceFailures(1),
        Limit::CallerExchanges(1),
        Limit::CallerRequests(1),
        Limit::CallerRate(1),
        Limit::ClusterWatches(1),
        Limit::ClusterQueue,
    ] {
        assert_eq!(Refusal::Limited(limit).cause(), limit.cause(), "the listeners name limits alike");
    }
}

/// A refusal with this cause. `None` where only the policy or an allow-list can make one.
fn sample(cause: RefusalCause) -> Option<Refusal> {
    Some(match cause {
        RefusalCause::ForbiddenByPolicy | RefusalCause::NotAsserted => return None,
        RefusalCause::BrowserRefused => CrossOriginError::Origin.into(),
        RefusalCause::AuthenticatorAway => NotAuthenticated::Away(Method::StaticToken).into(),
        RefusalCause::NotAuthenticated => NotAuthenticated::NotAToken.into(),
        RefusalCause::CredentialRevoked => TerminationReason::Revoked.into(),
        RefusalCause::CredentialExpired => TerminationReason::Expired.into(),
        RefusalCause::PolicyChanged => TerminationReason::PolicyChanged.into(),
        RefusalCause::SessionTooOld => TerminationReason::TooOld.into(),
        RefusalCause::NotARequest => ActionFault::TooLong.into(),
        RefusalCause::ForbiddenByHost => TerminationReason::ForbiddenByHost.into(),
        RefusalCause::HostAway => NotDelegated::Away.into(),
        RefusalCause::HeadersRefused => HeaderFault::TooMany.into(),
        RefusalCause::UpgradeRefused => UpgradeFault::Protocol.into(),
        RefusalCause::ParkLimitRefused => park_limit_refused(),
        RefusalCause::ClusterNeverSeen => NoTunnel::NeverSeen(cluster()).into(),
        RefusalCause::ClusterNotConnected => {
            NoTunnel::Away { cluster: cluster(), last_seen: SystemTime::UNIX_EPOCH }.into()
        }
        RefusalCause::ClusterCrowded => NoTunnel::Crowded(cluster()).into(),
        RefusalCause::ClusterBusy => Refusal::NoStream(cluster()),
        RefusalCause::ClusterLost => Refusal::Lost(cluster()),
        RefusalCause::AgentSilent => Refusal::AgentSilent(cluster()),
        RefusalCause::LinkSilent => Refusal::LinkSilent(cluster()),
        RefusalCause::CallerSilent => Refusal::CallerSilent,
        RefusalCause::ApiServerUnreachable => aborted(AbortCode::ApiServerUnreachable),
        RefusalCause::ApiServerSilent => aborted(AbortCode::ApiServerSilent),
        RefusalCause::ApiServerUntrusted => aborted(AbortCode::ApiServerUntrusted),
        RefusalCause::ApiServerLost => aborted(AbortCode::ApiServerLost),
        RefusalCause::ApiServerNotHttp => aborted(AbortCode::ApiServerNonsense),
        RefusalCause::AgentWithoutCredential => aborted(AbortCode::NoCredential),
        RefusalCause::ForbiddenByAgent => aborted(AbortCode::GuardRefused),
        RefusalCause::NoBearerToken => aborted(AbortCode::NoBearer),
        RefusalCause::AgentBusy => aborted(AbortCode::Busy),
        RefusalCause::TargetLost => aborted(AbortCode::TargetLost),
        RefusalCause::AgentStopping => aborted(AbortCode::Draining),
        RefusalCause::AgentGaveUp => aborted(AbortCode::Abandoned),
        RefusalCause::RedirectRefused => Refusal::Redirect(cluster()),
        RefusalCause::NotHttp => Refusal::NotHttp(cluster()),
        RefusalCause::BrokenBody => Refusal::BrokenBody,
        RefusalCause::GatewayBusy => Refusal::Busy,
        RefusalCause::TooManyFailedLogins => Limit::SourceFailures(1).into(),
        RefusalCause::CallerBusy => Limit::CallerRequests(1).into(),
        RefusalCause::CallerTooFast => Limit::CallerRate(1).into(),
        RefusalCause::ClusterFull => Limit::ClusterQueue.into(),
        RefusalCause::NotRecorded => NotRecorded::Closed.into(),
        RefusalCause::NotWatchedAgain => Refusal::WatchNotResumed(cluster(), StatusCode::BAD_GATEWAY),
    })
}

fn aborted(code: AbortCode) -> Refusal {
    Refusal::Aborted(cluster(), code)
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
