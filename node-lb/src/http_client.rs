//! One HTTP/1.1 connection to an API server, over TLS that verifies its certificate.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::Scope;
use http::header::{ACCEPT, AUTHORIZATION, HOST};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio_rustls::TlsConnector;

use crate::tls::Identity;

/// A connection on which one request runs at a time.
pub(crate) struct HttpClient {
    sender: SendRequest<Empty<Bytes>>,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    identity: Arc<Identity>,
    /// The socket once more, for its round trip.
    socket: OwnedFd,
}

/// A connection could not be made, or a request on it failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// The address was not connected.
    #[error("the dial failed")]
    Dial(#[source] io::Error),
    /// The connection broke before TLS was established.
    #[error("the connection broke in the TLS handshake")]
    Connection(#[source] io::Error),
    /// The certificate was refused, or the other side speaks no TLS.
    #[error("the certificate is not one of the cluster's API servers")]
    Untrusted(#[source] rustls::Error),
    /// The exchange failed before its end.
    #[error("the request failed")]
    Http(#[source] hyper::Error),
    /// The answer is larger than allowed.
    #[error("the answer is too large or broke off")]
    TooLarge,
}

impl HttpClient {
    /// Connects to an API server, and verifies its certificate. The caller limits the time.
    ///
    /// # Errors
    /// [`HttpError`] for the step that failed.
    pub(crate) async fn connect(
        address: impl ToSocketAddrs,
        identity: &Arc<Identity>,
        scope: &Scope,
    ) -> Result<Self, HttpError> {
        let stream = TcpStream::connect(address).await.map_err(HttpError::Dial)?;
        let socket = stream.as_fd().try_clone_to_owned().map_err(HttpError::Dial)?;
        // Requests are small and sent at once.
        let _ = stream.set_nodelay(true);
        let connector = TlsConnector::from(Arc::clone(&identity.config));
        let tls = connector.connect(identity.server_name.clone(), stream).await.map_err(handshake_error)?;
        let (sender, connection) = handshake(TokioIo::new(tls)).await.map_err(HttpError::Http)?;
        scope.spawn_background(async move {
            // The request has the error, too.
            let _ = connection.await;
        });
        let (host, identity) = (host(&identity.server_name), Arc::clone(identity));
        Ok(Self { sender, host, authorization: None, identity, socket })
    }

    /// Sends this header with each request.
    #[must_use]
    pub(crate) fn with_authorization(self, value: HeaderValue) -> Self {
        Self { authorization: Some(value), ..self }
    }

    /// Returns true if the connection was made with this credential and trust.
    #[must_use]
    pub(crate) fn is_made_with(&self, identity: &Arc<Identity>) -> bool {
        Arc::ptr_eq(&self.identity, identity)
    }

    /// The shortest round trip of the connection, in which no process has a part. `None` if the kernel has no
    /// figure.
    #[must_use]
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        sys::tcp_min_rtt(&self.socket).ok().flatten()
    }

    /// The status and the body of the answer to a GET. Cancelled, the connection is of no more use.
    ///
    /// # Errors
    /// [`HttpError`] if there is no complete answer within `bytes_max`.
    pub(crate) async fn get(
        &mut self,
        path: &str,
        bytes_max: usize,
    ) -> Result<(StatusCode, Bytes), HttpError> {
        let response = self.request(path).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), bytes_max).collect().await;
        Ok((status, body.map_err(|_| HttpError::TooLarge)?.to_bytes()))
    }

    /// Waits for the first bytes of the answer to a GET that lasts, such as a watch. Returns its status, and
    /// whether there were any before its end.
    ///
    /// # Errors
    /// [`HttpError`] if the connection breaks.
    pub(crate) async fn first_bytes(&mut self, path: &str) -> Result<(StatusCode, bool), HttpError> {
        let response = self.request(path).await?;
        let status = response.status();
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            if frame.map_err(HttpError::Http)?.data_ref().is_some_and(|data| !data.is_empty()) {
                return Ok((status, true));
            }
        }
        Ok((status, false))
    }

    async fn request(&mut self, path: &str) -> Result<Response<Incoming>, HttpError> {
        let mut request = Request::new(Empty::new());
        // Paths are our own constants, with encoded values or labels.
        *request.uri_mut() = path.parse().unwrap_or_default();
        request.headers_mut().insert(HOST, self.host.clone());
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(value) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        self.sender.ready().await.map_err(HttpError::Http)?;
        self.sender.send_request(request).await.map_err(HttpError::Http)
    }
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpClient").field("host", &self.host).finish_non_exhaustive()
    }
}

fn handshake_error(error: io::Error) -> HttpError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(tls) => HttpError::Untrusted(tls.clone()),
        None => HttpError::Connection(error),
    }
}

fn host(name: &ServerName<'_>) -> HeaderValue {
    let host = name.to_str();
    let host = if host.contains(':') { format!("[{host}]") } else { host.into_owned() };
    HeaderValue::from_str(&host).unwrap_or(HeaderValue::from_static("localhost"))
}
