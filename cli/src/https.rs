//! Requests on an open HTTPS connection, each with the same credential.

use std::time::{Duration, SystemTime};

use daemon::Scope;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HOST};
use http::{HeaderValue, Method, Request};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

/// Longest wait for a response. The gateway waits for the agent, and the agent for its API server.
const RESPONSE_MAX: Duration = Duration::from_secs(20);

/// The form of an object that Kubernetes applies on the server's side. JSON is YAML.
const APPLY: &str = "application/apply-patch+yaml";

/// Longest response body that is read.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// An open connection for requests.
pub(crate) struct HttpsConnection {
    requests: SendRequest<Full<Bytes>>,
    host: String,
    token: Option<String>,
}

/// A request had no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// The connection stands, and nothing came back. So the server has accepted the connection's certificates.
    #[error("no answer within {} s", RESPONSE_MAX.as_secs())]
    NoAnswer,
    /// The connection broke, perhaps because the server does not accept the client's certificate.
    #[error("{0}")]
    Broke(String),
}

/// The parts of a response that the checks need.
pub(crate) struct HttpsResponse {
    pub(crate) status: u16,
    pub(crate) date: Option<SystemTime>,
    pub(crate) body: Vec<u8>,
}

impl HttpsConnection {
    /// Begins HTTP/1.1 on a stream whose TLS handshake is over. `host` is the server's name and port in requests.
    ///
    /// # Errors
    /// The stream broke.
    pub(crate) async fn over(
        stream: TlsStream<TcpStream>,
        host: String,
        token: Option<String>,
        scope: &Scope,
    ) -> Result<Self, hyper::Error> {
        let (requests, connection) = http1::handshake(TokioIo::new(stream)).await?;
        scope.spawn_background(async move {
            // The pending request gets the error.
            let _ = connection.await;
        });
        Ok(Self { requests, host, token })
    }

    /// Sends one request with the credential. The body is JSON; a PATCH applies it.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<HttpsResponse, SendError> {
        let exchange = async {
            let form = if method == Method::PATCH { APPLY } else { "application/json" };
            let mut request = Request::builder().method(method).uri(path);
            request = request.header(HOST, &self.host).header(ACCEPT, "application/json");
            if let Some(token) = &self.token {
                let mut value =
                    HeaderValue::try_from(format!("Bearer {token}")).map_err(|error| error.to_string())?;
                value.set_sensitive(true);
                request = request.header(AUTHORIZATION, value);
            }
            if body.is_some() {
                request = request.header(CONTENT_TYPE, form);
            }
            let request =
                request.body(Full::from(body.unwrap_or_default())).map_err(|error| error.to_string())?;
            self.requests.ready().await.map_err(|error| chained(&error))?;
            let response = self.requests.send_request(request).await.map_err(|error| chained(&error))?;
            let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
            let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
            let body = body.map_err(|error| error.to_string())?.to_bytes().to_vec();
            Ok(HttpsResponse { status, date, body })
        };
        match timeout(RESPONSE_MAX, exchange).await {
            Ok(result) => result.map_err(SendError::Broke),
            Err(_) => Err(SendError::NoAnswer),
        }
    }
}

fn chained(error: &hyper::Error) -> String {
    daemon::error_chain(error).to_string()
}
