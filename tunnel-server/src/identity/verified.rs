//! Proof that a verified certificate has the role that its listener is for.

use std::ops::Deref;

/// A certificate of the role `R`. Only [`agent_identity`](super::agent_identity) and
/// [`admin_identity`](super::admin_identity) make one, so that no unchecked certificate is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a verified certificate must be admitted, or refused with a reason"]
pub struct Verified<R>(R);

impl<R> Verified<R> {
    pub(super) fn role(certificate: R) -> Self {
        Self(certificate)
    }

    /// The contents of the certificate.
    pub fn into_inner(self) -> R {
        self.0
    }
}

impl<R> Deref for Verified<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.0
    }
}
