//! Parses the answer of a reviewer, without trusting its form.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tokio::time::Instant;
use trust::user_token::TokenDigest;

use super::error::TokenReviewError;
use crate::identity::credential::{Credential, token_id};
use crate::identity::name::Prefixes;
use crate::identity::oidc::{Jwt, expiry};
use crate::identity::review_cache::{CachedReview, UNREACHABLE_FOR};
use crate::identity::reviewed::Reviewed;
use crate::identity::{Caller, Method, NotAuthenticated};

/// The key under which an API server returns the token's ID.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Longest ID of a token, in bytes.
const CREDENTIAL_ID_BYTES_MAX: usize = 72;

/// The time for which an accepted token is not reviewed again. A withdrawn token is refused after that time.
pub const ACCEPTED_FOR: Duration = Duration::from_secs(60);

/// The time for which a refused token is not reviewed again.
pub const REFUSED_FOR: Duration = Duration::from_secs(10);

/// The result of a token's review, and its time.
#[derive(Debug, Clone)]
pub(super) struct TokenReviewResult {
    at: Instant,
    outcome: ReviewOutcome,
}

#[derive(Debug, Clone)]
enum ReviewOutcome {
    /// The token belongs to this bearer.
    Yes(Arc<ReviewedBearer>),
    /// The reviewer does not know the token, or it is not acceptable here.
    No(TokenReviewError),
    /// The reviewer could not be reached.
    Unreachable,
}

/// The bearer of a reviewed token.
#[derive(Debug)]
pub(super) struct ReviewedBearer {
    user: String,
    groups: Vec<String>,
    credential: Credential,
    reviewed: Arc<Reviewed>,
}

impl TokenReviewResult {
    /// Parses the `status` of a TokenReview of `token`.
    pub(super) fn from_status(
        status: &Value,
        token: &str,
        audiences: &[String],
        prefixes: &Prefixes,
    ) -> Self {
        let outcome = match bearer(status, token, audiences, prefixes) {
            Ok(bearer) => ReviewOutcome::Yes(Arc::new(bearer)),
            Err(fault) => ReviewOutcome::No(fault),
        };
        Self { at: Instant::now(), outcome }
    }

    pub(super) fn caller(self, method: &Method, now: SystemTime) -> Result<Caller, NotAuthenticated> {
        let bearer = match self.outcome {
            ReviewOutcome::Yes(bearer) => bearer,
            ReviewOutcome::No(fault) => return Err(fault.into()),
            ReviewOutcome::Unreachable => return Err(NotAuthenticated::Unreachable(method.clone())),
        };
        let ReviewedBearer { user, groups, credential, reviewed } = &*bearer;
        if credential.expires.is_some_and(|expires| expires <= now) {
            return Err(TokenReviewError::Expired.into());
        }
        let (user, groups, credential) = (user.clone(), groups.clone(), credential.clone());
        let reviewed = Some(Arc::clone(reviewed));
        Ok(Caller { method: method.clone(), user, groups, credential, reviewed, token: None, source: None })
    }
}

impl CachedReview for TokenReviewResult {
    fn unreachable() -> Self {
        Self { at: Instant::now(), outcome: ReviewOutcome::Unreachable }
    }

    fn at(&self) -> Instant {
        self.at
    }

    fn until(&self) -> Instant {
        self.at
            + match self.outcome {
                ReviewOutcome::Yes(_) => ACCEPTED_FOR,
                ReviewOutcome::No(_) => REFUSED_FOR,
                ReviewOutcome::Unreachable => UNREACHABLE_FOR,
            }
    }

    fn is_yes(&self) -> bool {
        matches!(self.outcome, ReviewOutcome::Yes(_))
    }
}

/// The bearer in a status. `authenticated` alone is not enough: some reviewers set it without a user, or for
/// another audience's token.
fn bearer(
    status: &Value,
    token: &str,
    audiences: &[String],
    prefixes: &Prefixes,
) -> Result<ReviewedBearer, TokenReviewError> {
    let no_error = status.get("error").is_none_or(|error| error.as_str() == Some(""));
    if status.get("authenticated") != Some(&Value::Bool(true)) || !no_error {
        return Err(TokenReviewError::Unknown);
    }
    let granted = texts(status.get("audiences")).ok_or(TokenReviewError::Audience)?;
    if !granted.iter().any(|granted| audiences.iter().any(|audience| audience == granted)) {
        return Err(TokenReviewError::Audience);
    }
    let user = &status["user"];
    let name = user["username"].as_str().ok_or(TokenReviewError::Unknown)?;
    let groups = match user.get("groups") {
        None | Some(Value::Null) => Vec::new(),
        groups @ Some(_) => texts(groups).ok_or(TokenReviewError::Unknown)?,
    };
    let is_name = |id: &&str| {
        (1..=CREDENTIAL_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let id = match user["extra"][CREDENTIAL_ID][0].as_str().filter(is_name) {
        Some(id) => id.into(),
        None => token_id(&TokenDigest::of(token.as_bytes())),
    };
    // The reviewer has verified the token. Its times are only in the token itself.
    let (issued, expires) = match Jwt::parse(token) {
        Some(Ok(jwt)) => expiry(&jwt),
        Some(Err(_)) | None => (None, None),
    };
    let reviewed = Arc::new(Reviewed::from_user(user).ok_or(TokenReviewError::TooLarge)?);
    let (user, groups) = prefixes.apply_reviewed(name, &groups)?;
    Ok(ReviewedBearer { user, groups, credential: Credential { id, issued, expires }, reviewed })
}

/// An array that contains only texts.
fn texts(value: Option<&Value>) -> Option<Vec<&str>> {
    value?.as_array()?.iter().map(Value::as_str).collect()
}

#[cfg(test)]
mod tests;
