//! The answer to a read of a cluster set, with the headers that say who did not answer.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, WARNING};
use http::{HeaderValue, Response};

use super::CLUSTERS_HEADER;
use super::accepted::Accepted;
use super::error::ClusterSetError;
use super::report::Report;
use crate::gateway::body::AnswerBody;

/// An answer before it is sent.
#[derive(Debug)]
pub(super) struct SetAnswer {
    body: Bytes,
    content_type: HeaderValue,
    report: Report,
}

impl SetAnswer {
    pub(super) fn json(body: impl Into<Bytes>, accepted: Accepted, report: Report) -> Self {
        Self { body: body.into(), content_type: HeaderValue::from_static(accepted.as_str()), report }
    }

    /// A document of one cluster, as it came.
    pub(super) fn document(body: Bytes, content_type: Option<HeaderValue>, report: Report) -> Self {
        let json = || HeaderValue::from_static(Accepted::Json.as_str());
        Self { body, content_type: content_type.unwrap_or_else(json), report }
    }

    #[cfg(test)]
    pub(super) fn body(&self) -> Bytes {
        self.body.clone()
    }

    /// The answer as it is sent. A caller that `wants_all` takes no partial one.
    ///
    /// # Errors
    /// [`ClusterSetError::Partial`]
    pub(super) fn response(self, wants_all: bool) -> Result<Response<AnswerBody>, ClusterSetError> {
        if wants_all && self.report.failed() > 0 {
            return Err(self.report.partial());
        }
        let mut response = Response::new(AnswerBody::text(self.body));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, self.content_type);
        if let Ok(counts) = HeaderValue::try_from(self.report.counts()) {
            headers.insert(CLUSTERS_HEADER, counts);
        }
        for warning in self.report.warnings() {
            if let Ok(warning) = HeaderValue::try_from(warning) {
                headers.append(WARNING, warning);
            }
        }
        Ok(response)
    }
}
