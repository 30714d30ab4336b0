//! Enrollment tokens and agents: which token enrolls which key, and for how long.

use std::collections::BTreeSet;

use super::*;
use crate::directory::records::{Agent, IssuedChain};

const TTL: Duration = Duration::from_secs(15 * 60);

#[tokio::test]
async fn a_token_enrolls_one_key_until_it_expires_and_gives_it_the_same_again() {
    let (state, (directory, bearer)) = site().await;
    let token_grant = |pin: &str, now| directory.token_grant(bearer.clone(), pin.to_owned(), at(now));
    assert_eq!(token_grant("one", 900).await.unwrap(), TokenGrant::NewAgent(id("edge-a")));
    let enroll = |pin: &str, chain: &str, now| {
        let (pin, instance) = (pin.to_owned(), format!("i-{pin}"));
        directory.enroll(bearer.clone(), (pin, instance), agent(chain), None, at(now))
    };

    let (first, quicker) = tokio::join!(enroll("one", "a", 899), enroll("one", "b", 899));

    assert_eq!(first.unwrap(), quicker.unwrap(), "one of both was recorded, and is the answer to both");
    assert!(matches!(enroll("two", "c", 899).await, Err(TokenRefused::Used)));
    assert!(matches!(token_grant("two", 899).await, Err(TokenRefused::Used)));
    drop(directory);
    let directory = open(&state).unwrap();
    let again = directory.token_grant(bearer.clone(), "one".to_owned(), at(899)).await.unwrap();
    assert!(matches!(again, TokenGrant::Repeat(_)), "{again:?}");
    let late = directory.token_grant(bearer, "one".to_owned(), at(5 + 900)).await;
    assert!(matches!(late, Err(TokenRefused::Expired)), "{late:?}");
    assert_eq!(directory.agents(Some(id("edge-a"))).await.unwrap().len(), 1);
}

#[tokio::test]
async fn only_the_secret_counts_and_only_its_hash_is_kept() {
    let (state, (directory, bearer)) = site().await;
    let text = bearer.reveal();
    let (id, secret) = text.split_once('.').unwrap();
    let wrong: BearerToken = format!("{id}.{}", "0".repeat(secret.len())).parse().unwrap();

    let refused = directory.token_grant(wrong, "one".to_owned(), at(10)).await;

    assert!(matches!(refused, Err(TokenRefused::Secret)), "{refused:?}");
    let shown = format!("{bearer:?}");
    assert!(shown.contains(id) && !shown.contains(secret), "{shown}");
    let bytes = std::fs::read(file(&state)).unwrap();
    let stands = |text: &str| bytes.windows(text.len()).any(|found| found == text.as_bytes());
    assert!(stands(id) && !stands(secret));
    for text in ["", ".", id, &text[1..], &format!("{text}0"), &text.replace('.', ":")] {
        assert!(text.parse::<BearerToken>().is_err(), "{text}");
    }
}

#[tokio::test]
async fn a_token_is_for_an_existing_cluster_and_is_deleted_with_it() {
    let (_state, (directory, bearer)) = site().await;
    let nowhere = directory.create_token(id("edge-b"), TTL, at(5)).await;
    assert!(matches!(nowhere, Err(TokenError::Unknown(_))), "{nowhere:?}");
    for ttl in [Duration::ZERO, TTL_MAX + Duration::from_secs(1)] {
        let wrong = directory.create_token(id("edge-a"), ttl, at(5)).await;
        assert!(matches!(wrong, Err(TokenError::Ttl)), "{wrong:?}");
    }

    directory.delete_cluster(id("edge-a"), at(10), NAME_RESERVED).await.unwrap();

    let gone = directory.token_grant(bearer, "one".to_owned(), at(11)).await;
    assert!(matches!(gone, Err(TokenRefused::Void)), "{gone:?}");
}

#[tokio::test]
async fn a_token_that_is_made_in_the_second_of_a_revocation_enrolls() {
    let (_state, (directory, _)) = site().await;
    directory.revoke(Revoked::Agents(id("edge-a")), at(10)).await.unwrap();

    let (bearer, _) = directory.create_token(id("edge-a"), TTL, at(10)).await.unwrap();

    let granted = directory.token_grant(bearer, "one".to_owned(), at(10)).await;
    assert!(matches!(granted, Ok(TokenGrant::NewAgent(_))), "{granted:?}");
}

