//! Waits, with progress, for what a join has started: node-lb, kubelet's certificate and its Node.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::Scope;
use http::Method;
use rustls::ALL_VERSIONS;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use tokio::time::sleep;

use super::cluster_info::ClusterInfo;
use super::discovery::{self, AskError};
use super::facts;
use super::load_balancer::KUBELET_CREDENTIAL;
use super::machine::{KUBELET_KUBECONFIG, LB};
use crate::https::HttpsConnection;
use crate::print;
use crate::tls::{self, ALPN_HTTP1, ClientIdentity};

/// Longest wait for node-lb to relay to an API server.
const RELAYS_MAX: Duration = Duration::from_secs(60);

/// Longest wait for kubelet's certificate, which a controller of the cluster signs.
const CERTIFICATE_MAX: Duration = Duration::from_secs(120);

/// Longest wait for the Node to be there, and then to be Ready. Without a network plugin it is never.
const NODE_MAX: Duration = Duration::from_secs(60);
const READY_MAX: Duration = Duration::from_secs(60);

const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Something that was started is not at work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WaitError {
    #[error("node-lb runs, and relays to no API server within {} s; see `journalctl --unit node-lb` and `tombolo doctor node`", RELAYS_MAX.as_secs())]
    RelaysNothing,
    #[error(
        "kubelet has no certificate after {} s; see `journalctl --unit kubelet`. The cluster signs certificates of new workers if its \
         controller-manager runs and `kubeadm init phase bootstrap-token` was run",
        CERTIFICATE_MAX.as_secs()
    )]
    NoCertificate,
    #[error("the Node {name} is not there after {max} s: {reason}; see `journalctl --unit kubelet`", max = NODE_MAX.as_secs())]
    NoNode {
        /// The name of the Node.
        name: String,
        /// The reason of the last try to read it.
        reason: String,
    },
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

/// Waits until an API server shows its certificate through node-lb.
pub(super) async fn relays(info: &ClusterInfo, scope: &Scope) -> Result<(), WaitError> {
    print::note("waiting until node-lb relays to an API server")?;
    let config = discovery::verified(info)?;
    let is_there = within(RELAYS_MAX, async || {
        discovery::connect(LB, Arc::clone(&config), None, scope).await.is_ok().then_some(())
    });
    is_there.await.ok_or(WaitError::RelaysNothing)
}

/// Waits until kubelet has its own credential.
pub(super) async fn has_certificate(root: &Path) -> Result<(), WaitError> {
    print::note("waiting until the cluster has signed kubelet's certificate")?;
    let paths = [root.join(KUBELET_KUBECONFIG), root.join(KUBELET_CREDENTIAL)];
    let is_there = within(CERTIFICATE_MAX, async || paths.iter().all(|path| path.exists()).then_some(()));
    is_there.await.ok_or(WaitError::NoCertificate)
}

/// Waits until the Node is there, and a while for it to be Ready. Returns a line that says which of both it is.
pub(super) async fn node(
    root: &Path,
    name: &str,
    info: &ClusterInfo,
    scope: &Scope,
) -> Result<String, WaitError> {
    print::note(&format!("waiting until the Node {name} is Ready"))?;
    let path = format!("/api/v1/nodes/{name}");
    let get = async || read(root, &path, info, scope).await;
    let mut reason = String::new();
    let is_there = within(NODE_MAX, async || match get().await {
        Ok(_) => Some(()),
        Err(error) => {
            reason = error.to_string();
            None
        }
    });
    if is_there.await.is_none() {
        return Err(WaitError::NoNode { name: name.to_owned(), reason });
    }
    let is_ready = within(READY_MAX, async || get().await.ok().filter(facts::is_ready).map(drop)).await;
    if is_ready.is_some() {
        return Ok(format!("the Node {name} is Ready"));
    }
    let node = get().await.ok();
    let reason = node.as_ref().and_then(facts::ready_condition).and_then(|ready| ready["message"].as_str());
    let reason = reason.unwrap_or("kubelet says no reason").to_owned();
    Ok(format!(
        "the Node {name} has joined, and is not Ready yet: {}. A cluster without a network plugin says so; see: kubectl describe node {name}",
        print::visible(&reason)
    ))
}

/// Connects to an API server with kubelet's own certificate.
pub(super) async fn connect(
    root: &Path,
    server: &str,
    info: &ClusterInfo,
    scope: &Scope,
) -> Result<HttpsConnection, AskError> {
    let identity = identity(&root.join(KUBELET_CREDENTIAL)).map_err(io::Error::other)?;
    let config = tls::client(info.roots.clone(), Some(identity), ALL_VERSIONS, ALPN_HTTP1);
    discovery::connect(server, config.map_err(io::Error::other)?, None, scope).await
}

/// The object, by kubelet's own certificate through node-lb.
async fn read(root: &Path, path: &str, info: &ClusterInfo, scope: &Scope) -> Result<Value, AskError> {
    let mut connection = connect(root, LB, info, scope).await?;
    let answer = connection.send(Method::GET, path, None).await?;
    if answer.status != 200 {
        return Err(AskError::Status(answer.status));
    }
    serde_json::from_slice(&answer.body).map_err(|_| AskError::NotJson)
}

/// kubelet keeps its certificate and its key in one file.
pub(super) fn identity(path: &Path) -> Result<ClientIdentity, pem::Error> {
    let pem = fs::read(path).map_err(pem::Error::Io)?;
    let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>()?;
    Ok(ClientIdentity { chain, key: PrivateKeyDer::from_pem_slice(&pem)? })
}

/// Looks until `done` says something, for at most `limit`.
pub(super) async fn within<T>(limit: Duration, mut done: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = done().await {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        sleep(LOOK_EVERY).await;
    }
}
