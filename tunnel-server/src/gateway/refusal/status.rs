//! The `Status` (meta/v1) of a refusal, as it is written in JSON.

use proto::help::{BY_THE_GATEWAY, Reference};
use serde::{Serialize, Serializer};
use serde_json::Value;

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
    causes: [StatusCause; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u64>,
}

#[derive(Debug, Serialize)]
struct StatusCause {
    reason: &'static str,
    message: CauseMessage,
}

/// The maker of the answer, and the heading that explains the cause. kubectl shows a message of causes only with
/// the reason `Invalid`, which no refusal has, so its one line stays short.
#[derive(Debug)]
struct CauseMessage(&'static str);

impl Serialize for CauseMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{BY_THE_GATEWAY}: see {}", Reference(self.0)))
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
        let causes = [StatusCause { reason: cause, message: CauseMessage(cause) }];
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

    pub(super) fn value(&self) -> Value {
        serde_json::to_value(self).expect("names are strings")
    }

    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).expect("names are strings")
    }
}
