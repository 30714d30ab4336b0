//! What a reviewer's answer says, read with distrust.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value;
use tokio::time::Instant;
use trust::user_token::TokenDigest;

use crate::identity::credential::{Credential, hex};
use crate::identity::name::{NameFault, Prefixes};
use crate::identity::oidc::{Jwt, expiry};
use crate::identity::token::ID_BYTES;
use crate::identity::{Caller, Method, NotAuthenticated};

/// Where an API server names the token itself.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Longest such name, in bytes.
const CREDENTIAL_ID_BYTES_MAX: usize = 72;

/// What was found out about a token, and when.
#[derive(Debug, Clone)]
pub(super) struct Verdict {
    pub(super) at: Instant,
    pub(super) said: Said,
}

#[derive(Debug, Clone)]
pub(super) enum Said {
    /// Whose it is.
    Yes(Arc<Bearer>),
    /// It is nobody's, or nobody's here.
    No(ReviewFault),
    /// It could not be found out.
    Away,
}

/// Whose a token is.
#[derive(Debug)]
pub(super) struct Bearer {
    user: String,
    groups: Vec<String>,
    credential: Credential,
}

/// Why a token is not taken although its reviewer could be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReviewFault {
    /// The reviewer does not know it.
    #[error("the token is not known here")]
    Unknown,
    /// For somebody else.
    #[error("the token is not meant for this server")]
    Audience,
    /// A user or a group that cannot be.
    #[error(transparent)]
    Name(#[from] NameFault),
    /// Its time has passed since.
    #[error("the token has expired")]
    Expired,
}

impl Verdict {
    /// Nobody could be asked.
    pub(super) fn away() -> Self {
        Self { at: Instant::now(), said: Said::Away }
    }

    /// What the `status` of a TokenReview says of `token`.
    pub(super) fn of(status: &Value, token: &str, audiences: &[String], prefixes: &Prefixes) -> Self {
        let said = match bearer(status, token, audiences, prefixes) {
            Ok(bearer) => Said::Yes(Arc::new(bearer)),
            Err(fault) => Said::No(fault),
        };
        Self { at: Instant::now(), said }
    }

    pub(super) fn caller(self, method: &Method, now: SystemTime) -> Result<Caller, NotAuthenticated> {
        let bearer = match self.said {
            Said::Yes(bearer) => bearer,
            Said::No(fault) => return Err(fault.into()),
            Said::Away => return Err(NotAuthenticated::Away(method.clone())),
        };
        let Bearer { user, groups, credential } = &*bearer;
        if credential.expires.is_some_and(|expires| expires <= now) {
            return Err(ReviewFault::Expired.into());
        }
        let (user, groups, credential) = (user.clone(), groups.clone(), credential.clone());
        Ok(Caller { method: method.clone(), user, groups, credential })
    }
}

/// `authenticated` alone is not enough: some say it of nobody, or of somebody else's token.
fn bearer(
    status: &Value,
    token: &str,
    audiences: &[String],
    prefixes: &Prefixes,
) -> Result<Bearer, ReviewFault> {
    let no_error = status.get("error").is_none_or(|error| error.as_str() == Some(""));
    if status.get("authenticated") != Some(&Value::Bool(true)) || !no_error {
        return Err(ReviewFault::Unknown);
    }
    let granted = texts(status.get("audiences")).ok_or(ReviewFault::Audience)?;
    if !granted.iter().any(|granted| audiences.iter().any(|audience| audience == granted)) {
        return Err(ReviewFault::Audience);
    }
    let user = &status["user"];
    let name = user["username"].as_str().ok_or(ReviewFault::Unknown)?;
    let groups = match user.get("groups") {
        None | Some(Value::Null) => Vec::new(),
        groups @ Some(_) => texts(groups).ok_or(ReviewFault::Unknown)?,
    };
    let is_name = |id: &&str| {
        (1..=CREDENTIAL_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let id = match user["extra"][CREDENTIAL_ID][0].as_str().filter(is_name) {
        Some(id) => id.into(),
        None => hex(&TokenDigest::of(token.as_bytes()).digest()[..ID_BYTES]),
    };
    // The reviewer has verified it; what it does not say of the token the token says itself.
    let (issued, expires) = match Jwt::parse(token) {
        Some(Ok(jwt)) => expiry(&jwt),
        Some(Err(_)) | None => (None, None),
    };
    let (user, groups) = prefixes.apply_reviewed(name, &groups)?;
    Ok(Bearer { user, groups, credential: Credential { id, issued, expires } })
}

/// An array of nothing but texts.
fn texts(value: Option<&Value>) -> Option<Vec<&str>> {
    value?.as_array()?.iter().map(Value::as_str).collect()
}
