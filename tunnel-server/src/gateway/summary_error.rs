//! The reasons why the answer of an agent is no summary.

use proto::ClusterId;
use summary::{AnswerFault, EdgeFailure, SumOverflow};

/// The reason why there is no summary although an agent has answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SummaryError {
    /// The answer is not that of an agent that reduces.
    #[error(
        "the agent of cluster {0} was asked for a summary and answered something else: upgrade all agents of that cluster"
    )]
    NotReducing(ClusterId),
    /// The answer is garbled, or larger than it may be.
    #[error("the agent of cluster {0} answered no summary: {1}")]
    NotASummary(ClusterId, AnswerFault),
    /// The answer broke off before its end.
    #[error("the answer of cluster {0} broke off")]
    BrokenOff(ClusterId),
    /// The agent could not reduce the answers of its API server.
    #[error("cluster {0} has no summary: {message}", message = .1.message)]
    NotReduced(ClusterId, EdgeFailure),
    /// The summaries of clusters cannot be merged.
    #[error("the summaries of the clusters cannot be merged: {0}")]
    Sum(#[from] SumOverflow),
}

impl SummaryError {
    /// The word of the failure for programs, in the report on a cluster set.
    pub(super) fn reason(&self) -> &str {
        match self {
            Self::NotReducing(_) | Self::NotASummary(..) => "NotASummary",
            Self::BrokenOff(_) => "ClusterLost",
            Self::NotReduced(_, failure) => &failure.reason,
            Self::Sum(_) => "NotReduced",
        }
    }
}
