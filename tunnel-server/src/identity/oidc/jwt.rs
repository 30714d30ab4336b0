//! A JSON Web Token (RFC 7515, compact), parsed but not verified.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;

/// Longest ID of a key, in bytes.
const KEY_ID_BYTES_MAX: usize = 256;

/// Parameters that a header must not have: keys or locations of keys that the sender chose, extensions that
/// must be understood, and parameters of other kinds of tokens.
const REFUSED: [&str; 9] = ["jku", "jwk", "x5u", "x5c", "crit", "b64", "enc", "zip", "cty"];

/// The values that `typ` can have (RFC 7519, section 5.1; RFC 9068, section 2.1).
const TYPES: [&str; 4] = ["jwt", "at+jwt", "application/jwt", "application/at+jwt"];

/// A parsed token, which is not verified.
pub(in crate::identity) struct Jwt<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) key_id: Option<String>,
    /// The part of the token that is signed.
    pub(super) signed: &'a str,
    /// The signature, encoded as base64url.
    pub(super) signature: &'a str,
    pub(super) claims: ClaimsObject,
}

/// A JSON object without duplicate names.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ClaimsObject(BTreeMap<String, Value>);

/// The reason why a text is not an acceptable JSON Web Token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// It does not have three parts in base64url, of which the first two are JSON objects without duplicate
    /// names.
    #[error("the token is not a well-formed JWT")]
    Shape,
    /// The header tries to choose its key, needs an extension, or has another type.
    #[error("the token's header has something that is not accepted")]
    Header,
    /// The algorithm can never be configured: `none`, a MAC, or an unknown one.
    #[error("the token is signed by an algorithm that is not accepted")]
    Algorithm,
}

impl<'a> Jwt<'a> {
    /// Parses a token; `None` if it does not even look like a JWT, so that another method can have it.
    pub(in crate::identity) fn parse(token: &'a str) -> Option<Result<Self, JwtError>> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        // In base64url a JSON object begins with these letters.
        if claims.contains('.') || !header.starts_with("ey") {
            return None;
        }
        Some(Self::read(header, claims, signed, signature))
    }

    fn read(header: &str, claims: &str, signed: &'a str, signature: &'a str) -> Result<Self, JwtError> {
        let (header, claims) = (ClaimsObject::decode(header)?, ClaimsObject::decode(claims)?);
        if REFUSED.iter().any(|name| header.get(name).is_some()) {
            return Err(JwtError::Header);
        }
        let is_type = |kind: &Value| {
            kind.as_str().is_some_and(|kind| TYPES.contains(&kind.to_ascii_lowercase().as_str()))
        };
        if !header.get("typ").is_none_or(is_type) {
            return Err(JwtError::Header);
        }
        let key_id = match header.get("kid") {
            None => None,
            Some(Value::String(id)) if id.len() <= KEY_ID_BYTES_MAX => Some(id.clone()),
            Some(_) => return Err(JwtError::Header),
        };
        let algorithm = header.get("alg").and_then(Value::as_str).and_then(|name| name.parse().ok());
        let algorithm: Algorithm = algorithm.ok_or(JwtError::Algorithm)?;
        if signature.is_empty() {
            return Err(JwtError::Shape);
        }
        Ok(Self { algorithm, key_id, signed, signature, claims })
    }

    /// The issuer that the token names.
    pub(in crate::identity) fn issuer(&self) -> Option<&str> {
        self.claims.get("iss").and_then(Value::as_str)
    }
}

impl ClaimsObject {
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Parses JSON, whose depth serde_json bounds.
    pub(super) fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    fn decode(part: &str) -> Result<Self, JwtError> {
        let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtError::Shape)?;
        Self::parse(&json).ok_or(JwtError::Shape)
    }
}

impl<'de> Deserialize<'de> for ClaimsObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = ClaimsObject;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ClaimsObject, A::Error> {
                let mut object = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if object.insert(name, value).is_some() {
                        return Err(A::Error::custom("a name stands twice"));
                    }
                }
                Ok(ClaimsObject(object))
            }
        }
        deserializer.deserialize_map(Names)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_that_does_not_look_like_a_jwt_is_left_to_other_methods() {
        let whole = token(&json!({ "alg": "ES256" }), &json!({}));
        let (signed, signature) = whole.rsplit_once('.').unwrap();
        assert!(
            matches!(Jwt::parse(&whole), Some(Ok(jwt)) if (jwt.signed, jwt.signature) == (signed, signature))
        );

        let (header, _) = whole.split_once('.').unwrap();
        for other in ["", "sesame", "a.b.c", header, signed, &format!("{whole}.AA"), &format!("x{whole}")] {
            assert!(Jwt::parse(other).is_none(), "{other}");
        }
    }

    #[test]
    fn the_length_of_a_key_id_is_limited() {
        let longest = "x".repeat(KEY_ID_BYTES_MAX);
        let named = |id: Value| {
            let token = token(&json!({ "alg": "ES256", "kid": id }), &json!({}));
            Jwt::parse(&token).unwrap().map(|jwt| jwt.key_id)
        };

        assert_eq!(named(json!(longest)), Ok(Some(longest.clone())));
        for wrong in [json!(format!("{longest}x")), json!(7), json!(null), json!(["k"])] {
            assert_eq!(named(wrong.clone()), Err(JwtError::Header), "{wrong}");
        }
    }

    #[test]
    fn a_tokens_issuer_is_the_text_in_its_claims() {
        for (claims, issuer) in [
            (json!({ "iss": "https://issuer.example" }), Some("https://issuer.example")),
            (json!({ "sub": "https://issuer.example" }), None),
            (json!({ "iss": ["https://issuer.example"] }), None),
        ] {
            let token = token(&json!({ "alg": "ES256", "iss": "https://elsewhere.example" }), &claims);
            assert_eq!(Jwt::parse(&token).unwrap().unwrap().issuer(), issuer, "{claims}");
        }
    }

    fn token(header: &Value, claims: &Value) -> String {
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        format!("{header}.{claims}.AA")
    }
}
