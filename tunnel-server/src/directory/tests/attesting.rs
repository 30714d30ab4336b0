//! The accounts by which further pods enroll, and the limit of agents.

use proto::spiffe::AgentId;

use super::enrolling::{agent, site};
use super::*;

#[tokio::test]
async fn the_first_account_of_a_cluster_is_recorded_and_never_replaced() {
    let (state, (directory, bearer)) = site().await;
    enroll(&directory, bearer, "one", Some(workload("a"))).await;
    let (second, _) = directory.create_token(id("edge-a"), Duration::from_secs(60), at(11)).await.unwrap();
    enroll(&directory, second, "two", Some(workload("b"))).await;
    drop(directory);

    let directory = open(&state).unwrap();

    let found = directory.attestation(&id("edge-a")).await.unwrap();
    assert_eq!(found, Attestation { workload: Some(workload("a")), closed: None });
    assert_eq!(directory.attestation(&id("edge-b")).await.unwrap(), Attestation::default());
}

#[tokio::test]
async fn revoking_a_clusters_agents_closes_it_to_pods_until_it_is_reopened() {
    let (_state, (directory, _)) = site().await;
    // A cluster without a record is closed too, and the next enrollment does not open it.
    directory.revoke(Revoked::Agents(id("edge-a")), at(8)).await.unwrap();
    let (bearer, _) = directory.create_token(id("edge-a"), Duration::from_secs(60), at(9)).await.unwrap();
    enroll(&directory, bearer, "one", Some(workload("a"))).await;
    let closed = directory.attestation(&id("edge-a")).await.unwrap();
    assert_eq!(closed, Attestation { workload: Some(workload("a")), closed: Some(UnixSeconds(8)) });
    let attest =
        async |seen: &Attestation| directory.attest(&pod("two"), seen.clone(), agent("chain"), at(20)).await;
    assert!(matches!(attest(&closed).await, Err(AttestError::Changed)));

    let open = Attestation { closed: None, ..closed.clone() };
    directory.update_attestation(&id("edge-a"), closed.clone(), open.clone()).await.unwrap();
    attest(&open).await.unwrap();
    let other = Attestation { workload: Some(workload("b")), closed: None };
    assert!(matches!(attest(&other).await, Err(AttestError::Changed)), "it was judged by another account");

    let late = directory.update_attestation(&id("edge-a"), closed, Attestation::default()).await;
    assert!(matches!(late, Err(AttestationUpdateError::Changed(_))), "{late:?}");
    directory.revoke(Revoked::Agents(id("edge-a")), at(30)).await.unwrap();
    assert!(matches!(attest(&open).await, Err(AttestError::Changed)), "it was judged before");
}

#[tokio::test]
async fn a_pod_is_one_agent_and_its_previous_key_counts_as_copied() {
    let (_state, (directory, bearer)) = site().await;
    enroll(&directory, bearer, "one", Some(workload("a"))).await;
    let seen = directory.attestation(&id("edge-a")).await.unwrap();
    let of = |key: &str, serial: &str| Agent {
        public_key: key.to_owned(),
        serial: serial.to_owned(),
        pod: Some("tunnel-agent-x2".to_owned()),
        ..agent("chain")
    };
    directory.attest(&pod("two"), seen.clone(), of("k1", "1"), at(20)).await.unwrap();
    directory.attest(&pod("two"), seen, of("k2", "2"), at(21)).await.unwrap();

    assert_eq!(directory.agents(Some(id("edge-a"))).await.unwrap().len(), 2);
    let kept = directory.agent(&pod("two")).await.unwrap().unwrap();
    let claim = kept.claims("1", "k3", UnixSeconds(30), Duration::ZERO).unwrap();
    assert_eq!((claim.signer.as_str(), claim.outcome), ("k1", RenewalOutcome::Replaced));
    directory.renew(&pod("two"), "2".to_owned(), of("k3", "3")).await.unwrap();
    let renewed = directory.agent(&pod("two")).await.unwrap().unwrap();
    assert_eq!(renewed.pod.as_deref(), Some("tunnel-agent-x2"));
}

#[tokio::test]
async fn in_a_full_cluster_a_pod_whose_certificate_ended_makes_room() {
    let (_state, (directory, bearer)) = site().await;
    enroll(&directory, bearer, "one", Some(workload("a"))).await;
    let seen = directory.attestation(&id("edge-a")).await.unwrap();
    let attest = async |name: &str, at: SystemTime| {
        let agent = Agent { pod: Some(name.to_owned()), expires: UnixSeconds(DAY), ..agent("chain") };
        directory.attest(&pod(name), seen.clone(), agent, at).await
    };
    // The agent that a token has enrolled keeps its place, because it cannot return by itself.
    for n in 1..AGENTS_PER_CLUSTER_MAX {
        attest(&format!("pod-{n}"), at(20)).await.unwrap();
    }

    let full = attest("one-more", at(DAY)).await;
    assert!(matches!(full, Err(AttestError::Full)), "{full:?}");
    attest("pod-1", at(DAY)).await.expect("it is there already");
    attest("one-more", at(DAY + 1)).await.expect("others' certificates have ended");

    assert_eq!(directory.agents(Some(id("edge-a"))).await.unwrap().len(), AGENTS_PER_CLUSTER_MAX);
    assert!(directory.agent(&pod("one")).await.unwrap().is_some());
}

#[tokio::test]
async fn an_attestation_record_is_deleted_with_its_cluster() {
    let (_state, (directory, bearer)) = site().await;
    enroll(&directory, bearer, "one", Some(workload("a"))).await;
    let seen = directory.attestation(&id("edge-a")).await.unwrap();

    directory.delete_cluster(id("edge-a"), at(20), NAME_RESERVED).await.unwrap();

    assert_eq!(directory.attestation(&id("edge-a")).await.unwrap(), Attestation::default());
    let gone = directory.attest(&pod("two"), Attestation::default(), agent("chain"), at(21)).await;
    assert!(matches!(gone, Err(AttestError::Changed)), "{gone:?}");
    let gone = directory.update_attestation(&id("edge-a"), Attestation::default(), seen).await;
    assert!(matches!(gone, Err(AttestationUpdateError::Unknown(_))), "{gone:?}");
}

async fn enroll(directory: &Directory, bearer: BearerToken, instance: &str, workload: Option<Workload>) {
    let named = (format!("pin-{instance}"), instance.to_owned());
    directory.enroll(bearer, named, agent("chain"), workload, at(12)).await.unwrap();
}

fn pod(uid: &str) -> AgentId {
    AgentId::new(id("edge-a"), uid).unwrap()
}

fn workload(uid: &str) -> Workload {
    Workload {
        namespace: "tombolo".to_owned(),
        account: "tunnel-agent".to_owned(),
        account_uid: uid.to_owned(),
        issuer: "https://kubernetes.default.svc".to_owned(),
        issuer_keys: "{}".to_owned(),
        recorded: UnixSeconds(12),
    }
}
