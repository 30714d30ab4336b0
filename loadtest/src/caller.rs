//! One caller: a connection that is kept, and requests over it.

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

/// What Go's HTTP/2 client grants a server, and so kubectl and client-go.
/// <https://github.com/golang/net/blob/v0.47.0/http2/transport.go> (`transportDefaultStreamFlow`,
/// `transportDefaultConnFlow`)
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;

/// A connection to a destination; it is closed when this and all that share it are dropped.
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

/// The task that moves a connection's bytes; the connection is closed with it.
#[derive(Debug)]
struct Driver(AbortHandle);

/// The error if a request has no answer, or not the one that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// TCP or TLS.
    #[error("no connection to {0}")]
    Connect(std::net::SocketAddr, #[source] io::Error),
    /// HTTP.
    #[error("the HTTP connection broke")]
    Http(#[from] hyper::Error),
    /// An answer, but no success.
    #[error("{uri} was answered with {status}: {body}")]
    Refused {
        /// What was asked for.
        uri: Uri,
        /// The status.
        status: StatusCode,
        /// The answer's body.
        body: String,
    },
    /// More or fewer bytes than the answer should have.
    #[error("{uri} has {got} bytes and not {expected}")]
    Size {
        /// What was asked for.
        uri: Uri,
        /// How many came.
        got: u64,
        /// How many there are.
        expected: u64,
    },
}

/// TLS that ends at the destination, whoever is between.
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
    /// Connects by the version of HTTP that the destination names.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn connect(destination: &Destination) -> Result<Self, CallError> {
        Self::connect_windowed(destination, STREAM_WINDOW_BYTES).await
    }

    /// The same, where so much may come unread on each stream of HTTP/2.
    ///
    /// # Errors
    /// [`CallError`].
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
        // How a connection ends, its requests tell.
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

    /// The same with these credentials in each request.
    #[must_use]
    pub fn with_authorization(self, authorization: HeaderValue) -> Self {
        Self { authorization: Some(authorization), ..self }
    }

    /// Another caller on the same connection, for requests at the same time; `None` on HTTP/1.1.
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

    /// Asks, and returns the head of a success with its body unread.
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

    /// Asks, reads the answer to its last byte, and returns how many there were.
    ///
    /// # Errors
    /// As [`Caller::ask`].
    pub async fn get(&mut self, uri: &Uri) -> Result<u64, CallError> {
        count(self.ask(Method::GET, uri, RepeatedBody::empty()).await?.into_body()).await
    }

    /// The same, where the number of bytes is known.
    ///
    /// # Errors
    /// As [`Caller::ask`].
    pub async fn get_sized(&mut self, uri: &Uri, expected: u64) -> Result<(), CallError> {
        sized(uri, self.get(uri).await?, expected)
    }

    /// Sends so many bytes, and checks that the answer says that as many came.
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

/// HTTP/1.1 asks for a path of a host, HTTP/2 for a whole URI.
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
