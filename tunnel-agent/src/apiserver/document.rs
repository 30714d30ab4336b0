//! Requests one JSON document from the API server by its path, and reads it completely.

use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use tokio::time::timeout;

use super::client::ApiServer;
use super::error::ApiServerError;

/// Longest wait for one complete document.
const DOCUMENT_MAX: Duration = Duration::from_secs(10);

/// Accepted types: JSON, and JSON Web Key Sets (RFC 7517, section 8.5.2), as which API servers send an
/// issuer's keys.
const ACCEPTED: &str = "application/json, application/jwk-set+json";

/// The document could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The path is not valid.
    #[error("the path of the document is not valid")]
    Path,
    /// The API server gave no answer.
    #[error("the API server could not be asked")]
    ApiServer(#[source] ApiServerError),
    /// The API server refused with this status.
    #[error("the API server answered {0}")]
    Status(StatusCode),
    /// The answer took too long.
    #[error("the API server's answer took more than {} s", DOCUMENT_MAX.as_secs())]
    TooSlow,
    /// The answer is too large.
    #[error("the API server's answer is larger than {0} bytes")]
    TooLarge(usize),
}

impl ApiServer {
    /// The JSON document at this path with its query, of at most `bytes_max` bytes.
    ///
    /// # Errors
    ///
    /// [`DocumentError`] names the cause.
    pub async fn document(&self, target: &str, bytes_max: usize) -> Result<Bytes, DocumentError> {
        timeout(DOCUMENT_MAX, self.fetch(target, bytes_max)).await.map_err(|_| DocumentError::TooSlow)?
    }

    async fn fetch(&self, target: &str, bytes_max: usize) -> Result<Bytes, DocumentError> {
        let uri: Uri = target.parse().map_err(|_| DocumentError::Path)?;
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = uri;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(ACCEPTED));
        let response = self.send(request).await.map_err(DocumentError::ApiServer)?;
        if response.status() != StatusCode::OK {
            return Err(DocumentError::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), bytes_max).collect().await;
        let body = body.map_err(|error| match error.downcast::<ApiServerError>() {
            Ok(error) => DocumentError::ApiServer(*error),
            Err(other) => {
                debug_assert!(other.is::<LengthLimitError>());
                DocumentError::TooLarge(bytes_max)
            }
        })?;
        Ok(body.to_bytes())
    }
}
