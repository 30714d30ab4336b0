//! A client of the gateway: one request over a connection of its own, in either version of HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;

use crate::dial::dial_name;
use crate::fake_api::HttpVersion;
use crate::rig::{Rig, TOKEN};

/// The server name of the gateway.
const GATEWAY: &str = "gateway.test";

/// The addresses of the gateway, and the CA that a caller trusts.
#[derive(Debug, Clone)]
pub struct GatewayClient {
    /// The addresses, tried in turn until one accepts a connection, like those of a name with several
    /// addresses or of a load balancer.
    addresses: Vec<SocketAddr>,
    ca_pem: String,
}

/// An answer with its body still to come, and its connection.
#[derive(Debug)]
pub struct OpenResponse {
    /// The head, with the body still to be read.
    pub response: Response<Incoming>,
    _connection: Connection,
}

#[derive(Debug)]
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl GatewayClient {
    /// A client of a rig's gateway.
    pub fn of(rig: &Rig) -> Self {
        Self { addresses: vec![rig.gateway()], ca_pem: rig.server_ca() }
    }

    /// The same with another one behind it.
    #[must_use]
    pub fn or(mut self, next: Option<SocketAddr>) -> Self {
        self.addresses.extend(next);
        self
    }

    async fn dial(&self, alpn: &str) -> Result<TlsStream<TcpStream>, String> {
        let mut failed = String::new();
        for address in &self.addresses {
            match dial_name(*address, GATEWAY, &self.ca_pem, &[alpn], None).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = format!("no connection: {error}"),
            }
        }
        Err(failed)
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// # Errors
    /// What broke, in words.
    pub async fn send(
        &self,
        version: HttpVersion,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<OpenResponse, String> {
        let alpn = if version == HttpVersion::Http2 { "h2" } else { "http/1.1" };
        let io = TokioIo::new(self.dial(alpn).await?);
        let uri = match version {
            HttpVersion::Http1 => path.to_owned(),
            HttpVersion::Http2 => format!("https://{GATEWAY}{path}"),
        };
        let mut request = Request::builder().method(method).uri(uri);
        if version == HttpVersion::Http1 {
            request = request.header("host", GATEWAY);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.header("authorization", format!("Bearer {TOKEN}"));
        let request = request.body(Full::new(body.into())).map_err(describe_error)?;
        let (response, connection) = match version {
            HttpVersion::Http1 => {
                let (mut sender, connection) =
                    hyper::client::conn::http1::handshake(io).await.map_err(describe_error)?;
                let driver = tokio::spawn(async move { drop(connection.with_upgrades().await) });
                let connection = Connection(driver);
                (sender.send_request(request).await, connection)
            }
            HttpVersion::Http2 => {
                let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
                let (mut sender, connection) = builder.handshake(io).await.map_err(describe_error)?;
                let connection = Connection(tokio::spawn(async move { drop(connection.await) }));
                (sender.send_request(request).await, connection)
            }
        };
        Ok(OpenResponse { response: response.map_err(describe_error)?, _connection: connection })
    }
}

impl OpenResponse {
    /// The next piece of the body; `None` is its clean end.
    ///
    /// # Errors
    /// What broke, in words.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            match self.response.body_mut().frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(describe_error(error)),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data()
                        && !bytes.is_empty()
                    {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }

    /// Reads the body to its end, with at most `limit` between two pieces. `seen` gets each piece.
    pub async fn body(&mut self, mut seen: impl FnMut(&[u8])) -> Result<(), String> {
        while let Some(bytes) = self.piece().await? {
            seen(&bytes);
        }
        Ok(())
    }

    /// Reads a short body, such as a `Status`.
    pub async fn text(&mut self, limit: Duration) -> String {
        let mut text = Vec::new();
        // What did not come is as good as empty to those who look for words in it.
        let _ = tokio::time::timeout(limit, self.body(|bytes| text.extend_from_slice(bytes))).await;
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// An error with its causes.
pub fn describe_error(error: impl std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
