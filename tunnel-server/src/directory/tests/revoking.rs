//! Revocations of agents and callers, and reserved names.

use proto::spiffe::AgentId;

use super::*;
use crate::directory::tombstones::NAMES_REFUSED;

#[tokio::test]
async fn revoked_agents_and_no_others_are_refused_also_after_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let mut directory = open(&state).unwrap();
    directory.revoke(Revoked::agent(&agent("edge-a", "one")), at(100)).await.unwrap();
    directory.revoke(Revoked::Agents(id("edge-b")), at(100)).await.unwrap();
    directory.revoke(Revoked::Serial("abc".to_owned()), at(100)).await.unwrap();
    for is_again in [false, true] {
        if is_again {
            drop(directory);
            directory = open(&state).unwrap();
        }
        for (cluster, instance, serial, issued, is_admitted) in [
            ("edge-a", "one", "1", 50, false),
            // A revocation of one agent has no end.
            ("edge-a", "one", "1", 150, false),
            ("edge-a", "two", "1", 50, true),
            // A revocation of a cluster's agents concerns those of before.
            ("edge-b", "one", "1", 100, false),
            ("edge-b", "one", "1", 101, true),
            ("edge-c", "one", "abc", 150, false),
            ("edge-c", "one", "abcd", 50, true),
        ] {
            let credential = AgentCredential { serial: serial.to_owned(), issued: UnixSeconds(issued) };
            let admitted = directory.admits(&agent(cluster, instance), &credential);
            assert_eq!(admitted.is_ok(), is_admitted, "{cluster}/{instance} {serial} {issued}");
        }
    }
}

#[tokio::test]
async fn a_revoked_caller_is_refused_after_a_restart_too_until_it_is_restored() {
    let state = tempfile::tempdir().unwrap();
    let mut directory = open(&state).unwrap();
    let (name, serial) = (Callers::Named("ann".to_owned()), Callers::Certificate("1f".to_owned()));
    directory.revoke_callers(name.clone(), Some(UnixSeconds(100)), at(1000)).await.unwrap();
    directory.revoke_callers(serial.clone(), None, at(1000)).await.unwrap();
    directory.revoke_callers(Callers::All, Some(UnixSeconds(10)), at(1000)).await.unwrap();
    for is_again in [false, true] {
        if is_again {
            drop(directory);
            directory = open(&state).unwrap();
        }
        for (user, serial, issued, is_admitted) in [
            ("ann", Some("2"), Some(99), false),
            ("ann", Some("2"), Some(100), true),
            // A credential without a time of issue.
            ("ann", None, None, false),
            ("ben", None, None, false),
            ("ben", Some("1f"), Some(500), false),
            ("ben", Some("00001f"), Some(500), false),
            ("ben", Some("1"), Some(500), true),
            ("ben", Some("1"), Some(9), false),
        ] {
            let credential = CallerCredential { user, serial, issued: issued.map(at) };
            assert_eq!(directory.admits_caller(credential).is_ok(), is_admitted, "{credential:?}");
        }
    }

    for callers in [name, serial, Callers::All] {
        assert!(directory.restore_callers(callers.clone()).await.unwrap());
        assert!(!directory.restore_callers(callers).await.unwrap(), "once");
    }
    let credential = CallerCredential { user: "ann", serial: Some("1f"), issued: None };
    assert_eq!(directory.admits_caller(credential), Ok(()));
}

#[tokio::test]
async fn an_entry_point_stays_revoked_by_its_former_user_name() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    directory.revoke_callers(Callers::Named("way-in:sni".to_owned()), None, at(1000)).await.unwrap();

    let is_refused = |user| {
        let credential = CallerCredential { user, serial: None, issued: None };
        directory.admits_caller(credential).is_err()
    };
    assert!(is_refused("entry-point:sni") && is_refused("way-in:sni"));
    assert!(!is_refused("entry-point:office") && !is_refused("sni"));
}

