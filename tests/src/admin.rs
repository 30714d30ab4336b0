//! A client of a server's admin API, over its socket or by TLS, for any of its services.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::{Code, Status};

use crate::dial::dial;
use crate::pki::Issued;
use crate::rig::free_port;

/// A message without a field, as gRPC frames it: not compressed, and of no length.
const EMPTY: &[u8] = &[0; 5];

/// One HTTP/2 connection to the socket, as gRPC's clients want it. Clones are the same connection.
#[derive(Debug, Clone)]
pub struct AdminWire(SendRequest<Body>);

impl AdminWire {
    /// Begins HTTP/2 on a stream that has carried nothing yet, a TLS handshake aside.
    ///
    /// # Errors
    /// An error of HTTP/2.
    pub async fn greet(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> io::Result<Self> {
        let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (requests, connection): (SendRequest<Body>, _) = shaken.map_err(io::Error::other)?;
        // It ends with the last clone.
        tokio::spawn(connection);
        Ok(Self(requests))
    }

    /// The origin that gRPC puts in front of a path. The server ignores it.
    #[must_use]
    pub fn origin() -> Uri {
        Uri::from_static("http://admin")
    }

    /// Connects to the admin socket.
    ///
    /// # Errors
    /// An error of the system or of HTTP/2.
    pub async fn connect(socket: &Path) -> io::Result<Self> {
        Self::greet(UnixStream::connect(socket).await?).await
    }
}

/// A free address for the admin API's TCP listener, and the configuration of a server that answers there, and
/// at a rig's socket, these names with these roles.
pub fn remote_admin_listener(roles: &[(&str, &str)]) -> (SocketAddr, String) {
    let address = free_port();
    let roles: String =
        roles.iter().map(|(name, role)| format!("{{ name: {name}, role: {role} }}, ")).collect();
    let tcp = format!("{{ listen: \"{address}\", adminCAFile: pki/admin-ca.crt, roles: [{roles}] }}");
    (address, format!("admin: {{ socket: admin/admin.sock, tcp: {tcp} }}\n"))
}

impl AdminWire {
    /// Connects over TCP and TLS like another machine, and offers HTTP/2.
    ///
    /// # Errors
    /// An error of the system, of TLS or of HTTP/2. A refused client certificate is an error of the first
    /// request.
    pub async fn dial(address: SocketAddr, ca_pem: &str, identity: Option<&Issued>) -> io::Result<Self> {
        Self::greet(dial(address, ca_pem, &["h2"], identity).await?).await
    }

    /// Calls the method at this path with an empty message, and returns its status as soon as that is known.
    /// An answer that has begun is OK.
    ///
    /// # Errors
    /// If the connection ends before that.
    pub async fn ask(&mut self, path: &str) -> Result<Code, hyper::Error> {
        let request = Request::post(format!("http://admin{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Body::new(Full::new(Bytes::from_static(EMPTY))))
            .expect("a request");
        let answer = self.0.send_request(request).await?;
        Ok(Status::from_header_map(answer.headers()).map_or(Code::Ok, |status| status.code()))
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
