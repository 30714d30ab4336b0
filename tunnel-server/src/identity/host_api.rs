//! A client of the host cluster's API server, with a CA of its own and a token that is read for each request.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use serde_json::Value;
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;

use super::TOKEN_BYTES_MAX;
use super::https::{HttpsClient, HttpsError};

/// Largest answer, in bytes: a user with a thousand groups.
pub const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// The media type of requests and answers.
pub(crate) const JSON: &str = "application/json";

/// The host cluster's API server and our credential for it.
pub struct HostApi {
    /// Its URL, which is `https://HOST[:PORT]`.
    server: Uri,
    /// The file of the token, which another process rotates.
    token_file: PathBuf,
    fetch: HttpsClient,
}

/// The reason why the API server gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostApiError {
    #[error("the token in {} cannot be read, or is none", .0.display())]
    Token(PathBuf),
    #[error(transparent)]
    HttpsClient(#[from] HttpsError),
    #[error("the API server answered {0}")]
    Status(StatusCode),
    #[error("the API server's answer is not JSON, or not of the kind that was asked for")]
    Shape,
}

impl HostApi {
    /// The API server at `server`, over the newest value of `tls`, with the token in this file.
    #[must_use]
    pub fn new(server: Uri, token_file: PathBuf, tls: watch::Receiver<Arc<rustls::ClientConfig>>) -> Self {
        Self { server, token_file, fetch: HttpsClient::new(tls, None) }
    }

    /// Posts an object, and returns the `status` of the answer if it has the same kind.
    pub(super) async fn post(&self, path: &str, object: &Value) -> Result<Value, HostApiError> {
        let (status, mut answer) =
            self.exchange(Method::POST, path, Some((JSON, object)), ANSWER_BYTES_MAX).await?;
        if !status.is_success() {
            return Err(HostApiError::Status(status));
        }
        if answer["kind"] != object["kind"] || answer["apiVersion"] != object["apiVersion"] {
            return Err(HostApiError::Shape);
        }
        Ok(answer["status"].take())
    }

    /// Sends a request, with an object in some media type, and returns status and answer. The answer is null
    /// if an error is no JSON.
    pub(crate) async fn exchange(
        &self,
        method: Method,
        path: &str,
        object: Option<(&'static str, &Value)>,
        bytes_max: usize,
    ) -> Result<(StatusCode, Value), HostApiError> {
        let base = self.server.to_string();
        let uri: Uri =
            format!("{}{path}", base.trim_end_matches('/')).parse().map_err(|_| HostApiError::Shape)?;
        let body = object.map(|(_, object)| Bytes::from(object.to_string()));
        let mut request = Request::new(body.unwrap_or_default());
        (*request.method_mut(), *request.uri_mut()) = (method, uri);
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, self.bearer().await?);
        headers.insert(ACCEPT, HeaderValue::from_static(JSON));
        if let Some((form, _)) = object {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(form));
        }
        let answer = self.fetch.send(request, bytes_max).await?;
        match serde_json::from_slice(answer.body()) {
            Ok(body) => Ok((answer.status(), body)),
            Err(_) if !answer.status().is_success() => Ok((answer.status(), Value::Null)),
            Err(_) => Err(HostApiError::Shape),
        }
    }

    async fn bearer(&self) -> Result<HeaderValue, HostApiError> {
        let refused = || HostApiError::Token(self.token_file.clone());
        let mut token = Vec::new();
        let file = File::open(&self.token_file).await.map_err(|_| refused())?;
        file.take(TOKEN_BYTES_MAX as u64 + 1).read_to_end(&mut token).await.map_err(|_| refused())?;
        let token = token.trim_ascii();
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !token.iter().all(u8::is_ascii_graphic) {
            return Err(refused());
        }
        let mut value = HeaderValue::from_bytes(&[b"Bearer ", token].concat()).map_err(|_| refused())?;
        value.set_sensitive(true);
        Ok(value)
    }
}

#[cfg(test)]
mod tests;
