//! A client of the gateway that opens connections to targets in a cluster, by HTTP CONNECT.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use daemon::Scope;
use http::header::{AUTHORIZATION, HOST};
use http::uri::Authority;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use proto::ClusterId;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::kubeconfig::{CredentialError, bearer_token};
use crate::names::{GatewayUrl, Label};
use crate::pem::{self, PemError};
use crate::settings::GatewayCredential;
use crate::tls::{self, ALPN_HTTP1, TLS13_ONLY};

/// Longest wait for a connection to the gateway, with its TLS handshake.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Longest wait for the gateway's response. The gateway may wait for a cluster that is not connected, and the agent for the
/// target.
const RESPONSE_MAX: Duration = Duration::from_secs(120);

/// Longest body of a refusal that is read.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// The request header that names the cluster, and the one that names a network.
const CLUSTER: HeaderName = HeaderName::from_static("tombolo-cluster");
const NETWORK: HeaderName = HeaderName::from_static("tombolo-network");

/// The cluster or network in which all targets of a run are.
#[derive(Debug, Clone)]
pub(super) enum TargetScope {
    /// The targets of one cluster.
    Cluster(ClusterId),
    /// The targets of all clusters of a network. The gateway picks the cluster that has the address.
    Network(Label),
}

/// The gateway's URL and CA, the caller's credential, and the targets that it may dial.
pub(super) struct GatewayClient {
    pub(super) url: GatewayUrl,
    pub(super) ca: PathBuf,
    /// Its files are read for each connection, so that a renewed credential is used by the next one.
    pub(super) credential: GatewayCredential,
    pub(super) within: TargetScope,
}

/// The error if no connection to a target could be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("the credential for the gateway cannot be read")]
    Pem(#[from] PemError),
    #[error("the credential for the gateway cannot be read")]
    Credential(#[from] CredentialError),
    #[error("the credential for the gateway cannot be used")]
    Unusable(#[source] rustls::Error),
    #[error("the gateway cannot be reached")]
    Unreachable(#[source] io::Error),
    #[error("the gateway closed the connection")]
    Broken(#[source] hyper::Error),
    #[error("the gateway did not answer in time")]
    Timeout,
    /// The gateway refused, with this message.
    #[error("{1}")]
    Refused(StatusCode, String),
}

impl ConnectError {
    /// The HTTP status with which the local proxy answers.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Refused(status, _) => *status,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Pem(_)
            | Self::Credential(_)
            | Self::Unusable(_)
            | Self::Unreachable(_)
            | Self::Broken(_) => StatusCode::BAD_GATEWAY,
        }
    }
}

impl GatewayClient {
    /// Connects to `target`, a `host:port` in the cluster or the network.
    pub(super) async fn connect(&self, target: &Authority, scope: &Scope) -> Result<Upgraded, ConnectError> {
        let (identity, token) = match &self.credential {
            GatewayCredential::Certificate { certificate, key } => {
                (Some(pem::read_identity(certificate, key)?), None)
            }
            GatewayCredential::TokenFile(file) => (None, Some(bearer_token(file)?)),
        };
        let roots = pem::read_certificates(&self.ca)?.ders;
        let config = tls::client(roots, identity, TLS13_ONLY, ALPN_HTTP1).map_err(ConnectError::Unusable)?;
        let connecting = async {
            let (host, port) = self.url.address();
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            let stream = TcpStream::connect((host, port)).await?;
            let _ = stream.set_nodelay(true);
            TlsConnector::from(config).connect(name, stream).await
        };
        let stream = timeout(CONNECT_MAX, connecting).await.map_err(|_| ConnectError::Timeout)?;
        let stream = TokioIo::new(stream.map_err(ConnectError::Unreachable)?);
        let (mut requests, connection) = http1::handshake(stream).await.map_err(ConnectError::Broken)?;
        scope.spawn_background(async move {
            // The pending request gets the error.
            let _ = connection.with_upgrades().await;
        });
        let request = self.connect_request(target, token.as_deref());
        let response = timeout(RESPONSE_MAX, requests.send_request(request)).await;
        let response = response.map_err(|_| ConnectError::Timeout)?.map_err(ConnectError::Broken)?;
        let status = response.status();
        if status.is_success() {
            return hyper::upgrade::on(response).await.map_err(ConnectError::Broken);
        }
        Err(ConnectError::Refused(status, message(status, response.into_body()).await))
    }

    fn connect_request(&self, target: &Authority, token: Option<&str>) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        *request.method_mut() = Method::CONNECT;
        *request.uri_mut() = Uri::from(target.clone());
        let headers = request.headers_mut();
        let value = |text: &str| HeaderValue::from_str(text).ok();
        headers.extend(value(target.as_str()).map(|target| (HOST, target)));
        let header = match &self.within {
            TargetScope::Cluster(_) => CLUSTER,
            TargetScope::Network(_) => NETWORK,
        };
        headers.extend(value(self.within.name()).map(|name| (header, name)));
        let token = token.and_then(|token| value(&format!("Bearer {token}")));
        headers.extend(token.map(|mut token| {
            token.set_sensitive(true);
            (AUTHORIZATION, token)
        }));
        request
    }
}

impl TargetScope {
    /// The name of the cluster or of the network.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Cluster(cluster) => cluster.as_str(),
            Self::Network(network) => network.as_str(),
        }
    }
}

impl fmt::Display for TargetScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(cluster) => write!(f, "cluster {cluster}"),
            Self::Network(network) => write!(f, "network {network}"),
        }
    }
}

/// The message of a refusal, whose body is a Kubernetes `Status`.
async fn message(status: StatusCode, body: Incoming) -> String {
    let body = Limited::new(body, REFUSAL_BYTES_MAX).collect().await;
    let status_object = body.ok().and_then(|body| serde_json::from_slice(&body.to_bytes()).ok());
    let message =
        status_object.and_then(|object: serde_json::Value| Some(object["message"].as_str()?.to_owned()));
    message.unwrap_or_else(|| format!("the gateway answered {status}"))
}
