//! The reasons for which a read of a cluster set has no answer.

use proto::ClusterId;

use super::outcome::Failure;

/// The reason why a read of a cluster set is refused as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterSetError {
    /// There is no set of this name.
    #[error(
        "there is no cluster set {0:?}: the operator of this server makes one in clusterSets, and `global` is always there"
    )]
    Unknown(String),
    /// The caller takes no form that this server can write.
    #[error("a cluster set is answered in JSON: add application/json to Accept")]
    NotAcceptable,
    /// The token is not of this read, or was altered.
    #[error("the continue token is not of this list: list anew, without it")]
    ContinueRefused,
    /// The token is of another process.
    #[error("the continue token is of another server, or of before its restart: list anew, without it")]
    ContinueExpired,
    /// No cluster of the set has answered.
    #[error("none of the {} clusters of the set has answered", .0.len())]
    NobodyAnswered(ClusterCauses),
    /// Not every cluster has answered, and the caller wants all.
    #[error("{} of the clusters of the set have not answered, and the request refuses a partial answer", .0.len())]
    Partial(ClusterCauses),
    /// Several clusters have an object of this name, and the caller takes no table.
    #[error("{} clusters of the set have an object of this name: ask one of them, or take a table", .0.len())]
    InSeveral(ClusterCauses),
    /// All clusters have answered that there is no such resource or object.
    #[error("no cluster of the set has it")]
    Absent,
}

/// Clusters with what is to be said of each.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ClusterCauses(Vec<(ClusterId, Failure)>);

impl ClusterCauses {
    pub(super) fn new(causes: Vec<(ClusterId, Failure)>) -> Self {
        Self(causes)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// The name of each cluster, the word for programs and the sentence for people.
    pub(in crate::gateway) fn iter(&self) -> impl Iterator<Item = (&ClusterId, &str, &str)> {
        self.0.iter().map(|(cluster, failure)| (cluster, &*failure.reason, &*failure.message))
    }
}

impl ClusterSetError {
    /// The clusters that `details.causes` names.
    pub(in crate::gateway) fn causes(&self) -> Option<&ClusterCauses> {
        match self {
            Self::NobodyAnswered(causes) | Self::Partial(causes) | Self::InSeveral(causes) => Some(causes),
            Self::Unknown(_)
            | Self::NotAcceptable
            | Self::ContinueRefused
            | Self::ContinueExpired
            | Self::Absent => None,
        }
    }
}
