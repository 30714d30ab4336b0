//! Why a token of an OpenID Connect issuer is refused.

use super::claims::ClaimError;
use super::jwt::JwtError;

/// Why a token that names this issuer is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OidcTokenError {
    /// It is no token that could be.
    #[error(transparent)]
    Malformed(#[from] JwtError),
    /// Not by an algorithm of the list.
    #[error("the token is signed by an algorithm that is not accepted from its issuer")]
    Algorithm,
    /// The issuer has no such key.
    #[error("the token names no key of its issuer")]
    UnknownKey,
    /// Changed, or never signed by the issuer.
    #[error("the token's signature does not hold")]
    Signature,
    /// What it says does not do.
    #[error(transparent)]
    Claims(#[from] ClaimError),
}
