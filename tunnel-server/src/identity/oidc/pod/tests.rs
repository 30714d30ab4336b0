//! Tokens of pods, at each limit, and the keys that are recorded.

use proto::enrollment::ISSUER_KEYS_BYTES_MAX;
use serde_json::json;

use super::*;
use crate::identity::oidc::test_signer::{TokenSigner, encoded, key_set};
use crate::identity::oidc::{ClaimError, KeySetError, LEEWAY};

/// The issuer, which is the same at every cluster of kubeadm.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const AUDIENCE: &str = "tombolo:tombolo:edge-a";
const NOW: u64 = 1_800_000_000;
const UID: &str = "0e1f9f5c-6a5a-4f0e-9d5f-0c9f0f0c8a11";

#[test]
fn a_pods_token_names_pod_and_account() {
    let signer = TokenSigner::new("one");

    let pod = verified(&signer, &claims()).unwrap();

    let expected = Pod {
        namespace: "tombolo".to_owned(),
        account: "tunnel-agent".to_owned(),
        account_uid: "7d1f".to_owned(),
        name: "tunnel-agent-x2".to_owned(),
        uid: UID.to_owned(),
    };
    assert_eq!(pod, expected);
}

#[test]
fn a_pods_token_is_accepted_for_ten_minutes_and_no_longer() {
    let signer = TokenSigner::new("one");
    let age = TOKEN_AGE_MAX.as_secs();
    let issued = |at: u64| verified(&signer, &with(&["iat"], json!(at)));

    assert!(issued(NOW - age).is_ok());
    assert_eq!(issued(NOW - age - 1), Err(PodTokenError::Old));
    assert!(issued(NOW + LEEWAY.as_secs()).is_ok());
    assert_eq!(issued(NOW + LEEWAY.as_secs() + 1), Err(fault(ClaimError::NotYetValid)));
    let undated = verified(&signer, &without(&["iat"]));
    assert_eq!(undated, Err(fault(ClaimError::Mistyped("iat".to_owned()))));
    let expired = verified(&signer, &with(&["exp"], json!(NOW - LEEWAY.as_secs())));
    assert_eq!(expired, Err(fault(ClaimError::Expired)));
}

#[test]
fn the_length_of_a_pods_token_is_limited() {
    let signer = TokenSigner::new("one");
    let token = |padding: usize| signer.token("ES256", &with(&["jti"], json!("x".repeat(padding))));
    // Base64 encodes three bytes as four letters.
    let least = (TOKEN_BYTES_MAX - token(0).len()) * 3 / 4 - 3;
    let padding = (least..).find(|padding| token(*padding).len() >= TOKEN_BYTES_MAX).unwrap();
    let (longest, longer) = (token(padding), token(padding + 1));
    assert_eq!(longest.len(), TOKEN_BYTES_MAX);

    verify(&longest, &keys(&signer)).unwrap();

    let refused = verify(&longer, &keys(&signer)).unwrap_err();
    assert_eq!(refused, PodTokenError::Token(OidcTokenError::Malformed(JwtError::Shape)));
}

/// The refusal reports that the issuer has signed the token.
#[test]
fn a_signed_token_for_others_or_without_a_pod_is_refused() {
    let signer = TokenSigner::new("one");
    let audience = |audience| with(&["aud"], audience);
    let of = |path: &[&str], value: &str| with(path, json!(value));
    let long = "x".repeat(NAME_BYTES_MAX + 1);
    for (claims, expected) in [
        (audience(json!("tombolo:tombolo:edge-b")), fault(ClaimError::Audience)),
        (audience(json!(["https://kubernetes.default.svc"])), fault(ClaimError::Audience)),
        (audience(json!([AUDIENCE, 1])), fault(ClaimError::Mistyped("aud".to_owned()))),
        (of(&["iss"], "https://elsewhere"), fault(ClaimError::Required("iss".to_owned()))),
        (with(&["exp"], json!("9999999999")), fault(ClaimError::Mistyped("exp".to_owned()))),
        (without(&["kubernetes.io", "pod"]), PodTokenError::NoPod),
        (without(&["kubernetes.io", "pod", "uid"]), PodTokenError::NotKubernetes),
        (without(&["kubernetes.io", "serviceaccount"]), PodTokenError::NotKubernetes),
        (without(&["kubernetes.io"]), PodTokenError::NotKubernetes),
        (with(&["kubernetes.io", "pod", "uid"], json!(7)), PodTokenError::NotKubernetes),
        (of(&["kubernetes.io", "pod", "uid"], "../edge-b"), PodTokenError::NotKubernetes),
        (of(&["kubernetes.io", "pod", "uid"], "a.b"), PodTokenError::NotKubernetes),
        (of(&["kubernetes.io", "pod", "name"], ""), PodTokenError::NotKubernetes),
        (of(&["kubernetes.io", "pod", "name"], "a\nb"), PodTokenError::NotKubernetes),
        (of(&["kubernetes.io", "pod", "name"], &long), PodTokenError::NotKubernetes),
        // The subject contradicts the other claims.
        (of(&["sub"], "system:serviceaccount:kube-system:tunnel-agent"), PodTokenError::NotKubernetes),
    ] {
        let refused = verified(&signer, &claims).expect_err("it is refused");
        assert_eq!(refused, expected, "{claims}");
        assert!(refused.is_signed(), "{refused}");
    }
}

