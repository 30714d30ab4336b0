//! Learns the CA of a cluster from its API servers, and checks that a worker can use them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use daemon::Scope;
use http::Method;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{ALL_VERSIONS, CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use trust::Pin;

use super::cluster_info::{self, ClusterInfo, ClusterInfoError};
use crate::doctor::{SKEW_MAX, skew};
use crate::https::{HttpsConnection, SendError};
use crate::names::BootstrapToken;
use crate::tls::{self, ALPN_HTTP1};

/// Longest wait for a connection with its handshake.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// A new token is signed by a controller, within about a second. As many tries are made, with a pause between two.
const SIGNATURE_TRIES: usize = 10;
const SIGNATURE_PAUSE: Duration = Duration::from_secs(2);

/// The reason why a cluster is not joined.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiscoveryError {
    /// No API server has answered. The text has each one's reason.
    #[error("no API server of the command answers: {0}")]
    NoneAnswers(String),
    /// The description of a cluster that an API server sent is not used.
    #[error("{api_server} is not used")]
    Cluster {
        /// The API server that said it.
        api_server: String,
        /// The reason why it is not used.
        #[source]
        source: ClusterInfoError,
    },
    /// The certificate cannot be used by a worker.
    #[error(
        "the certificate of {0} does not name 127.0.0.1, by which this machine's kubelet will come. With kubeadm: apiServer.certSANs: \
         [\"127.0.0.1\", \"localhost\"], then `kubeadm init phase certs apiserver` on each master"
    )]
    NotForLoopback(String),
    /// The API server is of another cluster.
    #[error("the certificate of {0} is not of this cluster's CA")]
    OtherCluster(String),
    /// The clocks of both machines differ.
    #[error(
        "this machine's clock is {seconds} s {side} that of {api_server}; set both by NTP, because certificates are checked by them"
    )]
    Clock {
        /// The API server whose clock was compared.
        api_server: String,
        /// The difference of the clocks, in seconds.
        seconds: u64,
        /// The direction of the difference.
        side: &'static str,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
}

/// A connection was not made, or a request had no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("no answer within {} s", CONNECT_MAX.as_secs())]
    Timeout,
    #[error("HTTP fails: {0}")]
    Http(#[from] hyper::Error),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error("HTTP status {0}")]
    Status(u16),
    #[error("the answer is no JSON")]
    NotJson,
}

/// Asks the API servers one after another what cluster they are of, until one says so with a good signature, and then checks every one of
/// them with the cluster's CA.
///
/// # Errors
/// Every variant of [`DiscoveryError`].
pub(super) async fn discover(
    api_servers: &[String],
    token: &BootstrapToken,
    expected: &Pin,
    scope: &Scope,
) -> Result<ClusterInfo, DiscoveryError> {
    let info = cluster(api_servers, token, expected, scope).await?;
    let config = verified(&info)?;
    let mut reasons = Vec::new();
    for api_server in api_servers {
        match connect(api_server, Arc::clone(&config), None, scope).await {
            Ok(mut connection) => check_clock(api_server, &mut connection).await?,
            Err(error) => match certificate_error(&error) {
                Some(CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }) => {
                    return Err(DiscoveryError::NotForLoopback(api_server.clone()));
                }
                Some(_) => return Err(DiscoveryError::OtherCluster(api_server.clone())),
                // It may be restarting. node-lb uses it as soon as it answers.
                None => reasons.push(format!("{api_server}: {error}")),
            },
        }
    }
    if reasons.len() < api_servers.len() {
        Ok(info)
    } else {
        Err(DiscoveryError::NoneAnswers(reasons.join("; ")))
    }
}

/// The signed description of the cluster, of the first API server that answers.
async fn cluster(
    api_servers: &[String],
    token: &BootstrapToken,
    expected: &Pin,
    scope: &Scope,
) -> Result<ClusterInfo, DiscoveryError> {
    let unverified = unverified()?;
    let mut tries = 0;
    loop {
        tries += 1;
        let mut reasons = Vec::new();
        let mut unsigned = None;
        for api_server in api_servers {
            let answer = ask(api_server, Arc::clone(&unverified), scope).await;
            match answer.map(|config_map| cluster_info::verify(&config_map, token, expected)) {
                Ok(Ok(info)) => return Ok(info),
                Ok(Err(source)) => {
                    let api_server = api_server.clone();
                    let is_unsigned = matches!(source, ClusterInfoError::NotSigned(_));
                    let error = DiscoveryError::Cluster { api_server, source };
                    if !is_unsigned {
                        return Err(error);
                    }
                    unsigned = Some(error);
                }
                Err(error) => reasons.push(format!("{api_server}: {error}")),
            }
        }
        match unsigned {
            None => return Err(DiscoveryError::NoneAnswers(reasons.join("; "))),
            Some(error) if tries == SIGNATURE_TRIES => return Err(error),
            Some(_) => sleep(SIGNATURE_PAUSE).await,
        }
    }
}

async fn ask(api_server: &str, config: Arc<ClientConfig>, scope: &Scope) -> Result<Value, AskError> {
    let mut connection = connect(api_server, config, None, scope).await?;
    let answer = connection.send(Method::GET, cluster_info::PATH, None).await?;
    if answer.status != 200 {
        return Err(AskError::Status(answer.status));
    }
    serde_json::from_slice(&answer.body).map_err(|_| AskError::NotJson)
}

/// A client that accepts the certificates of this cluster alone.
pub(super) fn verified(info: &ClusterInfo) -> Result<Arc<ClientConfig>, rustls::Error> {
    tls::client(info.roots.clone(), None, ALL_VERSIONS, ALPN_HTTP1)
}

/// Connects as a worker does: the certificate must be one for 127.0.0.1. Requests have the token, if there is one.
pub(super) async fn connect(
    api_server: &str,
    config: Arc<ClientConfig>,
    token: Option<String>,
    scope: &Scope,
) -> Result<HttpsConnection, AskError> {
    let name = ServerName::from(IpAddr::from(Ipv4Addr::LOCALHOST));
    let connecting = async {
        let stream = TcpStream::connect(api_server).await?;
        TlsConnector::from(config).connect(name, stream).await
    };
    let stream = timeout(CONNECT_MAX, connecting).await.map_err(|_| AskError::Timeout)??;
    Ok(HttpsConnection::over(stream, api_server.to_owned(), token, scope).await?)
}

async fn check_clock(api_server: &str, connection: &mut HttpsConnection) -> Result<(), DiscoveryError> {
    // Without an answer or a date nothing is compared; the certificate was good.
    let Ok(answer) = connection.send(Method::GET, "/version", None).await else { return Ok(()) };
    let Some(date) = answer.date else { return Ok(()) };
    let (skew, side) = skew(date, SystemTime::now());
    if skew <= SKEW_MAX {
        return Ok(());
    }
    Err(DiscoveryError::Clock { api_server: api_server.to_owned(), seconds: skew.as_secs(), side })
}

/// The reason why a certificate was not accepted, if that was the fault.
fn certificate_error(error: &AskError) -> Option<&CertificateError> {
    let AskError::Io(error) = error else { return None };
    let cause = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    if let rustls::Error::InvalidCertificate(reason) = cause { Some(reason) } else { None }
}

/// A client that accepts every certificate, for the one question whose answer is signed.
fn unverified() -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = transport::tls::provider();
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(ALL_VERSIONS)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN_HTTP1.to_vec()];
    Ok(Arc::new(config))
}

/// Accepts every certificate whose holder has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
