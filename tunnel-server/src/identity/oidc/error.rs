//! The reason why a token of an OpenID Connect issuer is refused.

use super::claims::ClaimError;
use super::jwt::JwtError;

/// The reason why a token of this issuer is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OidcTokenError {
    /// It is not a well-formed token.
    #[error(transparent)]
    Malformed(#[from] JwtError),
    /// Its algorithm is not in the list.
    #[error("the token is signed by an algorithm that is not accepted from its issuer")]
    Algorithm,
    /// The issuer has no such key.
    #[error("the token names no key of its issuer")]
    UnknownKey,
    /// It was changed, or another key signed it.
    #[error("the token's signature does not hold")]
    Signature,
    /// A claim is missing or wrong.
    #[error(transparent)]
    Claims(#[from] ClaimError),
}
