//! The end of a token that is a JSON Web Token (RFC 7519), without a check of its signature: the server checks it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use time::OffsetDateTime;

/// The claims of a token that matter here.
#[derive(Deserialize)]
struct Claims {
    /// Seconds since 1970, which may have a fraction (RFC 7519, section 2).
    exp: f64,
}

/// The time at which a token ends. `None` if it does not say so, or is no JWT.
pub(super) fn of(token: &str) -> Option<OffsetDateTime> {
    let mut parts = token.split('.');
    let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    let Claims { exp } = serde_json::from_slice(&claims).ok()?;
    // Beyond these years a time cannot be written.
    OffsetDateTime::from_unix_timestamp(exp as i64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_jwt_is_read_and_other_tokens_have_none() {
        let token = |claims: &str| format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims));
        for (token, end) in [
            (token(r#"{"exp":1769860800}"#), Some(1_769_860_800)),
            (token(r#"{"sub":"a","exp":1769860800.9}"#), Some(1_769_860_800)),
            (token(r#"{"sub":"a"}"#), None),
            (token(r#"{"exp":"soon"}"#), None),
            (token(r#"{"exp":1e300}"#), None),
            ("0123456789".to_owned(), None),
            ("a.b.c".to_owned(), None),
            (token(r#"{"exp":1}"#) + ".x", None),
        ] {
            assert_eq!(of(&token).map(OffsetDateTime::unix_timestamp), end, "{token}");
        }
    }
}
