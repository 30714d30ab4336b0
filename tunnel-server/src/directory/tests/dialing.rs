//! Dial tokens: owner, lifetime, and revocation.

use std::collections::BTreeSet;

use super::*;

const DAY_LONG: Duration = Duration::from_secs(DAY);

#[tokio::test]
async fn a_dial_token_is_good_for_its_owner_until_it_ends_and_is_kept_as_a_hash() {
    let (state, directory) = site().await;
    let (bearer, made) = create(&directory, "corp:alice", &["edge-a", "edge-b"], DAY_LONG).await.unwrap();
    drop(directory);
    let directory = open(&state).unwrap();
    let text = bearer.reveal();
    let admits = |text: &str, user: &str, now| {
        let bearer: Result<DialBearer, _> = text.parse();
        bearer.ok().map(|bearer| directory.admits_dial_token(&bearer, user, at(now)))
    };

    let found = admits(&text, "corp:alice", 5).unwrap().unwrap();

    assert_eq!(
        (found.id.as_str(), found.token.cluster_ids()),
        (made.id.as_str(), vec![id("edge-a"), id("edge-b")])
    );
    assert_eq!(found.token.expires, UnixSeconds(5 + DAY));
    assert_eq!(admits(&text, "alice", 5).unwrap().unwrap_err(), DialTokenRefused::Owner);
    assert_eq!(admits(&text, "corp:alice", 5 + DAY).unwrap().unwrap_err(), DialTokenRefused::Expired);
    let (front, secret) = text.split_once('.').unwrap();
    let other = format!("{front}.{}", "0".repeat(secret.len()));
    assert_eq!(admits(&other, "corp:alice", 5).unwrap().unwrap_err(), DialTokenRefused::Unknown);
    for no_token in
        ["", "tombolo-dial-", &text[1..], text.trim_start_matches("tombolo-dial-"), &text.to_uppercase()]
    {
        assert!(admits(no_token, "corp:alice", 5).is_none(), "{no_token}");
    }
    assert!(!format!("{bearer:?}").contains(secret));
    let bytes = std::fs::read(file(&state)).unwrap();
    let stands = |text: &str| bytes.windows(text.len()).any(|found| found == text.as_bytes());
    assert!(stands(&made.id) && !stands(secret));
}

#[tokio::test]
async fn a_revoked_dial_token_is_gone_and_running_exchanges_are_notified() {
    let (_state, directory) = site().await;
    let (bearer, made) = create(&directory, "alice", &["edge-a"], DAY_LONG).await.unwrap();
    let mut changes = directory.changes();
    changes.mark_unchanged();
    assert!(directory.has_dial_token(&made.id));

    assert!(directory.revoke_dial_token(made.id.clone()).await.unwrap());

    assert!(changes.has_changed().unwrap());
    assert!(!directory.has_dial_token(&made.id) && directory.dial_tokens().is_empty());
    let refused = directory.admits_dial_token(&bearer, "alice", at(6)).unwrap_err();
    assert_eq!(refused, DialTokenRefused::Unknown);
    assert!(!directory.revoke_dial_token(made.id).await.unwrap(), "once");
}

