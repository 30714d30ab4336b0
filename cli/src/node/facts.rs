//! Asks the cluster, with the bootstrap token as kubeadm does, for all that a new kubelet needs to know.

use daemon::Scope;
use http::Method;
use serde_json::Value;

use super::cluster_info::ClusterInfo;
use super::discovery::{self, AskError};
use crate::https::HttpsConnection;
use crate::names::BootstrapToken;

/// The ConfigMap with the configuration of every kubelet, which kubeadm makes.
const KUBELET_CONFIG: &str = "/api/v1/namespaces/kube-system/configmaps/kubelet-config";

/// The answers of the cluster's API server.
#[derive(Debug)]
pub(super) struct Facts {
    /// The version of the API server, such as `v1.36.3`.
    pub(super) version: String,
    /// The configuration of kubelets, as YAML.
    pub(super) kubelet_config: String,
}

/// The cluster does not take this machine, or does not say what it needs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FactsError {
    #[error("no API server of the command answers: {0}")]
    NoneAnswers(String),
    #[error(
        "the API server refuses {what} to the bootstrap token (HTTP {status}); on a master run: kubeadm init phase {phase}"
    )]
    Refused {
        /// The object that was asked for.
        what: &'static str,
        /// The status of the answer.
        status: u16,
        /// The phase of kubeadm that mends it.
        phase: &'static str,
    },
    #[error(
        "the cluster has a Node {0:?} that is Ready; give this machine another name with --node-name, or remove that Node if it is gone"
    )]
    NodeIsReady(String),
    #[error("the answer to {0} is not of Kubernetes' form")]
    NotKubernetes(&'static str),
}

/// Asks the first API server that answers, and refuses a name whose Node is Ready. `is_ours` is true if an earlier run of this join has
/// started a kubelet, whose Node may be Ready.
///
/// # Errors
/// Every variant of [`FactsError`].
pub(super) async fn ask(
    api_servers: &[String],
    info: &ClusterInfo,
    token: &BootstrapToken,
    (name, is_ours): (&str, bool),
    scope: &Scope,
) -> Result<Facts, FactsError> {
    let mut reasons = Vec::new();
    for api_server in api_servers {
        match connect(api_server, info, token, scope).await {
            Ok(mut connection) => return ask_one(&mut connection, (name, is_ours)).await,
            Err(error) => reasons.push(format!("{api_server}: {error}")),
        }
    }
    Err(FactsError::NoneAnswers(reasons.join("; ")))
}

async fn connect(
    api_server: &str,
    info: &ClusterInfo,
    token: &BootstrapToken,
    scope: &Scope,
) -> Result<HttpsConnection, AskError> {
    let config = discovery::verified(info).map_err(|error| AskError::Io(std::io::Error::other(error)))?;
    discovery::connect(api_server, config, Some(token.text()), scope).await
}

async fn ask_one(
    connection: &mut HttpsConnection,
    (name, is_ours): (&str, bool),
) -> Result<Facts, FactsError> {
    let version = get(connection, "/version", "its version", "bootstrap-token").await?;
    let version = version.and_then(|version| version["gitVersion"].as_str().map(str::to_owned));
    let version = version.ok_or(FactsError::NotKubernetes("/version"))?;
    let node =
        get(connection, &format!("/api/v1/nodes/{name}"), "the Node of this name", "bootstrap-token").await?;
    if node.is_some_and(|node| is_ready(&node)) && !is_ours {
        return Err(FactsError::NodeIsReady(name.to_owned()));
    }
    const WHAT: &str = "the ConfigMap kube-system/kubelet-config";
    const PHASE: &str = "upload-config kubelet";
    let config = get(connection, KUBELET_CONFIG, WHAT, PHASE).await?;
    let config = config.ok_or(FactsError::Refused { what: WHAT, status: 404, phase: PHASE })?;
    let kubelet_config =
        config["data"]["kubelet"].as_str().ok_or(FactsError::NotKubernetes(WHAT))?.to_owned();
    Ok(Facts { version, kubelet_config })
}

/// The object at a path; `None` if there is none.
async fn get(
    connection: &mut HttpsConnection,
    path: &str,
    what: &'static str,
    phase: &'static str,
) -> Result<Option<Value>, FactsError> {
    let answer = connection.send(Method::GET, path, None).await;
    let answer = answer.map_err(|error| FactsError::NoneAnswers(error.to_string()))?;
    match answer.status {
        200 => serde_json::from_slice(&answer.body).map(Some).map_err(|_| FactsError::NotKubernetes(what)),
        404 => Ok(None),
        status => Err(FactsError::Refused { what, status, phase }),
    }
}

/// Returns true if a Node, or a pod, has the condition Ready.
pub(crate) fn is_ready(node: &Value) -> bool {
    ready_condition(node).is_some_and(|condition| condition["status"] == "True")
}

/// The condition Ready of a Node or of a pod, if kubelet has reported it.
pub(super) fn ready_condition(node: &Value) -> Option<&Value> {
    node["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Ready")
}
