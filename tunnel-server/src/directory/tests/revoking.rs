//! Whose credentials are refused.

use proto::spiffe::AgentId;

use super::*;

#[tokio::test]
async fn whoever_was_revoked_is_refused_after_a_restart_too_and_nobody_else() {
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
            // One agent for ever.
            ("edge-a", "one", "1", 150, false),
            ("edge-a", "two", "1", 50, true),
            // All that a cluster has had up to now.
            ("edge-b", "one", "1", 100, false),
            ("edge-b", "one", "1", 101, true),
            ("edge-c", "one", "abc", 150, false),
            ("edge-c", "one", "abcd", 50, true),
        ] {
            let credential = Credential { serial: serial.to_owned(), issued: UnixSeconds(issued) };
            let admitted = directory.admits(&agent(cluster, instance), &credential);
            assert_eq!(admitted.is_ok(), is_admitted, "{cluster}/{instance} {serial} {issued}");
        }
    }
}

#[tokio::test]
async fn agents_of_a_deleted_cluster_are_refused_even_when_its_name_is_another_ones() {
    let directory = open(&tempfile::tempdir().unwrap()).unwrap();
    let _ = directory.meet(&id("edge-a"), at(5));
    let credential = Credential { serial: "1".to_owned(), issued: UnixSeconds(5) };
    assert_eq!(directory.admits(&agent("edge-a", "one"), &credential), Ok(()));

    directory.delete_cluster(id("edge-a"), at(10), NAME_RESERVED).await.unwrap();

    let refused = directory.admits(&agent("edge-a", "one"), &credential);
    assert_eq!(refused, Err(NotAdmitted::Deleted(id("edge-a"))));
    directory.create_cluster(id("edge-a"), Amendment::default(), at(100 * DAY)).await.unwrap();
    assert_eq!(directory.admits(&agent("edge-a", "one"), &credential), Err(NotAdmitted::Revoked));
    let issued_since = Credential { issued: UnixSeconds(100 * DAY), ..credential };
    assert_eq!(directory.admits(&agent("edge-a", "one"), &issued_since), Ok(()));
}

fn agent(cluster: &str, instance: &str) -> AgentId {
    AgentId::parse(&format!("spiffe://tombolo/cluster/{cluster}/agent/{instance}"), "tombolo").unwrap()
}
