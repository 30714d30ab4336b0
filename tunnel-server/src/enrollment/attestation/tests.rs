//! The pods that are a cluster's agents, and the keys that are added.

use std::time::Duration;

use super::*;
use crate::directory::UnixSeconds;
use crate::enrollment::test_cluster::{ISSUER, TestCluster, keys};
use crate::identity::oidc::{ClaimError, OidcTokenError};

const NOW: u64 = 1_800_000_000;

/// Another namespace, account, UID or key is refused.
#[test]
fn only_pods_of_the_recorded_account_and_keys_are_a_clusters_agents() {
    let (edge_a, edge_b) = (cluster("a"), cluster("b"));
    let (workload, first) =
        with_verification(|verification| verification.first(&edge_a.sent("tunnel-agent", "7d"))).unwrap();
    assert_eq!((first.name.as_str(), workload.account.as_str()), ("pod", "tunnel-agent"));
    let verified = |token: String| with_verification(|verification| verification.pod(&workload, &token));

    verified(edge_a.token("tunnel-agent", "7d")).unwrap();

    let other = verified(edge_a.token("default", "7d")).unwrap_err();
    let anew = verified(edge_a.token("tunnel-agent", "8e")).unwrap_err();
    assert!(
        matches!((&other, &anew), (NotOurPod::Account { .. }, NotOurPod::Account { .. })),
        "{other}, {anew}"
    );
    let elsewhere = verified(edge_a.token_in("elsewhere", "tunnel-agent", "7d")).unwrap_err();
    assert!(matches!(&elsewhere, NotOurPod::Account { .. }), "{elsewhere}");
    assert!(other.is_signed() && anew.to_string().contains("attestation forget"), "{anew}");
    // Another cluster with the same issuer, the same account and UID, and the same key ID.
    for other in [edge_b, cluster("a")] {
        let refused = verified(other.token("tunnel-agent", "7d")).unwrap_err();
        assert!(!refused.is_signed(), "{refused}");
    }
}

#[test]
fn a_sent_workload_is_recorded_only_if_its_own_keys_have_signed() {
    let (edge_a, edge_b) = (cluster("a"), cluster("a"));
    let mut sent = edge_a.sent("tunnel-agent", "7d");
    let first = |sent: &sent::Workload| {
        with_verification(|verification| verification.first(sent).map(|(workload, _)| workload))
    };

    let keys = std::mem::replace(&mut sent.issuer_keys, edge_b.keys());
    let refused = first(&sent).unwrap_err();
    assert_eq!(refused, NotOurPod::Pod(PodTokenError::Token(OidcTokenError::Signature)));
    sent.issuer_keys = keys;
    let elsewhere = OidcTokenError::Claims(ClaimError::Required("iss".to_owned()));
    for (issuer, fault) in [
        ("https://elsewhere", NotOurPod::Pod(PodTokenError::Token(elsewhere.clone()))),
        (&"x".repeat(ISSUER_BYTES_MAX), NotOurPod::Pod(PodTokenError::Token(elsewhere))),
        ("", NotOurPod::Issuer),
        ("https://a\u{1b}[2J", NotOurPod::Issuer),
        (&"x".repeat(ISSUER_BYTES_MAX + 1), NotOurPod::Issuer),
    ] {
        let sent = sent::Workload { issuer: issuer.to_owned(), ..sent.clone() };
        assert_eq!(first(&sent), Err(fault), "{issuer:?}");
    }
    let recorded = first(&sent).unwrap();
    assert_eq!((recorded.issuer.as_str(), recorded.recorded), (ISSUER, UnixSeconds(NOW)));
}

#[test]
fn new_keys_are_added_if_one_is_known_and_the_cluster_is_open() {
    let [old, new] = ["old", "new"].map(cluster);
    let (workload, _) =
        with_verification(|verification| verification.first(&old.sent("tunnel-agent", "7d"))).unwrap();
    let open = Attestation { workload: Some(workload), closed: None };
    let both = keys(&[&old, &new]);

    let (next, names) = add_keys(&open, &both).unwrap().expect("one is new");
    assert_eq!(names, "old, new");
    let workload = super::open(&next).unwrap();
    with_verification(|verification| verification.pod(workload, &new.token("tunnel-agent", "7d"))).unwrap();

    assert_eq!(add_keys(&next, &both), Ok(None), "nothing is new");
    assert_eq!(add_keys(&open, &new.keys()), Err(AddKeysRefused::Unusable(AddKeysError::NoneKnown)));
    let closed = Attestation { closed: Some(UnixSeconds(1)), ..open };
    assert_eq!(add_keys(&closed, &both), Err(AddKeysRefused::Closed));
    assert!(super::open(&closed).is_none());
    assert_eq!(add_keys(&Attestation::default(), &both), Ok(None), "nothing is recorded");
}

fn cluster(name: &'static str) -> TestCluster {
    TestCluster::new(name, NOW)
}

fn with_verification<T>(act: impl FnOnce(PodVerification<'_>) -> T) -> T {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
    act(PodVerification { verifier: Verifier::new().unwrap(), audience: "tombolo:tombolo:edge-a", now })
}
