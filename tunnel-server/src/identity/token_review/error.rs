//! Why a token is refused although its reviewer could be asked.

use crate::identity::name::NameError;
use crate::identity::reviewed::REVIEWED_BYTES_MAX;

/// Why a token is not taken although its reviewer could be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenReviewError {
    /// The reviewer does not know it.
    #[error("the token is not known here")]
    Unknown,
    /// For somebody else.
    #[error("the token is not meant for this server")]
    Audience,
    /// A user or a group that cannot be.
    #[error(transparent)]
    Name(#[from] NameError),
    /// More than [`REVIEWED_BYTES_MAX`].
    #[error("the cluster that knows the token says more than {max} bytes of its bearer", max = REVIEWED_BYTES_MAX)]
    TooLarge,
    /// Its time has passed since.
    #[error("the token has expired")]
    Expired,
}
