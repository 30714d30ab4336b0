//! Whether every cause of a refusal is in the list of causes.

use std::collections::BTreeSet;

use super::*;

#[test]
fn every_cause_is_in_the_list_of_causes() {
    let cluster: ClusterId = "edge-a".parse().unwrap();
    let codes = (0..64).map(AbortCode::from_number).map(|code| Refusal::Aborted(cluster.clone(), code));
    let others = [
        Refusal::Browser(BrowserFault::Origin),
        Refusal::NotAuthenticated(NotAuthenticated::NotAToken),
        Refusal::NotAuthenticated(NotAuthenticated::Unreachable(crate::identity::Method::StaticToken)),
        Refusal::Ended(Ended::Revoked),
        Refusal::Ended(Ended::Expired),
        Refusal::Ended(Ended::PolicyChanged),
        Refusal::Ended(Ended::TooOld),
        Refusal::Ended(Ended::ForbiddenByHost),
        Refusal::NotDelegated(NotDelegated::Away),
        Refusal::Action(ActionFault::TooLong),
        Refusal::Headers(HeaderFault::TooMany),
        Refusal::NoTunnel(NoTunnel::NeverSeen(cluster.clone())),
        Refusal::NoTunnel(NoTunnel::Away {
            cluster: cluster.clone(),
            last_seen: std::time::SystemTime::UNIX_EPOCH,
        }),
        Refusal::NoTunnel(NoTunnel::Crowded(cluster.clone())),
        Refusal::NoStream(cluster.clone()),
        Refusal::Lost(cluster.clone()),
        Refusal::Redirect(cluster.clone()),
        Refusal::Nonsense(cluster.clone()),
        Refusal::BrokenBody,
        Refusal::Busy,
        Refusal::Limited(Limit::CallerRequests(1)),
        Refusal::Limited(Limit::SourceFailures(1)),
        Refusal::Limited(Limit::CallerRate(1)),
        Refusal::Limited(Limit::ClusterQueue),
        Refusal::NotRecorded(NotRecorded::Closed),
        Refusal::NotWatchedAgain(cluster.clone(), StatusCode::BAD_GATEWAY),
    ];
    let caused: BTreeSet<&str> = codes.chain(others).map(|refusal| refusal.cause()).collect();

    let listed: BTreeSet<&str> = Refusal::CAUSES.into();

    assert_eq!(listed.len(), Refusal::CAUSES.len(), "no word stands twice");
    // What policy, the allow-lists, upgrades and the park limit refuse is made by them alone.
    let missing: Vec<_> = listed.symmetric_difference(&caused).copied().collect();
    assert_eq!(missing, ["ForbiddenByPolicy", "NotAsserted", "ParkLimitRefused", "UpgradeRefused"]);
}