#[tokio::test]
async fn a_later_revocation_never_weakens_an_earlier_one() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    let revoke = async |before: Option<u64>| {
        let name = Callers::Named("ann".to_owned());
        directory.revoke_callers(name, before.map(UnixSeconds), at(1000)).await.unwrap();
    };
    let is_refused = |issued| {
        let credential = CallerCredential { user: "ann", serial: None, issued: Some(at(issued)) };
        directory.admits_caller(credential).is_err()
    };
    revoke(Some(100)).await;
    revoke(Some(50)).await;
    assert_eq!([is_refused(99), is_refused(100)], [true, false]);
    revoke(None).await;
    revoke(Some(50)).await;
    assert!(is_refused(100_000));
    for (callers, before) in
        [(Callers::All, None), (Callers::Certificate("1".to_owned()), Some(UnixSeconds(1)))]
    {
        assert!(directory.revoke_callers(callers, before, at(1)).await.is_err(), "{before:?}");
    }
}

/// An agent with a certificate for a name of the server's own is refused.
#[tokio::test]
async fn a_reserved_name_is_no_clusters_even_with_a_certificate_for_it() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    for name in NAMES_REFUSED {
        let credential = AgentCredential { serial: "1".to_owned(), issued: UnixSeconds(5) };
        let refused = directory.admits(&agent(name, "one"), &credential);
        assert_eq!(refused, Err(NotAdmitted::Refused(id(name))));
        let made = directory.create_cluster(id(name), ClusterSpecUpdate::default(), at(5)).await;
        assert!(matches!(made, Err(ClusterError::Refused(_))), "{made:?}");
    }
}

#[tokio::test]
async fn no_more_callers_are_revoked_than_the_limit() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    let named = |n: usize| Callers::Named(format!("user-{n}"));
    let revoke = async |n| directory.revoke_callers(named(n), None, at(1)).await;
    revoke(0).await.unwrap();
    // Only in the cache, because a transaction for each is slow.
    for n in 1..CALLER_REVOCATIONS_MAX {
        let revocation = CallerRevocation { at: UnixSeconds(1), issued_before: None };
        directory.cache().callers.apply(named(n), Some(revocation));
    }

    assert!(matches!(revoke(CALLER_REVOCATIONS_MAX).await, Err(CallersError::Full)));
    revoke(0).await.expect("it is there already");
    assert_eq!(directory.revoked_callers().len(), CALLER_REVOCATIONS_MAX);
}

#[tokio::test]
async fn revocations_of_every_kind_are_listed_in_order_and_count_alike() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    let named = |name: &str| Callers::Named(name.to_owned());
    let certificate = |serial: &str| Callers::Certificate(serial.to_owned());
    let order = [Callers::All, named("ann"), named("ben"), certificate("1"), certificate("2")];
    for callers in order.iter().rev() {
        let before = (*callers == Callers::All).then_some(UnixSeconds(7));
        directory.revoke_callers(callers.clone(), before, at(1000)).await.unwrap();
    }

    let listed: Vec<_> = directory.revoked_callers().into_iter().map(|(callers, _)| callers).collect();

    assert_eq!(listed, order);
    // Only in the cache, because a transaction for each is slow.
    for n in order.len() + 1..CALLER_REVOCATIONS_MAX {
        let revocation = CallerRevocation { at: UnixSeconds(1), issued_before: None };
        directory.cache().callers.apply(named(&format!("user-{n}")), Some(revocation));
    }
    directory.revoke_callers(named("the-last"), None, at(1000)).await.unwrap();
    let full = directory.revoke_callers(certificate("3"), None, at(1000)).await;
    assert!(matches!(full, Err(CallersError::Full)), "{full:?}");
}

