//! Checks the claims of a token whose signature is valid, and reads its bearer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use trust::user_token::TokenDigest;

use super::jwt::{ClaimsObject, Jwt};
use crate::identity::credential::{Credential, token_id};
use crate::identity::name::{NameError, Prefixes};

/// Largest difference between an issuer's clock and ours.
pub const LEEWAY: Duration = Duration::from_secs(30);

/// Longest `jti` that is used as a token's ID, in bytes. Other tokens get an ID of ours.
const JWT_ID_BYTES_MAX: usize = 64;

/// The required claims of an issuer's tokens.
#[derive(Debug, Clone)]
pub struct ClaimRequirements {
    /// The value of `iss`, byte by byte.
    pub issuer: String,
    /// A value that `aud` must contain.
    pub audience: String,
    /// The claim whose value is the user.
    pub username_claim: String,
    /// The claim whose values are the groups, if any.
    pub groups_claim: Option<String>,
    /// Claims with the text that each must have.
    pub required: BTreeMap<String, String>,
    /// The prefixes of the bearer's names.
    pub prefixes: Prefixes,
}

/// The bearer of a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TokenBearer {
    pub(super) user: String,
    pub(super) groups: Vec<String>,
    pub(super) credential: Credential,
}

/// The reason why a signed token is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// A required claim is missing or has another type.
    #[error("the token has no {0} of the right type")]
    Mistyped(String),
    /// The token is for another audience.
    #[error("the token is not meant for this server")]
    Audience,
    /// The token has expired by now.
    #[error("the token has expired: log in again")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is not valid yet: check the clocks")]
    NotYetValid,
    /// A claim has another value than the required one.
    #[error("the token's {0} is not the one that this server requires")]
    Required(String),
    /// The issuer has not verified the email address.
    #[error("the token's email is not verified")]
    EmailNotVerified,
    /// A user or group name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl ClaimRequirements {
    /// The bearer of `token`, whose signature is valid and which has these claims, at `now`.
    pub(super) fn bearer(
        &self,
        claims: &ClaimsObject,
        token: &str,
        now: SystemTime,
    ) -> Result<TokenBearer, ClaimError> {
        let TokenValidity { issued, expires } = verify(claims, &self.issuer, &self.audience, now)?;
        for (name, value) in &self.required {
            if text(claims, name)? != value {
                return Err(ClaimError::Required(name.clone()));
            }
        }
        let (user, groups) = self.names(claims)?;
        let credential = Credential { id: id(claims, token), issued, expires: Some(expires) };
        Ok(TokenBearer { user, groups, credential })
    }

    fn names(&self, claims: &ClaimsObject) -> Result<(String, Vec<String>), ClaimError> {
        let user = text(claims, &self.username_claim)?;
        // As in Kubernetes, an absent claim means that the issuer verifies every address.
        let is_verified = claims.get("email_verified").is_none_or(|verified| *verified == Value::Bool(true));
        if self.username_claim == "email" && !is_verified {
            return Err(ClaimError::EmailNotVerified);
        }
        let groups = match &self.groups_claim {
            Some(claim) if claims.get(claim).is_some() => texts(claims, claim)?,
            Some(_) | None => Vec::new(),
        };
        Ok(self.prefixes.apply(user, &groups)?)
    }
}

/// The time in which a token is valid.
pub(super) struct TokenValidity {
    pub(super) issued: Option<SystemTime>,
    /// The end, with the leeway added.
    pub(super) expires: SystemTime,
}

/// Checks that claims are of this issuer, for this audience, and valid at `now`.
pub(super) fn verify(
    claims: &ClaimsObject,
    issuer: &str,
    audience: &str,
    now: SystemTime,
) -> Result<TokenValidity, ClaimError> {
    if text(claims, "iss")? != issuer {
        return Err(ClaimError::Required("iss".to_owned()));
    }
    if !texts(claims, "aud")?.contains(&audience) {
        return Err(ClaimError::Audience);
    }
    let expires = time(claims, "exp")?.ok_or_else(|| mistyped("exp"))? + LEEWAY;
    if now >= expires {
        return Err(ClaimError::Expired);
    }
    let (not_before, issued) = (time(claims, "nbf")?, time(claims, "iat")?);
    if [not_before, issued].into_iter().flatten().any(|begin| now + LEEWAY < begin) {
        return Err(ClaimError::NotYetValid);
    }
    Ok(TokenValidity { issued, expires })
}

/// The times of issue and expiry in a token that another server has verified.
pub(in crate::identity) fn expiry(jwt: &Jwt<'_>) -> (Option<SystemTime>, Option<SystemTime>) {
    let at = |name| time(&jwt.claims, name).ok().flatten();
    (at("iat"), at("exp").map(|end| end + LEEWAY))
}

/// The ID that the issuer gave the token, or one of ours.
fn id(claims: &ClaimsObject, token: &str) -> Arc<str> {
    let is_name = |id: &&str| {
        (1..=JWT_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
    };
    match claims.get("jti").and_then(Value::as_str).filter(is_name) {
        Some(id) => id.into(),
        None => token_id(&TokenDigest::of(token.as_bytes())),
    }
}

pub(super) fn text<'a>(claims: &'a ClaimsObject, name: &str) -> Result<&'a str, ClaimError> {
    claims.get(name).and_then(Value::as_str).ok_or_else(|| mistyped(name))
}

/// A claim with one text, or an array of texts.
fn texts<'a>(claims: &'a ClaimsObject, name: &str) -> Result<Vec<&'a str>, ClaimError> {
    match claims.get(name) {
        Some(Value::String(one)) => Ok(vec![one]),
        Some(Value::Array(all)) => {
            all.iter().map(|value| value.as_str().ok_or_else(|| mistyped(name))).collect()
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
            Err(mistyped(name))
        }
    }
}

/// Whole seconds since 1970 (RFC 7519, section 2, which allows fractions that nobody sends); `None` where there is none.
fn time(claims: &ClaimsObject, name: &str) -> Result<Option<SystemTime>, ClaimError> {
    /// Later than any clock, so that adding to it is safe.
    const SECONDS_MAX: u64 = 1 << 40;
    let Some(value) = claims.get(name) else { return Ok(None) };
    let seconds = value.as_u64().filter(|seconds| *seconds <= SECONDS_MAX).ok_or_else(|| mistyped(name))?;
    Ok(Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)))
}

pub(super) fn mistyped(name: &str) -> ClaimError {
    ClaimError::Mistyped(name.to_owned())
}

#[cfg(test)]
mod tests;
