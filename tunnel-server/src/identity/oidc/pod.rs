//! Pods of a cluster, authenticated by tokens of their ServiceAccount. The recorded keys of that cluster's
//! issuer verify the tokens, without a request to anyone.
//!
//! <https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#bound-service-account-tokens>

mod issuer_keys;

use std::time::{Duration, SystemTime};

use jsonwebtoken::Algorithm;
use proto::cluster::is_dns_label;
use serde_json::Value;

pub use issuer_keys::{AddKeysError, ISSUER_KEYS_MAX, IssuerKeys, IssuerKeysError};

use super::claims::{self, TokenValidity, mistyped};
use super::jwt::{ClaimsObject, Jwt};
use super::keys::Signed;
use super::{CryptoError, JwtError, OidcTokenError, test_crypto};
use crate::identity::TOKEN_BYTES_MAX;

/// Largest age of a pod's token: the shortest lifetime that Kubernetes issues, so that a copied token is
/// useless afterwards.
pub const TOKEN_AGE_MAX: Duration = Duration::from_secs(10 * 60);

/// Algorithms by which API servers sign and that can be verified here. None of them is a MAC.
const ALGORITHMS: [Algorithm; 3] = [Algorithm::RS256, Algorithm::ES256, Algorithm::ES384];

/// The claim in which Kubernetes names the account and the pod.
const KUBERNETES: &str = "kubernetes.io";

/// Longest name of a namespace, an account or a pod, in bytes (RFC 1123, as Kubernetes has it).
const NAME_BYTES_MAX: usize = 253;

/// The verifier of pods' tokens. It exists only if signatures can be verified.
#[derive(Debug, Clone, Copy)]
pub struct Verifier(());

/// The pod in a token whose signature, audience and times are valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// The namespace of the pod and its account.
    pub namespace: String,
    /// The name of the account.
    pub account: String,
    /// The UID of the account, which changes if it is created again.
    pub account_uid: String,
    /// The name of the pod.
    pub name: String,
    /// The pod's UID, a DNS label.
    pub uid: String,
}

/// The reason why a pod's token is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodTokenError {
    /// It is not a token of the issuer for this audience, or not valid now.
    #[error(transparent)]
    Token(#[from] OidcTokenError),
    /// It was issued too long ago, or has no time of issue.
    #[error("the token was issued more than {} minutes ago: let expirationSeconds of its volume be 600", TOKEN_AGE_MAX.as_secs() / 60)]
    Old,
    /// It is not bound to a pod, so anyone with the account could have it.
    #[error("the token is not bound to a pod: mount it by a projected volume")]
    NoPod,
    /// It is of no account, or not in the form of Kubernetes.
    #[error("the token does not name a ServiceAccount and a pod as Kubernetes does")]
    NotKubernetes,
}

impl Verifier {
    /// Tests the cryptography and makes a verifier.
    ///
    /// # Errors
    ///
    /// [`CryptoError`]: the cryptography was tested, and fails.
    pub fn new() -> Result<Self, CryptoError> {
        test_crypto().map(|()| Self(()))
    }

    /// The pod of `token`, if `issuer` has signed it recently with one of these keys for this audience.
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
            claims::verify(&jwt.claims, issuer, audience, now).map_err(fault)?;
        let issued = issued.ok_or_else(|| fault(mistyped("iat")))?;
        // If the issuer's clock is behind ours, the token looks older, never younger.
        if now > issued + TOKEN_AGE_MAX {
            return Err(PodTokenError::Old);
        }
        pod(&jwt.claims, claims::text(&jwt.claims, "sub").map_err(fault)?)
    }
}

impl PodTokenError {
    /// Returns true if a key of the issuer has signed the refused token, so that its sender is not an unknown
    /// client.
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

fn pod(claims: &ClaimsObject, subject: &str) -> Result<Pod, PodTokenError> {
    let Some(Value::Object(kubernetes)) = claims.get(KUBERNETES) else {
        return Err(PodTokenError::NotKubernetes);
    };
    let text = |of: Option<&Value>, name: &str| {
        let text = of.and_then(|of| of.get(name)).and_then(Value::as_str).filter(|text| is_name(text));
        text.map(str::to_owned).ok_or(PodTokenError::NotKubernetes)
    };
    let namespace = kubernetes.get("namespace").and_then(Value::as_str).filter(|name| is_name(name));
    let namespace = namespace.ok_or(PodTokenError::NotKubernetes)?.to_owned();
    let account = text(kubernetes.get("serviceaccount"), "name")?;
    let account_uid = text(kubernetes.get("serviceaccount"), "uid")?;
    if subject != format!("system:serviceaccount:{namespace}:{account}") {
        return Err(PodTokenError::NotKubernetes);
    }
    let bound = kubernetes.get("pod").ok_or(PodTokenError::NoPod)?;
    let (name, uid) = (text(Some(bound), "name")?, text(Some(bound), "uid")?);
    // The UID becomes the agent's name.
    if !is_dns_label(&uid) {
        return Err(PodTokenError::NotKubernetes);
    }
    Ok(Pod { namespace, account, account_uid, name, uid })
}

/// Returns true if Kubernetes can have given this name or UID. Records and logs contain no other names.
fn is_name(text: &str) -> bool {
    let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(letters)
}

#[cfg(test)]
mod tests;
