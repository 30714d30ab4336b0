//! The bearer of claims, at each limit, and the checks before.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use super::*;

const NOW: u64 = 1_800_000_000;
const TOKEN: &str = "header.claims.signature";

#[test]
fn each_required_claim_must_be_there_with_its_text() {
    let required = BTreeMap::from([("tenant".to_owned(), "blue".to_owned())]);
    let requirements = ClaimRequirements { required, ..requirements() };
    let asked = |more: Value| bearer(&requirements, more).map(|bearer| bearer.user);

    assert_eq!(asked(json!({ "tenant": "blue" })), Ok("oidc:ann".to_owned()));
    assert_eq!(asked(json!({ "tenant": "red" })), Err(ClaimError::Required("tenant".to_owned())));
    for other in [json!({}), json!({ "tenant": ["blue"] }), json!({ "tenant": null })] {
        assert_eq!(asked(other.clone()), Err(mistyped("tenant")), "{other}");
    }
}

#[test]
fn an_address_is_a_user_unless_the_issuer_says_that_it_is_not_verified() {
    let by_email = ClaimRequirements { username_claim: "email".to_owned(), ..requirements() };
    let claims_with = |verified: Value| json!({ "email": "ann@example.org", "email_verified": verified });
    let user =
        |requirements: &ClaimRequirements, more: Value| bearer(requirements, more).map(|bearer| bearer.user);

    for taken in [json!({ "email": "ann@example.org" }), claims_with(json!(true))] {
        assert_eq!(user(&by_email, taken.clone()), Ok("oidc:ann@example.org".to_owned()), "{taken}");
    }
    for refused in [json!(false), json!("true"), json!(null), json!(1)] {
        assert_eq!(
            user(&by_email, claims_with(refused.clone())),
            Err(ClaimError::EmailNotVerified),
            "{refused}"
        );
    }
    assert_eq!(
        user(&requirements(), claims_with(json!(false))),
        Ok("oidc:ann".to_owned()),
        "the address is not the user"
    );
}

#[test]
fn groups_are_those_of_the_configured_claim_and_may_be_left_out() {
    let by_role = ClaimRequirements { groups_claim: Some("roles".to_owned()), ..requirements() };
    let none = ClaimRequirements { groups_claim: None, ..requirements() };
    let groups = |requirements: &ClaimRequirements, more: Value| {
        bearer(requirements, more).map(|bearer| bearer.groups)
    };

    assert_eq!(groups(&by_role, json!({ "roles": "ops" })), Ok(vec!["team:ops".to_owned()]));
    let both = groups(&by_role, json!({ "roles": ["ops", "dev"] }));
    assert_eq!(both, Ok(vec!["team:ops".to_owned(), "team:dev".to_owned()]));
    assert_eq!(groups(&by_role, json!({ "groups": ["ops"] })), Ok(vec![]), "another claim's");
    assert_eq!(groups(&none, json!({ "roles": ["ops"] })), Ok(vec![]), "no claim is configured");
    for wrong in [json!({ "roles": 7 }), json!({ "roles": null }), json!({ "roles": ["ops", 7] })] {
        assert_eq!(groups(&by_role, wrong.clone()), Err(mistyped("roles")), "{wrong}");
    }
}

/// The leeway is added to the end and subtracted from the beginning, and not a second more.
#[test]
fn the_validity_of_a_token_is_extended_by_exactly_the_leeway() {
    let leeway = LEEWAY.as_secs();
    let credential = |more: Value| bearer(&requirements(), more).map(|bearer| bearer.credential);

    let last = credential(json!({ "exp": NOW - leeway + 1 })).unwrap();
    assert_eq!((last.issued, last.expires), (None, Some(at(NOW + 1))));
    assert_eq!(credential(json!({ "exp": NOW - leeway })), Err(ClaimError::Expired));
    for name in ["iat", "nbf"] {
        assert!(credential(json!({ name: NOW + leeway })).is_ok(), "{name}");
        assert_eq!(credential(json!({ name: NOW + leeway + 1 })), Err(ClaimError::NotYetValid), "{name}");
    }
    assert_eq!(credential(json!({ "iat": NOW - 5 })).unwrap().issued, Some(at(NOW - 5)));
}

#[test]
fn the_times_of_a_reviewed_token_are_read_from_the_token() {
    let claims_with = |claims: Value| {
        let [header, claims] = [json!({ "alg": "RS256" }), claims].map(|part| encoded(&part));
        expiry(&Jwt::parse(&format!("{header}.{claims}.AA")).unwrap().unwrap())
    };

    let both = claims_with(json!({ "iat": NOW, "exp": NOW + 600 }));
    assert_eq!(both, (Some(at(NOW)), Some(at(NOW + 600) + LEEWAY)));
    assert_eq!(claims_with(json!({ "exp": NOW })), (None, Some(at(NOW) + LEEWAY)));
    assert_eq!(claims_with(json!({ "iat": NOW.to_string(), "exp": -1 })), (None, None));
}

/// An ID that is too long or could change a log line is replaced by one of ours.
#[test]
fn a_token_has_its_issuers_id_if_that_is_printable_and_else_ours() {
    let named = |more: Value| bearer(&requirements(), more).unwrap().credential.id;
    let ours = named(json!({}));
    let longest = "x".repeat(JWT_ID_BYTES_MAX);

    for name in ["7", "a-b_c.d:e", longest.as_str()] {
        assert_eq!(*named(json!({ "jti": name })), *name);
    }
    let too_long = format!("{longest}x");
    for name in ["", "a b", "a\n", "\u{1b}[2J", "ä", too_long.as_str()] {
        assert_eq!(named(json!({ "jti": name })), ours, "{name:?}");
    }
    assert_eq!(named(json!({ "jti": 7 })), ours);
}

/// The bearer of a good token's claims with `more`.
fn bearer(requirements: &ClaimRequirements, more: Value) -> Result<TokenBearer, ClaimError> {
    let mut claims =
        json!({ "iss": requirements.issuer, "aud": requirements.audience, "exp": NOW + 600, "sub": "ann" });
    for (name, value) in more.as_object().unwrap() {
        claims[name] = value.clone();
    }
    requirements.bearer(&ClaimsObject::parse(claims.to_string().as_bytes()).unwrap(), TOKEN, at(NOW))
}

fn requirements() -> ClaimRequirements {
    ClaimRequirements {
        issuer: "https://issuer.example".to_owned(),
        audience: "tombolo".to_owned(),
        username_claim: "sub".to_owned(),
        groups_claim: Some("groups".to_owned()),
        required: BTreeMap::new(),
        prefixes: Prefixes { username: "oidc:".to_owned(), groups: "team:".to_owned() },
    }
}

fn encoded(part: &Value) -> String {
    URL_SAFE_NO_PAD.encode(part.to_string())
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}
