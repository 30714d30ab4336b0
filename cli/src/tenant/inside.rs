//! The way to a tenant's own API server: by its URL, or by a port that kubectl forwards.

use std::time::Duration;

use daemon::Scope;
use http::Method;
use rustls::ALL_VERSIONS;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::host::{FIELD_MANAGER, Host, HostError};
use super::pki::Pair;
use super::program::{PortForward, ProgramFailed};
use super::record::TenantRecord;
use crate::doctor::ReachedCluster;
use crate::https::{HttpsConnection, SendError};
use crate::kubeconfig::reader::HttpsServer;
use crate::node::is_ready;
use crate::tls::{self, ALPN_HTTP1, ClientIdentity};

/// Longest wait for a connection with its handshake.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// The objects of one page of a list.
const PAGE: usize = 5;

/// A tenant's API server cannot be reached, or refuses a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InsideError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("no pod of an API server runs; see `tombolo tenant status`")]
    NoPod,
    #[error("the port of the tenant's API server cannot be forwarded; name it with --server URL")]
    Forward(#[from] ProgramFailed),
    #[error("{0:?} is no https URL; use one such as https://192.168.1.11:16440")]
    NoUrl(String),
    #[error("the tenant's API server does not answer at {0}: {1}")]
    Connect(String, String),
    #[error("the credential of this program cannot be used: {0}")]
    Credential(String),
    #[error("the tenant's API server cannot be asked for {0}")]
    Send(String, #[source] SendError),
    #[error("the tenant's API server refuses {what} (HTTP {status}): {message}")]
    Refused {
        /// The path of the object.
        what: String,
        /// The status of the answer.
        status: u16,
        /// The text of the refusal.
        message: String,
    },
}

/// A connection to a tenant's API server, with the forwarded port if there is one.
pub(super) struct TenantApi {
    pub(super) cluster: ReachedCluster,
    _forwarded: Option<PortForward>,
}

impl TenantApi {
    /// Connects with this credential. Only the tenant's CA is trusted.
    ///
    /// # Errors
    /// [`InsideError`]
    pub(super) async fn connect(
        host: &Host,
        tenant: &TenantRecord,
        server: Option<&str>,
        ca_pem: &str,
        credential: &Pair,
        scope: &Scope,
    ) -> Result<Self, InsideError> {
        let (address, name, prefix, forwarded) = match server {
            Some(url) => {
                let server = HttpsServer::parse(url).ok_or_else(|| InsideError::NoUrl(url.to_owned()))?;
                let address = (server.bare_host().to_owned(), server.port());
                (address, server.bare_host().to_owned(), server.path().to_owned(), None)
            }
            None => {
                let forwarded = forward(host, tenant)?;
                let loopback = "127.0.0.1".to_owned();
                ((loopback.clone(), forwarded.port()), loopback, String::new(), Some(forwarded))
            }
        };
        let shown = format!("{}:{}", address.0, address.1);
        let roots: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(ca_pem.as_bytes()).flatten().collect();
        let unusable = |error: &dyn std::fmt::Display| InsideError::Credential(error.to_string());
        let key =
            PrivateKeyDer::from_pem_slice(credential.key.as_bytes()).map_err(|error| unusable(&error))?;
        let chain = CertificateDer::pem_slice_iter(credential.certificate.as_bytes()).flatten().collect();
        let identity = ClientIdentity { chain, key };
        let config = tls::client(roots.clone(), Some(identity), ALL_VERSIONS, ALPN_HTTP1)
            .map_err(|error| unusable(&error))?;
        let name = ServerName::try_from(name).map_err(|error| unusable(&error))?;
        let connecting = async {
            let stream = TcpStream::connect((address.0.as_str(), address.1)).await?;
            TlsConnector::from(config).connect(name, stream).await
        };
        let failed = |reason: String| InsideError::Connect(shown.clone(), reason);
        let stream = timeout(CONNECT_MAX, connecting)
            .await
            .map_err(|_| failed(format!("nothing within {} s", CONNECT_MAX.as_secs())))?
            .map_err(|error| failed(error.to_string()))?;
        let connection = HttpsConnection::over(stream, shown.clone(), None, scope);
        let connection = connection.await.map_err(|error| failed(error.to_string()))?;
        Ok(Self { cluster: ReachedCluster { connection, prefix, roots }, _forwarded: forwarded })
    }

    /// The JSON at this path.
    ///
    /// # Errors
    /// [`InsideError`]
    pub(super) async fn get(&mut self, path: &str) -> Result<Value, InsideError> {
        let body = self.send(Method::GET, path, None).await?;
        Ok(serde_json::from_slice(&body).unwrap_or_default())
    }

    /// Applies an object on the server's side, so that fields of others stay.
    ///
    /// # Errors
    /// [`InsideError`]
    pub(super) async fn apply(&mut self, object: &Value) -> Result<(), InsideError> {
        let path = format!("{}?fieldManager={FIELD_MANAGER}&force=true", path_of(object));
        self.send(Method::PATCH, &path, Some(object.to_string())).await.map(drop)
    }

    /// All objects of a list, in pages that fit into the limit of an answer. `query` is such as `fieldSelector=…`, or empty.
    ///
    /// # Errors
    /// [`InsideError`]
    pub(super) async fn list(&mut self, path: &str, query: &str) -> Result<Vec<Value>, InsideError> {
        let (mut items, mut next) = (Vec::new(), String::new());
        loop {
            let mut page = self.get(&format!("{path}?limit={PAGE}&{query}{next}")).await?;
            if let Value::Array(found) = page["items"].take() {
                items.extend(found);
            }
            match page["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => next = format!("&continue={token}"),
                _ => return Ok(items),
            }
        }
    }

    /// Deletes the object at this path, if it is there.
    ///
    /// # Errors
    /// [`InsideError`]
    pub(super) async fn delete(&mut self, path: &str) -> Result<(), InsideError> {
        match self.send(Method::DELETE, path, None).await {
            Ok(_) | Err(InsideError::Refused { status: 404, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<Vec<u8>, InsideError> {
        let path = format!("{}{path}", self.cluster.prefix);
        let answer = self.cluster.connection.send(method, &path, body).await;
        let answer = answer.map_err(|error| InsideError::Send(path.clone(), error))?;
        if (200..300).contains(&answer.status) {
            return Ok(answer.body);
        }
        let message: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let message = message["message"].as_str().unwrap_or_default().to_owned();
        Err(InsideError::Refused { what: path, status: answer.status, message })
    }
}

/// The path of an object, of the kinds that a tenant is given.
fn path_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api_version = text(&object["apiVersion"]);
    let root = if api_version.contains('/') { "/apis/" } else { "/api/" };
    let namespace = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("namespaces/{namespace}/"),
        None => String::new(),
    };
    let kinds = text(&object["kind"]).to_lowercase() + "s";
    format!("{root}{api_version}/{namespace}{kinds}/{}", text(&object["metadata"]["name"]))
}

fn forward(host: &Host, tenant: &TenantRecord) -> Result<PortForward, InsideError> {
    let pods = host.list(&["pods", "--selector", "app.kubernetes.io/name=apiserver"])?;
    let pod = pods.iter().find(|pod| is_ready(pod)).and_then(|pod| pod["metadata"]["name"].as_str());
    let pod = format!("pod/{}", pod.ok_or(InsideError::NoPod)?);
    let port = format!(":{}", tenant.ports.first());
    let words = host.kubectl_words(&["port-forward", "--address", "127.0.0.1", &pod, &port]);
    Ok(PortForward::start(&words)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_objects_path_has_its_group_namespace_and_kind() {
        let object = |api: &str, kind: &str, namespace: Option<&str>| {
            path_of(
                &json!({ "apiVersion": api, "kind": kind, "metadata": { "name": "n", "namespace": namespace } }),
            )
        };
        assert_eq!(
            object("v1", "ConfigMap", Some("kube-public")),
            "/api/v1/namespaces/kube-public/configmaps/n"
        );
        assert_eq!(
            object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", None),
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/n"
        );
    }
}
