//! A server's admin API, over its socket, for whichever of its services.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tonic::body::Body;
use tonic::codegen::Service;

/// One HTTP/2 connection to the socket, as gRPC's clients want it. Clones are the same connection.
#[derive(Debug, Clone)]
pub struct AdminWire(SendRequest<Body>);

impl AdminWire {
    /// Over another connection.
    #[must_use]
    pub fn over<C>((requests, connection): (SendRequest<Body>, C)) -> Self
    where
        C: Future + Send + 'static,
        C::Output: Send + 'static,
    {
        // It ends with the last clone.
        tokio::spawn(connection);
        Self(requests)
    }

    /// What gRPC wants to stand in front of a path; nobody looks at it.
    #[must_use]
    pub fn origin() -> Uri {
        Uri::from_static("http://admin")
    }

    /// Connects.
    ///
    /// # Errors
    /// What the system or HTTP/2 says.
    pub async fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket).await?;
        let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        shaken.map(Self::over).map_err(io::Error::other)
    }
}

impl Service<Request<Body>> for AdminWire {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
