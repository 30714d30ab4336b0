//! A caller as the cluster that reviewed its token knows it.

use serde_json::{Value, json};

/// Longest description of one user that a reviewer can give, in bytes of JSON.
pub const REVIEWED_BYTES_MAX: usize = 16 * 1024;

/// A user with the names of its own cluster, without our prefixes. It is used only in requests to that
/// cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reviewed(Value);

impl Reviewed {
    /// The user in a TokenReview's status; `None` if it is too long.
    pub(super) fn from_user(user: &Value) -> Option<Self> {
        let known = |name: &str| user.get(name).cloned().unwrap_or_default();
        // The names of the fields in a SubjectAccessReview.
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
