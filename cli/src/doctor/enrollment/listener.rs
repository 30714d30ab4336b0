//! A client of the enrollment listener that asks whether it would accept a token, and never enrolls.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use daemon::Scope;
use http::Uri;
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use proto::enrollment::enrollment_client::EnrollmentClient;
use proto::enrollment::{CheckPodRequest, CheckTokenRequest};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::version::TLS13;
use rustls_pki_types::ServerName;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::{Code, Status};
use transport::tls::PinnedVerifier;
use transport::{DialError, DialPath};

use crate::admin::Channel;
use crate::tls::ALPN_H2;

/// Longest wait for the connection, and for each answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// The origin that gRPC puts before each path. The server ignores it.
const ORIGIN: &str = "https://enrollment";

/// tonic's words about an answer without a gRPC status.
const NOT_GRPC: &str = "grpc-status header missing";

/// An open connection to the enrollment listener.
pub(super) struct EnrollmentListener(EnrollmentClient<Channel>);

/// There is no connection to the enrollment listener.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// The name cannot stand in a certificate.
    #[error("{0:?} is no name that a certificate can have")]
    Name(String),
    /// TCP or the proxy failed.
    #[error(transparent)]
    Unreachable(DialError),
    /// The TLS handshake failed. The error may hold that of rustls.
    #[error("the handshake failed")]
    Tls(#[source] io::Error),
    /// It does not speak HTTP/2.
    #[error("it does not speak HTTP/2")]
    NotHttp2(#[source] hyper::Error),
    /// This side failed before anything was sent.
    #[error("TLS cannot be set up")]
    Local(#[source] rustls::Error),
    /// Nothing came back in time.
    #[error("no answer within {} s", ANSWER_MAX.as_secs())]
    NoAnswer,
}

/// The answer to a check.
pub(super) enum Checked {
    /// The token is good, and an enrollment would succeed.
    Good,
    /// The token is refused for good.
    Refused(String),
    /// The cluster is not open to pods that have no enrollment token.
    NotSetUp(String),
    /// This address has failed too often, or asked too often.
    Throttled(String),
    /// Something else answers there, such as the gateway.
    NotGrpc(String),
    /// The server is older than this check.
    Unknown,
    /// The server cannot check it now.
    Failed(String),
}

impl EnrollmentListener {
    /// Connects to the listener, whose certificate has to bear `name`, as an agent does. No certificate is shown.
    pub(super) async fn open(
        path: &DialPath,
        name: &str,
        verifier: PinnedVerifier,
        scope: &Scope,
    ) -> Result<Self, OpenError> {
        timeout(ANSWER_MAX, Self::connect(path, name, verifier, scope))
            .await
            .unwrap_or(Err(OpenError::NoAnswer))
    }

    async fn connect(
        path: &DialPath,
        name: &str,
        verifier: PinnedVerifier,
        scope: &Scope,
    ) -> Result<Self, OpenError> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| OpenError::Name(name.to_owned()))?;
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&verifier.provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(OpenError::Local)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = vec![ALPN_H2.to_vec()];
        config.resumption = Resumption::disabled();
        let tcp = path.connect().await.map_err(OpenError::Unreachable)?;
        let tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.map_err(OpenError::Tls)?;
        let (requests, connection) =
            http2::handshake(scope.clone(), TokioIo::new(tls)).await.map_err(OpenError::NotHttp2)?;
        scope.spawn_background(async move {
            // A request that is waiting for its response gets the error.
            let _ = connection.await;
        });
        Ok(Self(EnrollmentClient::with_origin(Channel::from(requests), Uri::from_static(ORIGIN))))
    }

    /// Asks whether a token would enroll an agent with this key. The token stays as it is.
    pub(super) async fn check_token(&mut self, request: CheckTokenRequest) -> Checked {
        checked(self.0.check_token(request)).await
    }

    /// Asks whether a pod's token would enroll it. Its agent's certificate stays as it is.
    pub(super) async fn check_pod(&mut self, request: CheckPodRequest) -> Checked {
        checked(self.0.check_pod(request)).await
    }
}

async fn checked<T>(asked: impl Future<Output = Result<T, Status>>) -> Checked {
    match timeout(ANSWER_MAX, asked).await {
        Ok(Ok(_)) => Checked::Good,
        Ok(Err(status)) => refused(&status),
        Err(_) => Checked::Failed(OpenError::NoAnswer.to_string()),
    }
}

fn refused(status: &Status) -> Checked {
    let message = status.message().to_owned();
    if message.contains(NOT_GRPC) {
        return Checked::NotGrpc(message);
    }
    match status.code() {
        Code::PermissionDenied | Code::InvalidArgument => Checked::Refused(message),
        Code::FailedPrecondition => Checked::NotSetUp(message),
        Code::ResourceExhausted => Checked::Throttled(message),
        Code::Unimplemented => Checked::Unknown,
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::Aborted
        | Code::OutOfRange
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => Checked::Failed(message),
    }
}
