//! A document of the API server's, asked for by its path and read whole.

use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use tokio::time::timeout;

use super::{ApiServer, ApiServerError};

/// Longest wait for one whole document.
const DOCUMENT_MAX: Duration = Duration::from_secs(10);

/// JSON; an issuer's keys are of a type of their own (RFC 7517, section 8.5.2), and API servers give no other.
const ACCEPTED: &str = "application/json, application/jwk-set+json";

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// Nothing that could be asked for.
    #[error("what was to be asked for is no path")]
    Path,
    /// The API server.
    #[error("the API server could not be asked")]
    ApiServer(#[source] ApiServerError),
    /// It refuses.
    #[error("the API server answered {0}")]
    Status(StatusCode),
    /// Too slow.
    #[error("the API server's answer took more than {} s", DOCUMENT_MAX.as_secs())]
    TooSlow,
    /// Too large.
    #[error("the API server's answer is larger than {0} bytes")]
    TooLarge(usize),
}

impl ApiServer {
    /// The document at this path with its query, in JSON, of at most so many bytes.
    ///
    /// # Errors
    ///
    /// [`DocumentError`].
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
        let whole = Limited::new(response.into_body(), bytes_max).collect().await;
        let whole = whole.map_err(|error| match error.downcast::<ApiServerError>() {
            Ok(error) => DocumentError::ApiServer(*error),
            Err(other) => {
                debug_assert!(other.is::<LengthLimitError>());
                DocumentError::TooLarge(bytes_max)
            }
        })?;
        Ok(whole.to_bytes())
    }
}