#[test]
fn a_token_that_the_recorded_key_has_not_signed_is_unauthenticated() {
    let (signer, other) = (TokenSigner::new("one"), TokenSigner::new("one"));
    let keys = keys(&signer);
    let good = signer.token("ES256", &claims());
    let (signed, _) = good.rsplit_once('.').unwrap();
    let another = claims().to_string().replace(UID, "0e1f9f5c-6a5a-4f0e-9d5f-0c9f0f0c8a12");
    let altered = good.replacen(good.split('.').nth(1).unwrap(), &encoded(&another), 1);
    let unnamed = TokenSigner::new("two");
    for (token, expected) in [
        (other.token("ES256", &claims()), OidcTokenError::Signature),
        (altered, OidcTokenError::Signature),
        (unnamed.token("ES256", &claims()), OidcTokenError::UnknownKey),
        (signer.token("HS256", &claims()), OidcTokenError::Algorithm),
        (signer.token("PS256", &claims()), OidcTokenError::Algorithm),
        (signer.token("none", &claims()), OidcTokenError::Malformed(JwtError::Algorithm)),
        (format!("{signed}."), OidcTokenError::Malformed(JwtError::Shape)),
        ("nonsense".to_owned(), OidcTokenError::Malformed(JwtError::Shape)),
        ("x".repeat(TOKEN_BYTES_MAX + 1), OidcTokenError::Malformed(JwtError::Shape)),
    ] {
        let refused = verify(&token, &keys).expect_err("it is refused");
        assert_eq!(refused, PodTokenError::Token(expected), "{token}");
        assert!(!refused.is_signed());
    }
    assert!(verify(&good, &keys).is_ok());
}

