//! The reason why a token is refused although its reviewer could be asked.

use crate::identity::name::NameError;
use crate::identity::reviewed::REVIEWED_BYTES_MAX;

/// The reason why a token is refused although its reviewer was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenReviewError {
    /// The reviewer does not know it.
    #[error("the token is not known here")]
    Unknown,
    /// It is for another audience.
    #[error("the token is not meant for this server")]
    Audience,
    /// A user or group name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The description of its user is longer than [`REVIEWED_BYTES_MAX`].
    #[error("the cluster that knows the token says more than {max} bytes of its bearer", max = REVIEWED_BYTES_MAX)]
    TooLarge,
    /// It has expired since the review.
    #[error("the token has expired")]
    Expired,
}