/// A certificate of before the deletion is refused even when another cluster has the name.
#[tokio::test]
async fn agents_of_a_deleted_cluster_are_refused_by_its_names_next_owner() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    let _ = directory.mark_seen(&id("edge-a"), at(5));
    let credential = AgentCredential { serial: "1".to_owned(), issued: UnixSeconds(5) };
    assert_eq!(directory.admits(&agent("edge-a", "one"), &credential), Ok(()));

    directory.delete_cluster(id("edge-a"), at(10), NAME_RESERVED).await.unwrap();

    let refused = directory.admits(&agent("edge-a", "one"), &credential);
    assert_eq!(refused, Err(NotAdmitted::Deleted(id("edge-a"))));
    directory.create_cluster(id("edge-a"), ClusterSpecUpdate::default(), at(100 * DAY)).await.unwrap();
    assert_eq!(directory.admits(&agent("edge-a", "one"), &credential), Err(NotAdmitted::Revoked));
    let issued_since = AgentCredential { issued: UnixSeconds(100 * DAY), ..credential };
    assert_eq!(directory.admits(&agent("edge-a", "one"), &issued_since), Ok(()));
}

/// Neither a certificate of before the deletion nor a token of before comes back.
#[tokio::test]
async fn an_undeleted_clusters_former_agents_and_tokens_stay_refused() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    directory.create_cluster(id("edge-a"), ClusterSpecUpdate::default(), at(1)).await.unwrap();
    directory.revoke(Revoked::agent(&agent("edge-a", "two")), at(5)).await.unwrap();
    let ttl = Duration::from_secs(15 * 60);
    let (bearer, _) = directory.create_token(id("edge-a"), ttl, at(9)).await.unwrap();
    directory.delete_cluster(id("edge-a"), at(10), NAME_RESERVED).await.unwrap();

    directory.undelete_cluster(id("edge-a"), at(20)).await.unwrap();

    let admitted = |instance: &str, issued| {
        let credential = AgentCredential { serial: "1".to_owned(), issued: UnixSeconds(issued) };
        directory.admits(&agent("edge-a", instance), &credential)
    };
    assert_eq!(admitted("one", 9), Err(NotAdmitted::Revoked));
    assert_eq!(admitted("one", 21), Ok(()));
    assert_eq!(admitted("two", 21), Err(NotAdmitted::Revoked), "revoked by its name before");
    let refused = directory.token_grant(bearer, "pin".to_owned(), at(21)).await;
    assert!(matches!(refused, Err(TokenRefused::Void)), "{refused:?}");
}

#[tokio::test]
async fn a_restored_agent_is_admitted_unless_something_else_refuses_it() {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    let (one, serial) = (Revoked::agent(&agent("edge-a", "one")), Revoked::Serial("abc".to_owned()));
    let credential = AgentCredential { serial: "abc".to_owned(), issued: UnixSeconds(50) };
    for revoked in [&one, &serial] {
        directory.revoke(revoked.clone(), at(100)).await.unwrap();
    }

    assert!(directory.restore(one.clone()).await.unwrap());
    assert!(!directory.restore(one.clone()).await.unwrap(), "once");
    assert_eq!(directory.admits(&agent("edge-a", "one"), &credential), Err(NotAdmitted::Revoked));
    assert!(directory.restore(serial).await.unwrap());
    assert_eq!(directory.admits(&agent("edge-a", "one"), &credential), Ok(()));
    drop(directory);

    let directory = open(&state).unwrap();
    assert_eq!(directory.admits(&agent("edge-a", "one"), &credential), Ok(()));
    directory.revoke(one.clone(), at(100)).await.unwrap();
    directory.revoke(Revoked::Agents(id("edge-a")), at(100)).await.unwrap();
    assert!(directory.restore(one).await.unwrap() && directory.are_agents_revoked(&id("edge-a")));
    assert_eq!(directory.admits(&agent("edge-a", "one"), &credential), Err(NotAdmitted::Revoked));
}

fn agent(cluster: &str, instance: &str) -> AgentId {
    AgentId::parse(&format!("spiffe://tombolo/cluster/{cluster}/agent/{instance}"), "tombolo").unwrap()
}
