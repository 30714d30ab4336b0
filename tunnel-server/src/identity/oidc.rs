//! Tokens of OpenID Connect issuers, verified by the keys that the issuers publish: tokens of callers, and of
//! clusters' own pods.

mod claims;
mod error;
#[cfg(test)]
mod fuzz;
mod jwt;
mod keys;
pub mod pod;
mod refresh;
#[cfg(test)]
pub(crate) mod test_signer;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey};
use tokio::sync::watch;

pub(super) use claims::expiry;
pub use claims::{ClaimError, ClaimRequirements, LEEWAY};
pub use error::OidcTokenError;
pub(super) use jwt::Jwt;
pub use jwt::JwtError;
pub use keys::{KEYS_MAX, KeySetError};
pub use refresh::{ANSWER_BYTES_MAX, REFRESH_EVERY, REFRESH_PAUSE};

use super::{Caller, Method, NotAuthenticated};
use keys::Signed;
use refresh::{KeyLookup, Keys};

/// An issuer of tokens, and the requirements for its tokens.
pub struct Issuer {
    method: Method,
    algorithms: Vec<Algorithm>,
    requirements: ClaimRequirements,
    keys: Keys,
}

/// The cryptography library cannot verify signatures, or accepts any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this program cannot verify signatures of tokens")]
pub struct CryptoError;

impl Issuer {
    /// The issuer with this `name` in the configuration. Its tokens must have one of these `algorithms`; its
    /// keys are fetched over `tls`.
    ///
    /// # Errors
    ///
    /// [`CryptoError`]: the cryptography was tried, and fails.
    pub fn new(
        name: &str,
        algorithms: Vec<Algorithm>,
        requirements: ClaimRequirements,
        tls: watch::Receiver<Arc<rustls::ClientConfig>>,
    ) -> Result<Self, CryptoError> {
        test_crypto()?;
        let keys = Keys::new(name, &requirements.issuer, tls);
        Ok(Self { method: Method::Oidc(format!("oidc:{name}").into()), algorithms, requirements, keys })
    }

    /// Keeps the keys fresh while it is polled.
    pub async fn follow(self: Arc<Self>) {
        self.keys.follow().await;
    }

    pub(super) fn prefixes(&self) -> &super::Prefixes {
        &self.requirements.prefixes
    }

    /// Returns true if a token names this issuer.
    pub(super) fn is_issuer_of(&self, jwt: &Jwt<'_>) -> bool {
        jwt.issuer() == Some(self.requirements.issuer.as_str())
    }

    /// The caller that `token`, parsed as `jwt`, belongs to.
    pub(super) async fn caller(
        &self,
        token: &str,
        jwt: &Jwt<'_>,
        now: SystemTime,
    ) -> Result<Caller, NotAuthenticated> {
        if !self.algorithms.contains(&jwt.algorithm) {
            return Err(OidcTokenError::Algorithm.into());
        }
        let lookup = self
            .keys
            .find(|keys| Some(keys.signed(jwt)).filter(|signed| *signed != Signed::UnknownKey))
            .await;
        match lookup {
            KeyLookup::Found(Signed::Yes) => {}
            KeyLookup::Found(Signed::No) => return Err(OidcTokenError::Signature.into()),
            KeyLookup::Found(Signed::UnknownKey) | KeyLookup::Nothing => {
                return Err(OidcTokenError::UnknownKey.into());
            }
            KeyLookup::Unreachable => return Err(NotAuthenticated::Unreachable(self.method.clone())),
        }
        let bearer = self.requirements.bearer(&jwt.claims, token, now).map_err(OidcTokenError::from)?;
        let claims::TokenBearer { user, groups, credential } = bearer;
        Ok(Caller {
            method: self.method.clone(),
            user,
            groups,
            credential,
            reviewed: None,
            token: None,
            source: None,
        })
    }
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer").field("method", &self.method).finish_non_exhaustive()
    }
}

/// Tests the signature verification: a wrongly built library panics, or accepts every signature.
fn test_crypto() -> Result<(), CryptoError> {
    // An error means that a provider is installed already, which is then tested.
    let _ = jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default();
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| CryptoError)?;
    let signature = key.sign(&SystemRandom::new(), b"signed").map_err(|_| CryptoError)?;
    let signature = URL_SAFE_NO_PAD.encode(signature.as_ref());
    let public = DecodingKey::from_ec_der(key.public_key().as_ref());
    let holds = |message: &[u8]| {
        jsonwebtoken::crypto::verify(&signature, message, &public, Algorithm::ES256).unwrap_or(false)
    };
    if holds(b"signed") && !holds(b"changed") { Ok(()) } else { Err(CryptoError) }
}

#[cfg(test)]
mod tests;