/// A token for an unknown cluster, for none or for too many is refused, and so is one that holds too long.
#[tokio::test]
async fn a_dial_token_is_for_existing_clusters_and_its_lifetime_is_limited() {
    let (_state, directory) = site().await;
    let second = Duration::from_secs(1);
    let refused =
        async |clusters: &[&str], ttl| create(&directory, "alice", clusters, ttl).await.unwrap_err();

    assert!(matches!(refused(&["edge-c"], DAY_LONG).await, DialTokenError::Unknown(_)));
    assert!(matches!(refused(&[], DAY_LONG).await, DialTokenError::Clusters));
    assert!(matches!(refused(&["edge-a"], DIAL_TTL_MIN_LESS).await, DialTokenError::Ttl));
    assert!(matches!(refused(&["edge-a"], DIAL_TTL_MAX + second).await, DialTokenError::Ttl));
    let many: Vec<String> = (0..=DIAL_TOKEN_CLUSTERS_MAX).map(|n| format!("c-{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(matches!(refused(&many, DAY_LONG).await, DialTokenError::Clusters));
    assert!(create(&directory, "alice", &["edge-a"], DIAL_TTL_MAX).await.is_ok());
}

/// Tokens of an older server have no networks, and an older server reads tokens without networks.
#[tokio::test]
async fn a_dial_token_keeps_its_networks_and_an_older_one_has_none() {
    let (state, directory) = site().await;
    let networks = BTreeSet::from([network("lab"), network("plant-7")]);
    let scope = DialScope { networks: networks.clone(), ..DialScope::default() };
    let made = directory.create_dial_token("ci".to_owned(), scope, DAY_LONG, at(5)).await.unwrap();
    let before = create(&directory, "alice", &["edge-a"], DAY_LONG).await.unwrap();
    let json = serde_json::to_value(&*before.1.token).unwrap();
    assert!(json.get("networks").is_none(), "a server of before reads it, too: {json}");
    drop(directory);

    let directory = open(&state).unwrap();

    let found = directory.admits_dial_token(&made.0, "ci", at(6)).unwrap().token;
    assert_eq!((found.cluster_ids(), found.network_names()), (vec![], Vec::from_iter(networks)));
    let found = directory.admits_dial_token(&before.0, "alice", at(6)).unwrap().token;
    assert_eq!((found.cluster_ids(), found.network_names()), (vec![id("edge-a")], vec![]));
    let many: BTreeSet<_> = (0..DIAL_TOKEN_CLUSTERS_MAX).map(|n| network(&format!("n-{n}"))).collect();
    let one = BTreeSet::from([id("edge-a")]);
    for (clusters, fits) in [(BTreeSet::new(), true), (one, false)] {
        let scope = DialScope { clusters, networks: many.clone() };
        let made = directory.create_dial_token("ci".to_owned(), scope, DAY_LONG, at(6));
        assert_eq!(made.await.is_ok(), fits);
    }
}

#[tokio::test]
async fn a_token_that_expired_long_ago_is_removed() {
    let (_state, directory) = site().await;
    let (_, old) = create(&directory, "alice", &["edge-a"], DAY_LONG).await.unwrap();

    for (now, stays) in [(5 + 2 * DAY, true), (6 + 2 * DAY, false)] {
        directory.remove_expired_tokens(at(now)).await.unwrap();
        assert_eq!(directory.has_dial_token(&old.id), stays, "{now}");
    }
}

#[tokio::test]
async fn no_more_dial_tokens_are_kept_than_the_limit() {
    let (_state, directory) = site().await;
    // In one transaction, because a transaction for each is slow.
    let filled = directory.change(|transaction| {
        for n in 1..DIAL_TOKENS_MAX {
            let token = DialToken {
                user: "bob".to_owned(),
                clusters: vec!["edge-a".to_owned()],
                networks: Vec::new(),
                secret_hash: String::new(),
                created: UnixSeconds(5),
                expires: UnixSeconds(5 + DAY),
            };
            transaction.put(&format!("{n:016x}"), &token)?;
        }
        Ok::<_, StoreError>(())
    });
    filled.await.unwrap();

    create(&directory, "alice", &["edge-a"], DAY_LONG).await.expect("the last one");
    let full = create(&directory, "alice", &["edge-a"], DAY_LONG).await.unwrap_err();

    assert!(matches!(full, DialTokenError::Full), "{full:?}");
    assert_eq!(directory.dial_tokens().len(), DIAL_TOKENS_MAX);

    let scope = DialScope { clusters: BTreeSet::from([id("edge-a")]), ..DialScope::default() };
    let later = at(6 + 2 * DAY);
    directory
        .create_dial_token("bob".to_owned(), scope, DAY_LONG, later)
        .await
        .expect("expired ones make room");
    assert_eq!(directory.dial_tokens().len(), 1);
}

/// One second less than the shortest lifetime of a token.
const DIAL_TTL_MIN_LESS: Duration = Duration::from_secs(59);

async fn site() -> (tempfile::TempDir, Directory) {
    let state = tempfile::tempdir().unwrap();
    let directory = open(&state).unwrap();
    for cluster in ["edge-a", "edge-b"] {
        directory.create_cluster(id(cluster), ClusterSpecUpdate::default(), at(5)).await.unwrap();
    }
    (state, directory)
}

fn network(name: &str) -> NetworkName {
    name.parse().unwrap()
}

async fn create(
    directory: &Directory,
    user: &str,
    clusters: &[&str],
    ttl: Duration,
) -> Result<(DialBearer, DialTokenEntry), DialTokenError> {
    let clusters = clusters.iter().map(|cluster| id(cluster)).collect();
    let scope = DialScope { clusters, ..DialScope::default() };
    directory.create_dial_token(user.to_owned(), scope, ttl, at(5)).await
}
