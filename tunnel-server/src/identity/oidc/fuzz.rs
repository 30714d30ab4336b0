//! Fuzz targets: tokens that say to be of an issuer.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::claims::{ClaimRequirements, LEEWAY, TokenBearer, expiry};
use super::jwt::Jwt;
use crate::identity::Prefixes;

/// How many random inputs `make test` tries, beside the corpus. `make fuzz` says otherwise by the environment.
const ITERATIONS: usize = 2_000;

const NOW: u64 = 1_800_000_000;

/// Claims, even signed ones, name a bearer only of this issuer, for this server and for a time that has not passed, under the
/// prefix and without what would split a header.
#[test]
fn tokens() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
    let demands = ClaimRequirements {
        issuer: "https://issuer.example".to_owned(),
        audience: "tombolo".to_owned(),
        username_claim: "sub".to_owned(),
        groups_claim: Some("groups".to_owned()),
        required: BTreeMap::new(),
        prefixes: Prefixes { username: "oidc:".to_owned(), groups: "oidc:".to_owned() },
    };
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        // As a whole, and as the claims of a token whose header is good.
        if let Ok(text) = std::str::from_utf8(bytes) {
            let _ = Jwt::parse(text).map(|jwt| jwt.map(|jwt| expiry(&jwt)));
        }
        let claims = URL_SAFE_NO_PAD.encode(bytes);
        let token = format!("{}.{claims}.AA", URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256"}"#));
        let Some(Ok(jwt)) = Jwt::parse(&token) else { return };
        let Ok(TokenBearer { user, groups, credential }) = demands.bearer(&jwt.claims, &token, now) else {
            return;
        };
        let said: serde_json::Value = serde_json::from_slice(bytes).unwrap();
        assert_eq!(said["iss"], "https://issuer.example");
        assert!(said["aud"] == "tombolo" || said["aud"].as_array().unwrap().contains(&"tombolo".into()));
        assert!(said["exp"].as_u64().unwrap() + LEEWAY.as_secs() > NOW);
        assert!(said["nbf"].is_null() || said["nbf"].as_u64().unwrap() <= NOW + LEEWAY.as_secs());
        assert!(credential.expires.is_some_and(|end| end > now));
        assert_eq!(user, format!("oidc:{}", said["sub"].as_str().unwrap()));
        for name in groups.iter().chain([&user]) {
            assert!(name.starts_with("oidc:") && !name.chars().any(char::is_control), "{name:?}");
        }
    });
}
