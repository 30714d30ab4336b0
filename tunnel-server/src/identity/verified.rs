//! Proof that a certificate, verified against its door's CA, is of the role that the door is for.

use std::ops::Deref;

/// A certificate of the role `R`. Only [`agent_identity`](super::agent_identity) and
/// [`admin_identity`](super::admin_identity) make one, so that what was not looked at opens no door.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "whoever was verified is to be let in, or told why not"]
pub struct Verified<R>(R);

impl<R> Verified<R> {
    pub(super) fn role(certificate: R) -> Self {
        Self(certificate)
    }

    /// What the certificate says.
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
