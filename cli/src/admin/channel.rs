//! One HTTP/2 connection to an admin API: over the Unix socket of this machine, or over TLS with an administrator's certificate.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use daemon::Scope;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tonic::codegen::Service;

use super::AdminError;
use crate::args::{AdminEndpoint, RemoteAdmin};
use crate::pem;
use crate::tls::{self, ALPN_H2, TLS13_ONLY};

/// An HTTP/2 connection that tonic sends its requests over. Clones share it.
#[derive(Clone)]
pub(crate) struct Channel(SendRequest<Body>);

impl Channel {
    /// Connects, with TLS for a remote endpoint, and spawns the connection's driver in `scope`.
    pub(super) async fn connect(endpoint: &AdminEndpoint, scope: &Scope) -> Result<Self, AdminError> {
        match endpoint {
            AdminEndpoint::Socket(path) => {
                let stream = UnixStream::connect(path).await;
                Self::over_stream(stream.map_err(|error| socket_error(path, error))?, endpoint, scope).await
            }
            AdminEndpoint::Remote(remote) => {
                let config = tls_config(remote)?;
                let url = &remote.url;
                let unreachable = |error| AdminError::Unreachable(url.clone(), error);
                let name = ServerName::try_from(url.host().to_owned())
                    .map_err(|error| unreachable(io::Error::other(error)))?;
                let stream = TcpStream::connect((url.host(), url.port())).await.map_err(unreachable)?;
                let handshake = TlsConnector::from(config).connect(name, stream).await;
                Self::over_stream(
                    handshake.map_err(|error| AdminError::Tls(url.clone(), error))?,
                    endpoint,
                    scope,
                )
                .await
            }
        }
    }

    async fn over_stream(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        endpoint: &AdminEndpoint,
        scope: &Scope,
    ) -> Result<Self, AdminError> {
        let handshake = http2::handshake(scope.clone(), TokioIo::new(stream)).await;
        let (requests, connection) =
            handshake.map_err(|error| AdminError::NotAdminApi(endpoint.clone(), error))?;
        scope.spawn_background(async move {
            // A request that is waiting for its response gets the error.
            let _ = connection.await;
        });
        Ok(Self(requests))
    }
}

impl From<SendRequest<Body>> for Channel {
    /// A channel over a connection of the doctor's, to another gRPC service.
    fn from(requests: SendRequest<Body>) -> Self {
        Self(requests)
    }
}

impl Service<Request<Body>> for Channel {
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

/// TLS 1.3 that trusts the given CA alone and presents the administrator's certificate.
fn tls_config(remote: &RemoteAdmin) -> Result<Arc<ClientConfig>, AdminError> {
    let roots = pem::read_certificates(&remote.ca)?.ders;
    let identity = pem::read_identity(&remote.certificate, &remote.key)?;
    tls::client(roots, Some(identity), TLS13_ONLY, ALPN_H2)
        .map_err(|error| AdminError::KeyMismatch(Box::new(remote.clone()), error))
}

fn socket_error(socket: &Path, error: io::Error) -> AdminError {
    let socket = socket.to_owned();
    #[expect(clippy::wildcard_enum_match_arm, reason = "io::ErrorKind is foreign and non-exhaustive")]
    match error.kind() {
        ErrorKind::NotFound => AdminError::NoSocket(socket),
        ErrorKind::PermissionDenied => AdminError::Denied(socket),
        ErrorKind::ConnectionRefused => AdminError::NotListening(socket),
        _ => AdminError::Connect(socket, error),
    }
}
