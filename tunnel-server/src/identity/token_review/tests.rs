//! The bearer of a token, as the host cluster reviews it, and repeated reviews.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderMap};
use serde_json::{Value, json};

use super::*;
use crate::identity::test_server::TestServer;
use crate::identity::{AuthMethods, Authenticator, SharedTokens, StaticTokens};

#[tokio::test]
async fn a_callers_token_is_reviewed_once_for_a_while_and_names_it() {
    let at =
        TestServer::answering(|asked| (StatusCode::CREATED, review(&asked.body, "ann").to_string())).await;
    let home = tempfile::tempdir().unwrap();
    let reviewer = reviewer(&at, &home);

    let (first, second) =
        (caller(&reviewer, "t0ken").await.unwrap(), caller(&reviewer, "t0ken").await.unwrap());

    assert_eq!(first, second);
    assert_eq!((first.user(), first.groups()), ("host:ann", &["host:ops".to_owned()][..]));
    assert_eq!(
        (first.method().as_str(), first.method().to_string().as_str()),
        ("token-review:host", "token-review:host")
    );
    assert_eq!(first.token().map(RetainedToken::token), Some("t0ken"));
    assert_eq!(first.reviewed().map(|reviewed| &reviewed.subject()["user"]), Some(&json!("ann")));
    let asked = at.seen();
    assert_eq!(asked.len(), 1, "the second is remembered");
    assert_eq!(asked[0].uri.path(), PATH);
    let body: Value = serde_json::from_slice(&asked[0].body).unwrap();
    assert_eq!(body["spec"], json!({ "token": "t0ken", "audiences": ["tombolo"] }));
    let shown = format!("{reviewer:?} {first:?}");
    assert!(
        shown.contains("token-review:host") && shown.contains("RetainedToken") && !shown.contains("t0ken"),
        "{shown}"
    );
}

#[tokio::test]
async fn an_unreachable_reviewer_neither_accepts_nor_refuses() {
    let at = TestServer::answering(|_| (StatusCode::INTERNAL_SERVER_ERROR, String::new())).await;
    let home = tempfile::tempdir().unwrap();

    let refused = caller(&reviewer(&at, &home), "t0ken").await.unwrap_err();

    assert_eq!(refused, NotAuthenticated::Unreachable(Method::TokenReview("token-review:host".into())));
}

#[tokio::test]
async fn a_token_is_its_callers_only_while_reviews_have_the_same_result() {
    let renamed = Arc::new(AtomicBool::new(false));
    let is_renamed = Arc::clone(&renamed);
    let at = TestServer::answering(move |asked| {
        let name = if is_renamed.load(Ordering::Relaxed) { "eve" } else { "ann" };
        (StatusCode::CREATED, review(&asked.body, name).to_string())
    })
    .await;
    let home = tempfile::tempdir().unwrap();
    let authenticator = || {
        let methods =
            AuthMethods { reviewer: Some(Arc::new(reviewer(&at, &home))), ..AuthMethods::default() };
        Authenticator::new("tombolo".to_owned(), methods)
    };
    let now = SystemTime::now();
    let headers = HeaderMap::from_iter([(AUTHORIZATION, "Bearer t0ken".parse().unwrap())]);
    let known = authenticator()
        .authenticate(None, &headers, now)
        .await
        .unwrap()
        .require_single_credential()
        .unwrap()
        .clone();

    assert_eq!(authenticator().review_again(&known, now).await, Ok(()));
    renamed.store(true, Ordering::Relaxed);
    assert_eq!(authenticator().review_again(&known, now).await, Err(NotAuthenticated::UnknownToken));
    assert!(authenticator().is_still_valid(&known), "that is its reviewer's to say");
    assert!(authenticator().changes().is_none());
    // Tokens of the file are checked first, and the reviewer is not asked about them.
    let line = format!("{},bob,1", trust::user_token::TokenDigest::of(b"t0ken"));
    let prefixes = Prefixes { username: "file:".to_owned(), groups: "file:".to_owned() };
    let tokens = Some(SharedTokens::new(StaticTokens::parse(line.as_bytes(), prefixes).unwrap()));
    let asked = at.seen().len();
    let methods =
        AuthMethods { reviewer: Some(Arc::new(reviewer(&at, &home))), tokens, ..AuthMethods::default() };
    let by_file =
        Authenticator::new("tombolo".to_owned(), methods).authenticate(None, &headers, now).await.unwrap();
    assert_eq!((by_file.require_single_credential().unwrap().user(), at.seen().len()), ("file:bob", asked));
}

async fn caller(reviewer: &TokenReviewer, token: &str) -> Result<Caller, NotAuthenticated> {
    reviewer.caller(token, SystemTime::now()).await
}

fn reviewer(at: &TestServer, home: &tempfile::TempDir) -> TokenReviewer {
    let token = home.path().join("token");
    fs::write(&token, "ours").unwrap();
    let api = Arc::new(HostApi::new(at.url.parse().unwrap(), token, at.tls()));
    let prefixes = Prefixes { username: "host:".to_owned(), groups: "host:".to_owned() };
    TokenReviewer::new("host", api, &["tombolo".to_owned()], prefixes, Scope::here()).unwrap()
}

/// The review that was asked for, of a user of this name.
fn review(asked: &[u8], name: &str) -> Value {
    let mut review: Value = serde_json::from_slice(asked).unwrap();
    let user = json!({ "username": name, "groups": ["ops"] });
    review["status"] = json!({ "authenticated": true, "audiences": ["tombolo"], "user": user });
    review
}
