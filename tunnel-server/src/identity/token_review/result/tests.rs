//! Answers of reviewers that name a bearer, and the parts that are used.

use serde_json::json;

use super::*;
use crate::identity::credential::ID_BYTES;
use crate::identity::name::NameError;
use crate::identity::oidc::LEEWAY;
use crate::identity::oidc::test_signer::encoded;
use crate::identity::reviewed::REVIEWED_BYTES_MAX;

#[test]
fn the_description_of_a_bearer_is_limited() {
    let prefixes = prefixes();
    let read = |padding: usize| {
        let user = json!({ "username": "ann", "groups": ["ops"], "uid": "7", "extra": { "k": ["v".repeat(padding)] } });
        let known = Reviewed::from_user(&user).map(|known| known.subject().to_string().len());
        let status = json!({ "authenticated": true, "audiences": ["a"], "user": user });
        (known, bearer(&status, "token", &["a".to_owned()], &prefixes).map(|bearer| bearer.reviewed))
    };
    let around = read(0).0.unwrap();
    let (known, reviewed) = read(REVIEWED_BYTES_MAX - around);
    assert_eq!(known, Some(REVIEWED_BYTES_MAX));
    // It has the names of its own cluster, and all else that a decision there can need.
    let subject = reviewed.unwrap().subject().clone();
    assert_eq!((&subject["user"], &subject["groups"]), (&json!("ann"), &json!(["ops"])));
    assert_eq!(subject["uid"], "7");
    assert_eq!(read(REVIEWED_BYTES_MAX - around + 1).1, Err(TokenReviewError::TooLarge));
}

#[test]
fn only_an_answer_for_this_server_names_the_bearer() {
    let user = json!({ "username": "ann", "groups": ["ops"] });
    let good = || json!({ "authenticated": true, "audiences": ["other", "tombolo"], "user": user });
    let with = |name: &str, value: Value| {
        let mut status = good();
        status[name] = value;
        status
    };
    let user = |user: Value| with("user", user);
    for (status, expected) in [
        (good(), Ok(("host:ann", vec!["host:ops"]))),
        (with("error", json!("")), Ok(("host:ann", vec!["host:ops"]))),
        (user(json!({ "username": "ann" })), Ok(("host:ann", vec![]))),
        (user(json!({ "username": "ann", "groups": null })), Ok(("host:ann", vec![]))),
        (with("authenticated", json!(false)), Err(TokenReviewError::Unknown)),
        (with("authenticated", json!("true")), Err(TokenReviewError::Unknown)),
        (with("authenticated", Value::Null), Err(TokenReviewError::Unknown)),
        (with("error", json!("expired")), Err(TokenReviewError::Unknown)),
        (with("error", json!(7)), Err(TokenReviewError::Unknown)),
        (with("audiences", json!(["other"])), Err(TokenReviewError::Audience)),
        (with("audiences", json!([])), Err(TokenReviewError::Audience)),
        (with("audiences", json!(["tombolo", 7])), Err(TokenReviewError::Audience)),
        (with("audiences", Value::Null), Err(TokenReviewError::Audience)),
        (user(json!({ "groups": ["ops"] })), Err(TokenReviewError::Unknown)),
        (user(json!({ "username": "ann", "groups": "ops" })), Err(TokenReviewError::Unknown)),
        (user(json!({ "username": "ann", "groups": ["ops", 7] })), Err(TokenReviewError::Unknown)),
        (user(json!({ "username": "" })), Err(TokenReviewError::Name(NameError::Empty))),
        (user(json!({ "username": "an\u{200b}n" })), Err(TokenReviewError::Name(NameError::Invisible))),
        (
            user(json!({ "username": "ann", "groups": ["o\u{202e}sp"] })),
            Err(TokenReviewError::Name(NameError::Invisible)),
        ),
    ] {
        let found = TokenReviewResult::from_status(&status, "t0ken", &audiences(), &prefixes());
        assert_eq!(found.is_yes(), expected.is_ok(), "{status}");
        let found = found.caller(&method(), SystemTime::now());
        let named = found
            .as_ref()
            .map(|caller| (caller.user(), caller.groups().iter().map(String::as_str).collect()));
        assert_eq!(named.map_err(Clone::clone), expected.map_err(NotAuthenticated::from), "{status}");
    }
}

#[test]
fn a_credential_has_the_api_servers_id_or_else_a_digest() {
    let id = |named: Value| {
        let user = json!({ "username": "ann", "extra": { CREDENTIAL_ID: named } });
        let status = json!({ "authenticated": true, "audiences": ["tombolo"], "user": user });
        bearer(&status, "t0ken", &audiences(), &prefixes()).unwrap().credential.id.to_string()
    };
    let digest = id(json!([]));
    assert_eq!(digest.len(), 2 * ID_BYTES);
    assert!(!digest.contains("t0ken"));
    let longest = "x".repeat(CREDENTIAL_ID_BYTES_MAX);
    for named in ["JTI=7d", longest.as_str()] {
        assert_eq!(id(json!([named])), named);
    }
    for named in [json!([""]), json!([format!("{longest}x")]), json!(["a b"]), json!([7]), json!("JTI=7d")] {
        assert_eq!(id(named.clone()), digest, "{named}");
    }
}

#[test]
fn a_token_ends_at_its_expiry_and_results_count_for_their_time() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let parts = [r#"{"alg":"ES256"}"#, r#"{"exp":1800000000,"iat":1799999000,"iss":"x"}"#];
    let token = format!("{}.AA", parts.map(encoded).join("."));
    let status = json!({ "authenticated": true, "audiences": ["tombolo"], "user": { "username": "ann" } });
    let yes = TokenReviewResult::from_status(&status, &token, &audiences(), &prefixes());
    let no = TokenReviewResult::from_status(&json!({}), &token, &audiences(), &prefixes());
    let away = TokenReviewResult::unreachable();
    for (result, counts_for) in [(&yes, ACCEPTED_FOR), (&no, REFUSED_FOR), (&away, UNREACHABLE_FOR)] {
        assert_eq!(result.until() - result.at(), counts_for, "{result:?}");
    }
    let end = now + LEEWAY;
    let before = yes.clone().caller(&method(), end - Duration::from_secs(1)).unwrap();
    assert_eq!((before.credential().expires, before.token()), (Some(end), None));
    assert_eq!(yes.caller(&method(), end), Err(TokenReviewError::Expired.into()));
    assert_eq!(away.caller(&method(), now), Err(NotAuthenticated::Unreachable(method())));
}

fn method() -> Method {
    Method::TokenReview("token-review:host".into())
}

fn audiences() -> [String; 1] {
    ["tombolo".to_owned()]
}

fn prefixes() -> Prefixes {
    Prefixes { username: "host:".to_owned(), groups: "host:".to_owned() }
}
