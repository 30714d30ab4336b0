//! A test double of an issuer, which signs tokens and publishes its key.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// A key of ES256, and its ID.
pub(crate) struct TokenSigner(EcdsaKeyPair, &'static str);

impl TokenSigner {
    pub(crate) fn new(name: &'static str) -> Self {
        Self(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(), name)
    }

    /// The public key as RFC 7517 writes it.
    pub(crate) fn jwk(&self) -> Value {
        let (x, y) = self.0.public_key().as_ref()[1..].split_at(32);
        let [x, y] = [x, y].map(|half| URL_SAFE_NO_PAD.encode(half));
        json!({ "kty": "EC", "kid": self.1, "alg": "ES256", "use": "sig", "crv": "P-256", "x": x, "y": y })
    }

    /// A token whose header names `algorithm`, signed by ES256 in any case.
    pub(crate) fn token(&self, algorithm: &str, claims: &Value) -> String {
        let header = json!({ "alg": algorithm, "kid": self.1 }).to_string();
        let signed = format!("{}.{}", encoded(&header), encoded(&claims.to_string()));
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

/// The JSON Web Key Set of all these signers.
pub(crate) fn key_set(signers: &[&TokenSigner]) -> String {
    let keys: Vec<Value> = signers.iter().map(|signer| signer.jwk()).collect();
    json!({ "keys": keys }).to_string()
}

/// A part of a token, encoded.
pub(crate) fn encoded(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(text)
}
