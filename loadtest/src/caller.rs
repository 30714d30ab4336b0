//! A caller: one connection, and requests over it.

use std::io;
use std::sync::Arc;

use ::tests::dial::{dial, secure, through as connected};
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::either::Either;

use crate::repeated_body::RepeatedBody;
use crate::route::{Destination, Http};

/// The receive windows of Go's HTTP/2 client, and so of kubectl and client-go.
/// <https://github.com/golang/net/blob/v0.47.0/http2/transport.go> (`transportDefaultStreamFlow`,
/// `transportDefaultConnFlow`)
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;

/// A connection to a destination. It is closed when all callers that share it are dropped.
#[derive(Debug)]
pub struct Caller {
    sender: HttpSender,
    authorization: Option<HeaderValue>,
    driver: Arc<Driver>,
}

#[derive(Debug)]
enum HttpSender {
    Http1(http1::SendRequest<RepeatedBody>),
    Http2(http2::SendRequest<RepeatedBody>),
}

/// The task that drives a connection. A drop aborts it, which closes the connection.
#[derive(Debug)]
struct Driver(AbortHandle);

/// The error if a request has no response, or an unexpected one.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The TCP connection or the TLS handshake failed.
    #[error("no connection to {0}")]
    Connect(std::net::SocketAddr, #[source] io::Error),
    /// The HTTP connection broke during a request.
    #[error("the HTTP connection broke")]
    Http(#[from] hyper::Error),
    /// The response has a status other than success.
    #[error("{uri} was answered with {status}: {body}")]
    Refused {
        /// The URI of the request.
        uri: Uri,
        /// The status of the response.
        status: StatusCode,
        /// The body of the response.
        body: String,
    },
    /// The response has more or fewer bytes than expected.
    #[error("{uri} has {got} bytes and not {expected}")]
    Size {
        /// The URI of the request.
        uri: Uri,
        /// The number of bytes that arrived.
        got: u64,
        /// The number of bytes that were expected.
        expected: u64,
    },
}

/// Connects with TLS that ends at the destination, also through a gateway in between.
async fn secured(
    destination: &Destination,
    protocol: &str,
) -> io::Result<impl AsyncRead + AsyncWrite + Unpin + Send + use<>> {
    let Destination { address, ca_pem, identity, http: _, via } = destination;
    let Some(via) = via else {
        return Ok(Either::Left(dial(*address, ca_pem, &[protocol], identity.as_ref()).await?));
    };
    let gateway = dial(via.gateway, &via.ca_pem, &["http/1.1"], Some(&via.identity)).await?;
    let lines = format!("Tombolo-Cluster: {}\r\n", via.cluster);
    let stream = connected(gateway, &address.to_string(), &lines).await?;
    let secured = secure(stream, &address.ip().to_string(), ca_pem, &[protocol], identity.as_ref()).await?;
    Ok(Either::Right(secured))
}

impl Caller {
    /// Connects with the HTTP version of the destination.
    ///
    /// # Errors
    /// Every variant of [`CallError`].
    pub async fn connect(destination: &Destination) -> Result<Self, CallError> {
        Self::connect_windowed(destination, STREAM_WINDOW_BYTES).await
    }

    /// Connects with this receive window for each HTTP/2 stream.
    ///
    /// # Errors
    /// Every variant of [`CallError`].
    pub async fn connect_windowed(
        destination: &Destination,
        stream_window_bytes: u32,
    ) -> Result<Self, CallError> {
        let protocol = match destination.http {
            Http::One => "http/1.1",
            Http::Two => "h2",
        };
        let stream = secured(destination, protocol)
            .await
            .map_err(|error| CallError::Connect(destination.address, error))?;
        let io = TokioIo::new(stream);
        // Errors of the connection reach its requests.
        let (sender, driver): (HttpSender, JoinHandle<()>) = match destination.http {
            Http::One => {
                let (sender, connection) = http1::handshake(io).await?;
                (HttpSender::Http1(sender), tokio::spawn(async move { drop(connection.await) }))
            }
            Http::Two => {
                let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                    .initial_stream_window_size(stream_window_bytes)
                    .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                    .handshake(io)
                    .await?;
                (HttpSender::Http2(sender), tokio::spawn(async move { drop(connection.await) }))
            }
        };
        Ok(Self { sender, authorization: None, driver: Arc::new(Driver(driver.abort_handle())) })
    }

    /// Adds this Authorization header to each request.
    #[must_use]
    pub fn with_authorization(self, authorization: HeaderValue) -> Self {
        Self { authorization: Some(authorization), ..self }
    }

    /// Another caller on the same connection, for concurrent requests. `None` on HTTP/1.1.
    pub fn share(&self) -> Option<Self> {
        match &self.sender {
            HttpSender::Http1(_) => None,
            HttpSender::Http2(sender) => Some(Self {
                sender: HttpSender::Http2(sender.clone()),
                authorization: self.authorization.clone(),
                driver: Arc::clone(&self.driver),
            }),
        }
    }

    /// Tells whether the connection has ended.
    pub fn is_over(&self) -> bool {
        self.driver.0.is_finished()
    }

    /// Sends a request, and returns a successful response with its body unread.
    ///
    /// # Errors
    /// [`CallError`], for any answer but 200, too.
    pub async fn ask(
        &mut self,
        method: Method,
        uri: &Uri,
        body: RepeatedBody,
    ) -> Result<Response<Incoming>, CallError> {
        let mut request = request(&self.sender, method, uri, body);
        request.headers_mut().extend(self.authorization.clone().map(|value| (AUTHORIZATION, value)));
        let response = match &mut self.sender {
            HttpSender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            HttpSender::Http2(sender) => sender.send_request(request).await?,
        };
        success(uri, response).await
    }

    /// Sends a GET, reads the response to its last byte, and returns the number of bytes.
    ///
    /// # Errors
    /// As [`Caller::ask`].
    pub async fn get(&mut self, uri: &Uri) -> Result<u64, CallError> {
        count(self.ask(Method::GET, uri, RepeatedBody::empty()).await?.into_body()).await
    }

    /// Sends a GET, and checks the number of bytes in the response.
    ///
    /// # Errors
    /// As [`Caller::ask`].
    pub async fn get_sized(&mut self, uri: &Uri, expected: u64) -> Result<(), CallError> {
        sized(uri, self.get(uri).await?, expected)
    }

    /// Sends this many bytes with a PUT, and checks that the target has counted as many.
    ///
    /// # Errors
    /// As [`Caller::ask`].
    pub async fn put_sized(&mut self, uri: &Uri, bytes: u64) -> Result<(), CallError> {
        let answer = self.ask(Method::PUT, uri, RepeatedBody::with_size(bytes)).await?;
        let body = answer.into_body().collect().await?.to_bytes();
        let got = std::str::from_utf8(&body).ok().and_then(|text| text.parse().ok()).unwrap_or_default();
        sized(uri, got, bytes)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Builds a request: with a path and a Host header for HTTP/1.1, with the complete URI for HTTP/2.
fn request(sender: &HttpSender, method: Method, uri: &Uri, body: RepeatedBody) -> Request<RepeatedBody> {
    let builder = Request::builder().method(method);
    let builder = match sender {
        HttpSender::Http1(_) => {
            let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
            builder.uri(path).header(http::header::HOST, uri.authority().map_or("", |host| host.as_str()))
        }
        HttpSender::Http2(_) => builder.uri(uri.clone()),
    };
    builder.body(body).expect("a URI that was parsed")
}

async fn success(uri: &Uri, response: Response<Incoming>) -> Result<Response<Incoming>, CallError> {
    if response.status() == StatusCode::OK || response.status() == StatusCode::CREATED {
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    let body: Bytes = body.collect().await?.to_bytes();
    let body = String::from_utf8_lossy(&body).into_owned();
    Err(CallError::Refused { uri: uri.clone(), status: head.status, body })
}

async fn count(mut body: Incoming) -> Result<u64, CallError> {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame?.data_ref().map_or(0, |data| data.len() as u64);
    }
    Ok(bytes)
}

fn sized(uri: &Uri, got: u64, expected: u64) -> Result<(), CallError> {
    if got == expected { Ok(()) } else { Err(CallError::Size { uri: uri.clone(), got, expected }) }
}