#[test]
fn keys_are_added_only_if_one_is_known_and_none_is_renamed() {
    let signers = ["one", "two", "three", "one"].map(TokenSigner::new);
    let set = |which: &[usize]| {
        let keys: Vec<Value> = which.iter().map(|at| signers[*at].jwk()).collect();
        IssuerKeys::parse(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
    };
    let known = set(&[0]);

    assert!(known.with(&set(&[0])).unwrap().is_none());
    assert_eq!(known.with(&set(&[1])).unwrap_err(), AddKeysError::NoneKnown);
    // The last key has the ID of the first one.
    assert_eq!(set(&[0, 1]).with(&set(&[1, 3])).unwrap_err(), AddKeysError::Renamed);
    let both = known.with(&set(&[0, 1])).unwrap().expect("one is new");
    let all = both.with(&set(&[1, 2])).unwrap().expect("one is new");
    assert_eq!(all.names().collect::<Vec<_>>(), ["one", "two", "three"]);
    for signer in &signers[..3] {
        verify(&signer.token("ES256", &claims()), &all).unwrap();
    }
}

#[test]
fn the_number_of_recorded_keys_is_limited() {
    let names: Vec<&'static str> = (0..=ISSUER_KEYS_MAX).map(|n| &*format!("key-{n}").leak()).collect();
    let jwks: Vec<Value> = names.iter().map(|name| TokenSigner::new(name).jwk()).collect();
    let parse = |keys: &[Value]| IssuerKeys::parse(json!({ "keys": keys }).to_string().as_bytes());

    let full = parse(&jwks[..ISSUER_KEYS_MAX]).unwrap();
    assert_eq!(parse(&jwks).unwrap_err(), IssuerKeysError::TooMany);
    let almost = parse(&jwks[..ISSUER_KEYS_MAX - 1]).unwrap();
    let last = parse(&jwks[ISSUER_KEYS_MAX - 2..ISSUER_KEYS_MAX]).unwrap();
    assert_eq!(almost.with(&last).unwrap().map(|all| all.names().count()), Some(ISSUER_KEYS_MAX));
    let shown = parse(&jwks[ISSUER_KEYS_MAX - 1..]).unwrap();
    assert_eq!(full.with(&shown).unwrap_err(), AddKeysError::Full);
}

#[test]
fn only_public_keys_that_can_verify_are_recorded() {
    let signer = TokenSigner::new("one");
    let mut secret = signer.jwk();
    secret["d"] = json!("the private half");
    secret["x5c"] = json!(["a certificate"]);
    let mac = json!({ "kty": "oct", "kid": "mac", "k": "c2VjcmV0" });
    let sent = |keys: Value| IssuerKeys::parse(json!({ "keys": keys, "more": 1 }).to_string().as_bytes());

    let kept = sent(json!([secret, mac])).unwrap();

    assert_eq!(kept.to_json(), json!({ "keys": [signer.jwk()] }).to_string());
    assert_eq!(IssuerKeys::parse(kept.to_json().as_bytes()).unwrap().to_json(), kept.to_json());
    let twice = json!([signer.jwk(), TokenSigner::new("one").jwk()]);
    assert_eq!(sent(twice).unwrap_err(), IssuerKeysError::Twice);
    assert_eq!(sent(json!([signer.jwk(), signer.jwk()])).unwrap_err(), IssuerKeysError::Twice);
    assert_eq!(sent(json!([mac])).unwrap_err(), IssuerKeysError::KeySet(KeySetError::Empty));
    assert_eq!(sent(json!("none")).unwrap_err(), IssuerKeysError::KeySet(KeySetError::Shape));
    let mut colored = signer.jwk();
    colored["kid"] = json!("\u{1b}[31mone");
    assert_eq!(sent(json!([colored])).unwrap_err(), IssuerKeysError::Name);
    let padded = |bytes: usize| {
        let set = json!({ "keys": [signer.jwk()] }).to_string();
        IssuerKeys::parse(format!("{set:<bytes$}").as_bytes()).map(drop)
    };
    assert_eq!(padded(ISSUER_KEYS_BYTES_MAX), Ok(()));
    assert_eq!(padded(ISSUER_KEYS_BYTES_MAX + 1), Err(IssuerKeysError::TooLarge));
}

fn keys(of: &TokenSigner) -> IssuerKeys {
    IssuerKeys::parse(key_set(&[of]).as_bytes()).unwrap()
}

fn verified(by: &TokenSigner, claims: &Value) -> Result<Pod, PodTokenError> {
    verify(&by.token("ES256", claims), &keys(by))
}

fn verify(token: &str, keys: &IssuerKeys) -> Result<Pod, PodTokenError> {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
    verifier().pod(token, (ISSUER, keys), AUDIENCE, now)
}

fn verifier() -> Verifier {
    Verifier::new().unwrap()
}

/// The claims as kube-apiserver writes them.
fn claims() -> Value {
    json!({
        "aud": [AUDIENCE], "exp": NOW + 599, "iat": NOW - 1, "nbf": NOW - 1, "iss": ISSUER, "jti": "1",
        "kubernetes.io": {
            "namespace": "tombolo",
            "node": { "name": "n1", "uid": "9c" },
            "pod": { "name": "tunnel-agent-x2", "uid": UID },
            "serviceaccount": { "name": "tunnel-agent", "uid": "7d1f" },
        },
        "sub": "system:serviceaccount:tombolo:tunnel-agent",
    })
}

fn with(path: &[&str], value: Value) -> Value {
    let mut claims = claims();
    *path.iter().fold(&mut claims, |at, name| &mut at[*name]) = value;
    claims
}

fn without(path: &[&str]) -> Value {
    let (last, path) = path.split_last().unwrap();
    let mut claims = claims();
    let at = path.iter().fold(&mut claims, |at, name| &mut at[*name]);
    at.as_object_mut().unwrap().remove(*last);
    claims
}

fn fault(fault: ClaimError) -> PodTokenError {
    PodTokenError::Token(OidcTokenError::Claims(fault))
}
