//! What a token whose signature holds says of its bearer, and whether that holds here and now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use trust::user_token::TokenDigest;

use super::jwt::{JsonObject, Jwt};
use crate::identity::credential::{Credential, token_id};
use crate::identity::name::{NameError, Prefixes};

/// By how much an issuer's clock may differ from ours.
pub const LEEWAY: Duration = Duration::from_secs(30);

/// Longest name that an issuer gives a token, in bytes; where it is longer, the token gets one of ours.
const JWT_ID_BYTES_MAX: usize = 64;

/// What the tokens of an issuer must say.
#[derive(Debug, Clone)]
pub struct ClaimRequirements {
    /// `iss`, to the byte.
    pub issuer: String,
    /// One of `aud`.
    pub audience: String,
    /// Whose value is the user.
    pub username_claim: String,
    /// Whose values are the groups, if there is one.
    pub groups_claim: Option<String>,
    /// Claims with the text that each must have.
    pub required: BTreeMap<String, String>,
    /// In front of the names.
    pub prefixes: Prefixes,
}

/// Who bears a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TokenBearer {
    pub(super) user: String,
    pub(super) groups: Vec<String>,
    pub(super) credential: Credential,
}

/// Why a token that its issuer has signed is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// Missing where it is needed, or not of the type that it must have.
    #[error("the token has no {0} of the right type")]
    Mistyped(String),
    /// For somebody else.
    #[error("the token is not meant for this server")]
    Audience,
    /// Its time has passed.
    #[error("the token has expired: log in again")]
    Expired,
    /// Its time has not come.
    #[error("the token is not valid yet: check the clocks")]
    NotYetValid,
    /// A claim that must have another value.
    #[error("the token's {0} is not what this server asks for")]
    Required(String),
    /// An address that is not the bearer's as far as the issuer knows.
    #[error("the token's email is not verified")]
    EmailNotVerified,
    /// A user or a group that cannot be.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl ClaimRequirements {
    /// The bearer of `token`, whose signature holds and whose claims these are, at `now`.
    pub(super) fn bearer(
        &self,
        claims: &JsonObject,
        token: &str,
        now: SystemTime,
    ) -> Result<TokenBearer, ClaimError> {
        let TokenValidity { issued, expires } = holds(claims, &self.issuer, &self.audience, now)?;
        for (name, value) in &self.required {
            if text(claims, name)? != value {
                return Err(ClaimError::Required(name.clone()));
            }
        }
        let (user, groups) = self.names(claims)?;
        let credential = Credential { id: id(claims, token), issued, expires: Some(expires) };
        Ok(TokenBearer { user, groups, credential })
    }

    fn names(&self, claims: &JsonObject) -> Result<(String, Vec<String>), ClaimError> {
        let user = text(claims, &self.username_claim)?;
        // As in Kubernetes: absent is the issuer's way to say that every address is verified.
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

/// From when and until when a token holds.
pub(super) struct TokenValidity {
    pub(super) issued: Option<SystemTime>,
    /// With the leeway.
    pub(super) expires: SystemTime,
}

/// Whether claims are of this issuer, for this audience, and hold at `now`.
pub(super) fn holds(
    claims: &JsonObject,
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

/// From when and until when a token says to hold, where somebody else has verified it.
pub(in crate::identity) fn expiry(jwt: &Jwt<'_>) -> (Option<SystemTime>, Option<SystemTime>) {
    let at = |name| time(&jwt.claims, name).ok().flatten();
    (at("iat"), at("exp").map(|end| end + LEEWAY))
}

/// The name that the issuer gave the token, or one of ours.
fn id(claims: &JsonObject, token: &str) -> Arc<str> {
    let is_name = |id: &&str| {
        (1..=JWT_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
    };
    match claims.get("jti").and_then(Value::as_str).filter(is_name) {
        Some(id) => id.into(),
        None => token_id(&TokenDigest::of(token.as_bytes())),
    }
}

pub(super) fn text<'a>(claims: &'a JsonObject, name: &str) -> Result<&'a str, ClaimError> {
    claims.get(name).and_then(Value::as_str).ok_or_else(|| mistyped(name))
}

/// One text, or an array of nothing else.
fn texts<'a>(claims: &'a JsonObject, name: &str) -> Result<Vec<&'a str>, ClaimError> {
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
fn time(claims: &JsonObject, name: &str) -> Result<Option<SystemTime>, ClaimError> {
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
