//! The `Status` (meta/v1) of a refusal, as it is written in JSON.

use std::borrow::Cow;

use proto::help::{BY_THE_GATEWAY, Reference};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::gateway::cluster_sets::ClusterCauses;

/// The `Status` of one refusal, with its fields in the order of an API server's. It is written without a tree
/// of values, because a flood of failed logins is answered one by one.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    kind: &'static str,
    api_version: &'static str,
    metadata: Nothing,
    status: &'static str,
    message: String,
    reason: &'static str,
    details: StatusDetails,
    code: u16,
}

#[derive(Debug, Serialize)]
struct Nothing {}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusDetails {
    causes: Vec<StatusCause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u64>,
}

#[derive(Debug, Serialize)]
struct StatusCause {
    reason: Cow<'static, str>,
    message: CauseMessage,
    /// The cluster of which the cause speaks, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
}

/// The maker of the answer, and the heading that explains the cause. kubectl shows a message of causes only with
/// the reason `Invalid`, which no refusal has, so its one line stays short.
#[derive(Debug)]
enum CauseMessage {
    OfGateway(&'static str),
    /// The sentence about one cluster.
    OfCluster(String),
}

impl Serialize for CauseMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::OfGateway(cause) => {
                serializer.collect_str(&format_args!("{BY_THE_GATEWAY}: see {}", Reference(cause)))
            }
            Self::OfCluster(message) => serializer.serialize_str(message),
        }
    }
}

impl Status {
    /// Makes a `Status` with Kubernetes' word for the code, and our own cause.
    pub(super) fn new(
        code: u16,
        reason: &'static str,
        cause: &'static str,
        message: String,
        retry_after_seconds: Option<u64>,
    ) -> Self {
        let own = StatusCause { reason: cause.into(), message: CauseMessage::OfGateway(cause), field: None };
        let causes = vec![own];
        Self {
            kind: "Status",
            api_version: "v1",
            metadata: Nothing {},
            status: "Failure",
            message,
            reason,
            details: StatusDetails { causes, retry_after_seconds },
            code,
        }
    }

    /// The same, and what is to be said of each of these clusters.
    pub(super) fn with_clusters(mut self, clusters: Option<&ClusterCauses>) -> Self {
        let named = clusters.into_iter().flat_map(ClusterCauses::iter);
        self.details.causes.extend(named.map(|(cluster, reason, message)| StatusCause {
            reason: reason.to_owned().into(),
            message: CauseMessage::OfCluster(message.to_owned()),
            field: Some(cluster.to_string()),
        }));
        self
    }

    pub(super) fn value(&self) -> Value {
        serde_json::to_value(self).expect("names are strings")
    }

    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).expect("names are strings")
    }
}
