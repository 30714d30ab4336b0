//! Fuzz targets for tokens that name an issuer.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proto::name_text::is_readable;

use super::claims::{ClaimRequirements, LEEWAY, TokenBearer, expiry};
use super::jwt::Jwt;
use crate::identity::Prefixes;

/// Random inputs that `make test` tries, beside the corpus. `make fuzz` sets another number by the
/// environment.
const ITERATIONS: usize = 2_000;

const NOW: u64 = 1_800_000_000;

/// Even signed claims have a bearer only if they are of this issuer, for this server and not expired. Its
/// names have the prefix and nothing that would split a header.
#[test]
fn tokens() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
    let requirements = ClaimRequirements {
        issuer: "https://issuer.example".to_owned(),
        audience: "tombolo".to_owned(),
        username_claim: "sub".to_owned(),
        groups_claim: Some("groups".to_owned()),
        required: BTreeMap::new(),
        prefixes: Prefixes { username: "oidc:".to_owned(), groups: "oidc:".to_owned() },
    };
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        // The input as a complete token, and as the claims of a token with a good header.
        if let Ok(text) = std::str::from_utf8(bytes) {
            let _ = Jwt::parse(text).map(|jwt| jwt.map(|jwt| expiry(&jwt)));
        }
        let claims = URL_SAFE_NO_PAD.encode(bytes);
        let token = format!("{}.{claims}.AA", URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256"}"#));
        let Some(Ok(jwt)) = Jwt::parse(&token) else { return };
        let Ok(TokenBearer { user, groups, credential }) = requirements.bearer(&jwt.claims, &token, now)
        else {
            return;
        };
        let claims_sent: serde_json::Value = serde_json::from_slice(bytes).unwrap();
        assert_eq!(claims_sent["iss"], "https://issuer.example");
        assert!(
            claims_sent["aud"] == "tombolo"
                || claims_sent["aud"].as_array().unwrap().contains(&"tombolo".into())
        );
        assert!(claims_sent["exp"].as_u64().unwrap() + LEEWAY.as_secs() > NOW);
        assert!(
            claims_sent["nbf"].is_null() || claims_sent["nbf"].as_u64().unwrap() <= NOW + LEEWAY.as_secs()
        );
        assert!(credential.expires.is_some_and(|end| end > now));
        assert_eq!(user, format!("oidc:{}", claims_sent["sub"].as_str().unwrap()));
        for name in groups.iter().chain([&user]) {
            assert!(name.starts_with("oidc:") && is_readable(name), "{name:?}");
        }
    });
}
