//! The keys of an issuer (RFC 7517) that can verify accepted algorithms.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

use super::jwt::Jwt;

/// Most keys of one issuer.
pub const KEYS_MAX: usize = 100;

/// Usable keys, at least one.
#[derive(Clone)]
pub(super) struct KeySet(Vec<VerificationKey>);

#[derive(Clone)]
struct VerificationKey {
    id: Option<String>,
    /// The algorithms it can verify: only one, if the issuer says which.
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// The reason why the document of an issuer is no key set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// It is not `{"keys": […]}`.
    #[error("what the issuer sent is no set of keys")]
    Shape,
    /// It has more than [`KEYS_MAX`].
    #[error("the issuer has more than {KEYS_MAX} keys")]
    TooMany,
    /// No key verifies an accepted algorithm.
    #[error("the issuer has no key that could be used")]
    Empty,
}

/// The result of verifying a token's signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signed {
    /// The key has signed the token.
    Yes,
    /// The key has not signed the token.
    No,
    /// There is no key with that ID.
    UnknownKey,
}

impl KeySet {
    /// Parses the keys. Unusable ones are left out, because issuers have keys for other purposes too.
    pub(super) fn parse(json: &[u8]) -> Result<Self, KeySetError> {
        #[derive(Deserialize)]
        struct RawKeySet {
            keys: Vec<Value>,
        }
        let RawKeySet { keys } = serde_json::from_slice(json).map_err(|_| KeySetError::Shape)?;
        if keys.len() > KEYS_MAX {
            return Err(KeySetError::TooMany);
        }
        let keys: Vec<VerificationKey> = keys.into_iter().filter_map(VerificationKey::from_jwk).collect();
        if keys.is_empty() { Err(KeySetError::Empty) } else { Ok(Self(keys)) }
    }

    /// Verifies a token by the key that it names, or by the only fitting key if it names none.
    pub(super) fn signed(&self, jwt: &Jwt<'_>) -> Signed {
        let fits = |key: &&VerificationKey| key.algorithms.contains(&jwt.algorithm);
        let key = match &jwt.key_id {
            Some(id) => self.0.iter().filter(fits).find(|key| key.id.as_ref() == Some(id)),
            None => {
                let mut fitting = self.0.iter().filter(fits);
                fitting.next().filter(|_| fitting.next().is_none())
            }
        };
        let Some(VerificationKey { key, .. }) = key else { return Signed::UnknownKey };
        match jsonwebtoken::crypto::verify(jwt.signature, jwt.signed.as_bytes(), key, jwt.algorithm) {
            Ok(true) => Signed::Yes,
            Ok(false) | Err(_) => Signed::No,
        }
    }
}

impl VerificationKey {
    /// Parses a key, which is never symmetric: a key that verifies a MAC can also sign it.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the enum is another crate's, which may add to it")]
    fn from_jwk(json: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(json).ok()?;
        if jwk.common.public_key_use.as_ref().is_some_and(|purpose| *purpose != PublicKeyUse::Signature) {
            return None;
        }
        let algorithms = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => vec![
                Algorithm::RS256,
                Algorithm::RS384,
                Algorithm::RS512,
                Algorithm::PS256,
                Algorithm::PS384,
                Algorithm::PS512,
            ],
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
                vec![Algorithm::ES256]
            }
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => {
                vec![Algorithm::ES384]
            }
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                vec![Algorithm::EdDSA]
            }
            _ => return None,
        };
        let algorithms = match &jwk.common.key_algorithm {
            Some(only) => {
                let only: Algorithm = only.to_string().parse().ok()?;
                algorithms.into_iter().filter(|algorithm| *algorithm == only).collect()
            }
            None => algorithms,
        };
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        Some(Self { id: jwk.common.key_id, algorithms, key })
    }
}

#[cfg(test)]
mod tests;
