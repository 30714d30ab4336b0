//! Checks the token of a pod's ServiceAccount by its claims, before the server checks its signature.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

/// Largest age of a token that the enrollment listener accepts, in seconds, and so the lifetime that Kubernetes is asked for.
const AGE_SECONDS_MAX: u64 = 600;

/// The problem of a token, and the advice. Only the server can verify the signature.
pub(super) fn fault(token: &str, audience: &str, now: u64) -> Option<(String, String)> {
    let volume = |what: &str| format!("let the projected volume's serviceAccountToken have {what}");
    let Some(claims) = claims(token) else {
        let found = "the ServiceAccount's token is no JWT".to_owned();
        return Some((found, "mount a projected volume with a serviceAccountToken".to_owned()));
    };
    let claimed = &claims["aud"];
    let has_audience =
        claimed == audience || claimed.as_array().is_some_and(|all| all.iter().any(|one| one == audience));
    if !has_audience {
        let found = format!(
            "the ServiceAccount's token is not for the enrollment listener, but for the audience {claimed}"
        );
        return Some((found, volume(&format!("`audience: {audience}`"))));
    }
    if claims["kubernetes.io"]["pod"]["uid"].as_str().is_none() {
        let found = "the ServiceAccount's token is not bound to a pod".to_owned();
        return Some((
            found,
            "mount it by a projected volume; a token of `kubectl create token` is bound to no pod".to_owned(),
        ));
    }
    match claims["iat"].as_u64() {
        Some(issued) if now <= issued + AGE_SECONDS_MAX => None,
        Some(_) | None => {
            let found = format!("the ServiceAccount's token is older than {} minutes", AGE_SECONDS_MAX / 60);
            Some((found, volume(&format!("`expirationSeconds: {AGE_SECONDS_MAX}`"))))
        }
    }
}

fn claims(token: &str) -> Option<Value> {
    let claims = token.split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_problem_of_a_token_has_its_own_message() {
        let good = json!({
            "aud": ["tombolo:tombolo:edge-a"], "iat": 1_000, "kubernetes.io": { "pod": { "uid": "x" } },
        });
        let with = |name: &str, value: Value| {
            let mut claims = good.clone();
            claims[name] = value;
            token(&claims)
        };
        let problem = |token: &str, now| fault(token, "tombolo:tombolo:edge-a", now);

        assert_eq!(problem(&token(&good), 1_600), None);
        assert_eq!(problem(&with("aud", json!("tombolo:tombolo:edge-a")), 1_600), None);
        for (token, words) in [
            ("no-jwt".to_owned(), "no JWT"),
            (with("aud", json!(["https://kubernetes.default.svc"])), "not for the enrollment listener"),
            (with("kubernetes.io", json!({})), "not bound to a pod"),
            (with("iat", json!(999)), "older than 10 minutes"),
            (with("iat", json!("1000")), "older than 10 minutes"),
        ] {
            let (found, _) = problem(&token, 1_600).expect(words);
            assert!(found.contains(words), "{found}");
        }
    }

    fn token(claims: &Value) -> String {
        format!("ey.{}.s", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }
}