#[tokio::test]
async fn tokens_are_removed_a_day_after_their_end_and_once_they_are_void() {
    let (_state, (directory, _)) = site().await;
    directory.create_cluster(id("edge-b"), ClusterSpecUpdate::default(), at(5)).await.unwrap();
    let (kept, _) = directory.create_token(id("edge-b"), TTL, at(5 + DAY)).await.unwrap();
    directory.create_token(id("edge-b"), TTL, at(5)).await.unwrap();
    directory.revoke(Revoked::Agents(id("edge-a")), at(10)).await.unwrap();
    assert_eq!(stored(&directory).await, 3);

    directory.remove_expired_tokens(at(10 + DAY) + TTL).await.unwrap();

    let left: Vec<_> = directory.tokens().await.unwrap().into_iter().map(|entry| entry.id).collect();
    assert_eq!((left, stored(&directory).await), (vec![kept.id()], 1));
}

async fn stored(directory: &Directory) -> usize {
    directory.with_store::<_, StoreError>(|store| store.count::<Token>()).await.unwrap()
}

#[tokio::test]
async fn revoking_a_clusters_agents_revokes_its_tokens_too() {
    let (_state, (directory, bearer)) = site().await;
    let (other, _) = directory.create_token(id("edge-a"), TTL, at(5)).await.unwrap();
    assert!(directory.revoke_token(other.id()).await.unwrap());
    assert!(!directory.revoke_token(other.id()).await.unwrap(), "it is gone");

    directory.revoke(Revoked::Agents(id("edge-a")), at(10)).await.unwrap();

    let gone = directory.token_grant(bearer.clone(), "one".to_owned(), at(11)).await;
    assert!(matches!(gone, Err(TokenRefused::Void)), "{gone:?}");
    let named = ("one".to_owned(), "i".to_owned());
    let enrolled = directory.enroll(bearer, named, agent("chain"), None, at(11)).await;
    assert!(matches!(enrolled, Err(TokenRefused::Void)), "{enrolled:?}");
    assert!(directory.tokens().await.unwrap().is_empty());
}

#[tokio::test]
async fn every_token_that_is_kept_is_listed_by_its_id_and_none_that_was_revoked() {
    let (_state, (directory, first)) = site().await;
    let make = async |now| directory.create_token(id("edge-a"), TTL, at(now)).await.unwrap();
    let ((second, kept), (revoked, _)) = (make(6).await, make(7).await);
    assert!(directory.revoke_token(revoked.id()).await.unwrap());

    let listed = directory.tokens().await.unwrap();

    let listed: BTreeMap<_, _> = listed.into_iter().map(|TokenEntry { id, token }| (id, token)).collect();
    assert_eq!(listed.keys().collect::<BTreeSet<_>>(), BTreeSet::from([&first.id(), &second.id()]));
    assert_eq!(listed[&second.id()], kept);
}

#[tokio::test]
async fn a_repeated_renewal_gets_the_same_answer_and_an_older_key_none() {
    let (_state, (directory, bearer)) = site().await;
    let id = proto::spiffe::AgentId::new(id("edge-a"), "i").unwrap();
    let of = |key: &str, serial: &str, chain: &str| Agent {
        public_key: key.to_owned(),
        serial: serial.to_owned(),
        ..agent(chain)
    };
    let named = ("pin".to_owned(), "i".to_owned());
    directory.enroll(bearer, named, of("k1", "1", "a"), None, at(10)).await.unwrap();

    let renewed = directory.renew(&id, "1".to_owned(), of("k2", "2", "b")).await.unwrap();
    let repeated = directory.renew(&id, "1".to_owned(), of("k2", "3", "c")).await.unwrap();
    assert_eq!(renewed, repeated);
    let thief = directory.renew(&id, "1".to_owned(), of("k3", "4", "d")).await;
    assert!(matches!(thief, Err(RenewError::Changed)), "{thief:?}");

    let kept = directory.agent(&id).await.unwrap().unwrap();
    assert_eq!((kept.public_key.as_str(), kept.serial.as_str()), ("k2", "2"));
}

pub(super) async fn site() -> (tempfile::TempDir, (Directory, BearerToken)) {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    directory.create_cluster(id("edge-a"), ClusterSpecUpdate::default(), at(5)).await.unwrap();
    let (bearer, _) = directory.create_token(id("edge-a"), TTL, at(5)).await.unwrap();
    (state, (directory, bearer))
}

pub(super) fn agent(chain: &str) -> Agent {
    Agent {
        public_key: "key".to_owned(),
        serial: "1".to_owned(),
        issued: UnixSeconds(5),
        expires: UnixSeconds(5 + DAY),
        answer: IssuedChain(vec![chain.to_owned()]),
        previous: None,
        pod: None,
    }
}
