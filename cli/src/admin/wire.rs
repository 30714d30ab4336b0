//! One HTTP/2 connection to an admin API: by a socket of this machine, or by TLS with an administrator's certificate.

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
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tonic::codegen::Service;

use super::AdminError;
use crate::args::{Place, Remote};
use crate::pem;
use crate::tls::{self, ALPN_H2, Identity, OURS};

/// One HTTP/2 connection as gRPC wants it.
#[derive(Clone)]
pub(super) struct Wire(SendRequest<Body>);

impl Wire {
    /// Connects.
    pub(super) async fn to(place: &Place, scope: &Scope) -> Result<Self, AdminError> {
        match place {
            Place::Socket(path) => {
                let stream = UnixStream::connect(path).await;
                Self::over(stream.map_err(|error| not_connected(path, error))?, place, scope).await
            }
            Place::Server(remote) => {
                let config = config(remote)?;
                let url = &remote.url;
                let unreachable = |error| AdminError::Unreachable(url.clone(), error);
                let name = ServerName::try_from(url.host().to_owned())
                    .map_err(|error| unreachable(io::Error::other(error)))?;
                let stream = TcpStream::connect((url.host(), url.port())).await.map_err(unreachable)?;
                let shaken = TlsConnector::from(config).connect(name, stream).await;
                Self::over(shaken.map_err(|error| AdminError::Tls(url.clone(), error))?, place, scope).await
            }
        }
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        place: &Place,
        scope: &Scope,
    ) -> Result<Self, AdminError> {
        let shaken = http2::handshake(scope.clone(), TokioIo::new(stream)).await;
        let (requests, connection) = shaken.map_err(|error| AdminError::NotAdmin(place.clone(), error))?;
        scope.attend(async move {
            // How it ended is told to whoever waits for an answer.
            let _ = connection.await;
        });
        Ok(Self(requests))
    }
}

impl Service<Request<Body>> for Wire {
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

/// TLS 1.3 that trusts one root and shows one certificate.
fn config(remote: &Remote) -> Result<Arc<ClientConfig>, AdminError> {
    let roots = pem::certificates(&remote.ca)?.ders;
    let chain = pem::certificates(&remote.certificate)?.ders;
    let key = pem::key(&remote.key)?;
    let key = PrivateKeyDer::from_pem_slice(key.text.as_bytes())
        .map_err(|error| pem::PemError::damaged(&remote.key, &error))?;
    tls::client(roots, Some(Identity { chain, key }), OURS, ALPN_H2)
        .map_err(|error| AdminError::Pair(Box::new(remote.clone()), error))
}

fn not_connected(socket: &Path, error: io::Error) -> AdminError {
    let socket = socket.to_owned();
    #[expect(clippy::wildcard_enum_match_arm, reason = "io::ErrorKind is foreign and non-exhaustive")]
    match error.kind() {
        ErrorKind::NotFound => AdminError::NoSocket(socket),
        ErrorKind::PermissionDenied => AdminError::Denied(socket),
        ErrorKind::ConnectionRefused => AdminError::NobodyThere(socket),
        _ => AdminError::Connect(socket, error),
    }
}
