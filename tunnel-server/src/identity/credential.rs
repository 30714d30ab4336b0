//! The credential by which a caller authenticated: its ID and its validity.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::SystemTime;

use trust::user_token::TokenDigest;

/// One certificate or one token. It contains no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Its ID within its method. A certificate has its serial number in hexadecimal, as `tombolo ca show`
    /// prints it. A token has a digest of it, or the ID that its issuer gave it. Two methods can have the
    /// same ID.
    pub id: Arc<str>,
    /// The first moment at which it was valid, if known.
    pub issued: Option<SystemTime>,
    /// The first moment at which it is no longer valid; `None` if it has no end.
    pub expires: Option<SystemTime>,
}

/// A token that is kept while requests run, so that it can be reviewed again. Its `Debug` shows nothing of
/// it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct RetainedToken(Arc<str>);

impl RetainedToken {
    pub(super) fn new(token: &str) -> Self {
        Self(token.into())
    }

    pub(super) fn token(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RetainedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RetainedToken")
    }
}

/// Bytes of a digest that name a token in logs and revocations.
pub(super) const ID_BYTES: usize = 8;

/// The ID of a token: the start of a digest of its digest, so that logs do not help to find the token.
pub(super) fn token_id(digest: &TokenDigest) -> Arc<str> {
    hex(&digest.digest()[..ID_BYTES])
}

/// The bytes in lower-case hexadecimal.
fn hex(bytes: &[u8]) -> Arc<str> {
    let mut digits = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits.into()
}
