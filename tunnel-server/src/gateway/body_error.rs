//! The reasons for which the body of an answer breaks off.

use crate::exchanges::TerminationReason;
use crate::metrics::WatchEnded;

/// The reason why the body of an answer breaks off.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    /// The stream that carries it broke.
    #[error(transparent)]
    Stream(#[from] hyper::Error),
    /// The tunnel of a watch was lost, and the watch was not resumed.
    #[error("a watch broke, and was not resumed: {}", .0.as_str())]
    NotResumed(WatchEnded),
    /// Its exchange was ended early.
    #[error(transparent)]
    Terminated(#[from] TerminationReason),
}
