//! Pods of a cluster, by tokens of their ServiceAccount, verified by keys that are recorded of that cluster's issuer: nobody is
//! asked.
//!
//! <https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#bound-service-account-tokens>

mod issuer_keys;

use std::time::{Duration, SystemTime};

use jsonwebtoken::Algorithm;
use proto::cluster::is_dns_label;
use serde_json::Value;

pub use issuer_keys::{AddKeysError, ISSUER_KEYS_MAX, IssuerKeys, IssuerKeysError};

use super::claims::{self, TokenValidity, mistyped};
use super::jwt::{JsonObject, Jwt};
use super::keys::Signed;
use super::{CryptoError, JwtError, OidcTokenError, verifies};
use crate::identity::TOKEN_BYTES_MAX;

/// How old a pod's token may be: as long as the shortest that Kubernetes issues holds, so that one that was copied is of use no
/// longer.
pub const TOKEN_AGE_MAX: Duration = Duration::from_secs(10 * 60);

/// What API servers sign with that can be verified here; never what a verifier could sign with.
const ALGORITHMS: [Algorithm; 3] = [Algorithm::RS256, Algorithm::ES256, Algorithm::ES384];

/// The claim in which Kubernetes says whose a token is.
const KUBERNETES: &str = "kubernetes.io";

/// Longest name of a namespace, an account or a pod, in bytes (RFC 1123, as Kubernetes has it).
const NAME_BYTES_MAX: usize = 253;

/// What verifies pods' tokens. Exists only where signatures can be verified.
#[derive(Debug, Clone, Copy)]
pub struct Verifier(());

/// A pod, as a token says whose signature, audience and times hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// The namespace of the pod and its account.
    pub namespace: String,
    /// The account's name.
    pub account: String,
    /// The account's UID: another one if it was made anew.
    pub account_uid: String,
    /// The pod's name.
    pub name: String,
    /// The pod's UID, a DNS label.
    pub uid: String,
}

/// Why a pod's token is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodTokenError {
    /// Not a token of the issuer, for this audience, or not now.
    #[error(transparent)]
    Token(#[from] OidcTokenError),
    /// It was issued too long ago, or does not say when.
    #[error("the token was issued more than {} minutes ago: let expirationSeconds of its volume be 600", TOKEN_AGE_MAX.as_secs() / 60)]
    Old,
    /// It could be anybody's who has the account.
    #[error("the token is not bound to a pod: mount it by a projected volume")]
    NoPod,
    /// Not of an account, or not as Kubernetes writes it.
    #[error("the token does not name a ServiceAccount and a pod as Kubernetes does")]
    NotKubernetes,
}

impl Verifier {
    /// # Errors
    ///
    /// [`CryptoError`]: the cryptography was tried, and fails.
    pub fn new() -> Result<Self, CryptoError> {
        verifies().map(|()| Self(()))
    }

    /// Whose `token` is, if `issuer` has signed it with one of these keys for this audience a short while ago.
    ///
    /// # Errors
    ///
    /// [`PodTokenError`].
    pub fn pod(
        self,
        token: &str,
        (issuer, keys): (&str, &IssuerKeys),
        audience: &str,
        now: SystemTime,
    ) -> Result<Pod, PodTokenError> {
        let malformed = |fault| PodTokenError::Token(OidcTokenError::Malformed(fault));
        if token.len() > TOKEN_BYTES_MAX {
            return Err(malformed(JwtError::Shape));
        }
        let jwt = Jwt::parse(token).unwrap_or(Err(JwtError::Shape)).map_err(malformed)?;
        if !ALGORITHMS.contains(&jwt.algorithm) {
            return Err(OidcTokenError::Algorithm.into());
        }
        match keys.signed(&jwt) {
            Signed::Yes => {}
            Signed::No => return Err(OidcTokenError::Signature.into()),
            Signed::UnknownKey => return Err(OidcTokenError::UnknownKey.into()),
        }
        let fault = |fault| PodTokenError::Token(OidcTokenError::Claims(fault));
        let TokenValidity { issued, .. } =
            claims::holds(&jwt.claims, issuer, audience, now).map_err(fault)?;
        let issued = issued.ok_or_else(|| fault(mistyped("iat")))?;
        // A clock of the issuer's that is behind ours makes a token older, never younger.
        if now > issued + TOKEN_AGE_MAX {
            return Err(PodTokenError::Old);
        }
        pod(&jwt.claims, claims::text(&jwt.claims, "sub").map_err(fault)?)
    }
}

impl PodTokenError {
    /// Whether a key of the issuer has signed the token that is not taken: it is no stranger's.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        match self {
            Self::Token(OidcTokenError::Claims(_)) | Self::Old | Self::NoPod | Self::NotKubernetes => true,
            Self::Token(
                OidcTokenError::Malformed(_)
                | OidcTokenError::Algorithm
                | OidcTokenError::UnknownKey
                | OidcTokenError::Signature,
            ) => false,
        }
    }
}

fn pod(claims: &JsonObject, subject: &str) -> Result<Pod, PodTokenError> {
    let Some(Value::Object(said)) = claims.get(KUBERNETES) else { return Err(PodTokenError::NotKubernetes) };
    let text = |of: Option<&Value>, name: &str| {
        let text = of.and_then(|of| of.get(name)).and_then(Value::as_str).filter(|text| is_name(text));
        text.map(str::to_owned).ok_or(PodTokenError::NotKubernetes)
    };
    let namespace = said.get("namespace").and_then(Value::as_str).filter(|name| is_name(name));
    let namespace = namespace.ok_or(PodTokenError::NotKubernetes)?.to_owned();
    let account = text(said.get("serviceaccount"), "name")?;
    let account_uid = text(said.get("serviceaccount"), "uid")?;
    if subject != format!("system:serviceaccount:{namespace}:{account}") {
        return Err(PodTokenError::NotKubernetes);
    }
    let bound = said.get("pod").ok_or(PodTokenError::NoPod)?;
    let (name, uid) = (text(Some(bound), "name")?, text(Some(bound), "uid")?);
    // It becomes the agent's name.
    if !is_dns_label(&uid) {
        return Err(PodTokenError::NotKubernetes);
    }
    Ok(Pod { namespace, account, account_uid, name, uid })
}

/// Whether Kubernetes may have given this as a name or a UID; nothing else comes into records and logs.
fn is_name(text: &str) -> bool {
    let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(letters)
}

#[cfg(test)]
mod tests;
