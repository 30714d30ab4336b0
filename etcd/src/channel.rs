//! One HTTP/2 connection to a member.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use daemon::Scope;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tonic::codegen::Service;

use crate::endpoint::Endpoint;
use crate::error::TryError;

/// The time between two pings, and the longest wait for an answer: a watch on a dead connection would be silent.
const PING_EVERY: Duration = Duration::from_secs(2);
const PONG_MAX: Duration = Duration::from_secs(2);

/// A connection, on which requests run beside each other. Clones share it.
#[derive(Clone)]
pub(crate) struct Channel {
    requests: SendRequest<Body>,
    /// The scheme and the authority of every request, as HTTP/2 demands them (RFC 9113, section 8.3.1).
    origin: Uri,
}

impl Channel {
    /// Connects to a member. The driver of the connection is a background task of `scope`.
    pub(crate) async fn open(
        endpoint: &Endpoint,
        tls: Option<&Arc<ClientConfig>>,
        scope: &Scope,
    ) -> Result<Self, TryError> {
        let tcp = TcpStream::connect((endpoint.host(), endpoint.port())).await.map_err(TryError::Connect)?;
        tcp.set_nodelay(true).map_err(TryError::Connect)?;
        let origin = endpoint.origin();
        match (endpoint.tls_name(), tls) {
            (Some(name), Some(config)) => {
                let stream = TlsConnector::from(Arc::clone(config)).connect(name.clone(), tcp).await;
                Self::over(stream.map_err(TryError::Tls)?, origin, scope).await
            }
            (None | Some(_), _) => Self::over(tcp, origin, scope).await,
        }
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        origin: Uri,
        scope: &Scope,
    ) -> Result<Self, TryError> {
        // A watch never ends by itself, and no drain waits for it.
        let mut builder = http2::Builder::new(scope.background());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PONG_MAX)
            .keep_alive_while_idle(true);
        let (requests, driver) = builder.handshake(TokioIo::new(stream)).await.map_err(TryError::Http)?;
        scope.spawn_background(async move {
            // A request that waits gets the error.
            let _ = driver.await;
        });
        Ok(Self { requests, origin })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.requests.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let mut parts = self.origin.clone().into_parts();
        parts.path_and_query = request.uri().path_and_query().cloned();
        if let Ok(absolute) = Uri::from_parts(parts) {
            *request.uri_mut() = absolute;
        }
        Box::pin(self.requests.send_request(request))
    }
}
