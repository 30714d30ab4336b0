//! The API server of the cluster beside us, asked what only it knows: by a CA of its own and a token that is read each time.

use std::path::PathBuf;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use serde_json::Value;
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;

use super::TOKEN_BYTES_MAX;
use super::fetch::{Fetch, FetchError};

/// Largest answer, in bytes: a user with a thousand groups.
pub const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Where the API server is, and with what we come.
pub struct HostApi {
    /// `https://HOST[:PORT]`.
    server: Uri,
    /// Replaced by whoever rotates it.
    token_file: PathBuf,
    fetch: Fetch,
}

/// Why the API server has not answered what was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    #[error("the token in {} cannot be read, or is none", .0.display())]
    Token(PathBuf),
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("the API server answered {0}")]
    Status(StatusCode),
    #[error("the API server's answer is not JSON, or not of the kind that was asked for")]
    Shape,
}

impl HostApi {
    /// The API server at `server`, over `tls`, with the token in this file.
    #[must_use]
    pub fn new(server: Uri, token_file: PathBuf, tls: rustls::ClientConfig) -> Self {
        Self { server, token_file, fetch: Fetch::new(tls, None) }
    }

    /// Posts an object, and returns the `status` of what comes back if that is of the same kind.
    pub(super) async fn post(&self, path: &str, object: &Value) -> Result<Value, NoAnswer> {
        let base = self.server.to_string();
        let uri: Uri =
            format!("{}{path}", base.trim_end_matches('/')).parse().map_err(|_| NoAnswer::Shape)?;
        let mut request = Request::new(Bytes::from(object.to_string()));
        (*request.method_mut(), *request.uri_mut()) = (Method::POST, uri);
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, self.bearer().await?);
        for name in [CONTENT_TYPE, ACCEPT] {
            headers.insert(name, HeaderValue::from_static("application/json"));
        }
        let answer = self.fetch.ask(request, ANSWER_BYTES_MAX).await?;
        if !answer.status().is_success() {
            return Err(NoAnswer::Status(answer.status()));
        }
        let mut answer: Value = serde_json::from_slice(answer.body()).map_err(|_| NoAnswer::Shape)?;
        if answer["kind"] != object["kind"] || answer["apiVersion"] != object["apiVersion"] {
            return Err(NoAnswer::Shape);
        }
        Ok(answer["status"].take())
    }

    async fn bearer(&self) -> Result<HeaderValue, NoAnswer> {
        let refused = || NoAnswer::Token(self.token_file.clone());
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
