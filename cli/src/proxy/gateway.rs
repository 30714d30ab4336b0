//! A connection to a target of the cluster, through the gateway.

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
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::kubeconfig::{CredentialError, bearer_token};
use crate::names::{GatewayUrl, Label};
use crate::pem::{self, PemError};
use crate::settings::Credential;
use crate::tls::{self, ALPN_HTTP1, Identity, OURS};

/// A connection to the gateway is there within this time, its handshake included.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// An answer comes within this time: the gateway waits for clusters that are away, and the agent for the target.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// Most of an answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The header that names the cluster, and that which names a network.
const CLUSTER: HeaderName = HeaderName::from_static("tombolo-cluster");
const NETWORK: HeaderName = HeaderName::from_static("tombolo-network");

/// Where all targets of a run are.
#[derive(Debug, Clone)]
pub(super) enum Within {
    /// In this cluster.
    Cluster(ClusterId),
    /// In the one cluster of this network that has them.
    Network(Label),
}

/// The gateway, who asks it, and for what.
pub(super) struct Gateway {
    pub(super) url: GatewayUrl,
    pub(super) authority: PathBuf,
    /// Read anew for each connection: what was renewed is used by the next.
    pub(super) credential: Credential,
    pub(super) within: Within,
}

/// Why there is no connection to a target.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotConnected {
    #[error("the credential for the gateway cannot be read")]
    Pem(#[from] PemError),
    #[error("the credential for the gateway cannot be read")]
    Credential(#[from] CredentialError),
    #[error("the credential for the gateway cannot be used")]
    Unusable(#[source] rustls::Error),
    #[error("the gateway cannot be reached")]
    Unreachable(#[source] io::Error),
    #[error("the gateway broke off")]
    Broke(#[source] hyper::Error),
    #[error("the gateway did not answer in time")]
    TooSlow,
    /// Its own words.
    #[error("{1}")]
    Refused(StatusCode, String),
}

impl NotConnected {
    /// The status of HTTP for it.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Refused(status, _) => *status,
            Self::TooSlow => StatusCode::GATEWAY_TIMEOUT,
            Self::Pem(_)
            | Self::Credential(_)
            | Self::Unusable(_)
            | Self::Unreachable(_)
            | Self::Broke(_) => StatusCode::BAD_GATEWAY,
        }
    }
}

impl Gateway {
    /// Connects to `target`, `host:port`, in the cluster or the network.
    pub(super) async fn connect(&self, target: &Authority, scope: &Scope) -> Result<Upgraded, NotConnected> {
        let (identity, token) = match &self.credential {
            Credential::Certificate { certificate, key } => {
                let chain = pem::certificates(certificate)?.ders;
                let text = pem::key(key)?.text;
                let key = PrivateKeyDer::from_pem_slice(text.as_bytes())
                    .map_err(|error| PemError::damaged(key, &error))?;
                (Some(Identity { chain, key }), None)
            }
            Credential::TokenFile(file) => (None, Some(bearer_token(file)?)),
        };
        let roots = pem::certificates(&self.authority)?.ders;
        let config = tls::client(roots, identity, OURS, ALPN_HTTP1).map_err(NotConnected::Unusable)?;
        let connecting = async {
            let (host, port) = self.url.address();
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            let stream = TcpStream::connect((host, port)).await?;
            let _ = stream.set_nodelay(true);
            TlsConnector::from(config).connect(name, stream).await
        };
        let stream = timeout(CONNECT_MAX, connecting).await.map_err(|_| NotConnected::TooSlow)?;
        let stream = TokioIo::new(stream.map_err(NotConnected::Unreachable)?);
        let (mut requests, connection) = http1::handshake(stream).await.map_err(NotConnected::Broke)?;
        scope.attend(async move {
            // How it ended is told to whoever waits for an answer.
            let _ = connection.with_upgrades().await;
        });
        let request = self.asking(target, token.as_deref());
        let answer = timeout(ANSWER_MAX, requests.send_request(request)).await;
        let answer = answer.map_err(|_| NotConnected::TooSlow)?.map_err(NotConnected::Broke)?;
        let status = answer.status();
        if status.is_success() {
            return hyper::upgrade::on(answer).await.map_err(NotConnected::Broke);
        }
        Err(NotConnected::Refused(status, message(status, answer.into_body()).await))
    }

    fn asking(&self, target: &Authority, token: Option<&str>) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        *request.method_mut() = Method::CONNECT;
        *request.uri_mut() = Uri::from(target.clone());
        let headers = request.headers_mut();
        let value = |text: &str| HeaderValue::from_str(text).ok();
        headers.extend(value(target.as_str()).map(|target| (HOST, target)));
        let header = match &self.within {
            Within::Cluster(_) => CLUSTER,
            Within::Network(_) => NETWORK,
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

impl Within {
    /// The cluster's name, or the network's.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Cluster(cluster) => cluster.as_str(),
            Self::Network(network) => network.as_str(),
        }
    }
}

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(cluster) => write!(f, "cluster {cluster}"),
            Self::Network(network) => write!(f, "network {network}"),
        }
    }
}

/// What a refusal says, which is a `Status` of Kubernetes.
async fn message(status: StatusCode, body: Incoming) -> String {
    let whole = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let said = whole.ok().and_then(|whole| serde_json::from_slice(&whole.to_bytes()).ok());
    let said = said.and_then(|status: serde_json::Value| Some(status["message"].as_str()?.to_owned()));
    said.unwrap_or_else(|| format!("the gateway answered {status}"))
}
