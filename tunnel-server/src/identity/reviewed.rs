//! A caller as the cluster that reviewed its token knows it.

use serde_json::{Value, json};

/// Longest that a reviewer may say of one user, in bytes of JSON.
pub const REVIEWED_BYTES_MAX: usize = 16 * 1024;

/// A user as its own cluster knows it, without our prefixes: for questions to that cluster alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reviewed(Value);

impl Reviewed {
    /// The user of a TokenReview's status; `None` if that is too much.
    pub(super) fn from_user(user: &Value) -> Option<Self> {
        let known = |name: &str| user.get(name).cloned().unwrap_or_default();
        // As a SubjectAccessReview names them.
        let outcome = json!({
            "user": known("username"), "groups": known("groups"), "uid": known("uid"), "extra": known("extra"),
        });
        (outcome.to_string().len() <= REVIEWED_BYTES_MAX).then_some(Self(outcome))
    }

    /// The subject of a SubjectAccessReview.
    pub(crate) fn subject(&self) -> &Value {
        &self.0
    }
}
