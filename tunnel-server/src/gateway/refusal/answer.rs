//! The answer to a refused request: a `Status` in JSON, protobuf or CBOR.

use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::Value;

use super::encode;
use super::facts::RetryAfter;
use super::reasons::Refusal;
use super::status::Status;
use crate::gateway::cluster_sets::ClusterCauses;

impl Refusal {
    /// The `kind` of the answer's object.
    pub const KIND: &str = "Status";

    /// The status of the answer.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.facts().status
    }

    /// The word for programs, in `details.causes` and in metrics.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        self.facts().cause
    }

    /// The `Status` (meta/v1) in JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        self.object().value()
    }

    /// The `Status` in protobuf, as the body of an answer has it.
    #[must_use]
    pub fn protobuf(&self) -> Vec<u8> {
        encode::protobuf(&self.json())
    }

    /// The `Status` in CBOR, as the body of an answer has it.
    #[must_use]
    pub fn cbor(&self) -> Vec<u8> {
        encode::cbor(&self.json())
    }

    /// The answer, in JSON. Every client decodes it by its content type.
    #[must_use]
    pub fn response(&self) -> Response<String> {
        let facts = self.facts();
        let mut response = Response::new(self.object().text());
        *response.status_mut() = facts.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(RetryAfter::Header(after)) = facts.retry {
            headers.insert(RETRY_AFTER, after.as_secs().into());
        }
        if facts.closes_connection {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// The clusters that the `Status` names one by one.
    fn clusters(&self) -> Option<&ClusterCauses> {
        if let Self::ClusterSet(error) = self { error.causes() } else { None }
    }

    fn object(&self) -> Status {
        let facts = self.facts();
        let message = match facts.advice {
            Some(advice) => format!("{self}: {advice}"),
            None => self.to_string(),
        };
        let after = facts.retry.map(|(RetryAfter::Header(after) | RetryAfter::DetailsOnly(after))| after);
        Status::new(
            facts.status.as_u16(),
            facts.reason(),
            facts.cause,
            message,
            after.map(|after| after.as_secs()),
        )
        .with_clusters(self.clusters())
    }
}
