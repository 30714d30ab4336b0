//! `tombolo node join-command`: makes a bootstrap token in a cluster, and prints the command by which a machine joins with it.

use std::time::SystemTime;

use api_servers::list::KUBERNETES_SLICES;
use api_servers::slices;
use daemon::Scope;
use http::Method;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use trust::Pin;

use super::cluster_info;
use super::machine::LB;
use crate::args::NodeJoinCommand;
use crate::doctor::{self, ReachedCluster};
use crate::https::SendError;
use crate::names::{BootstrapToken, NoRandomBytes, Validity};
use crate::print;
use crate::runtime::{self, RuntimeError};

/// The path for bootstrap tokens.
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// The group to which kubeadm binds the rights of machines that join.
pub(crate) const JOINING_GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";

/// The right of kubelets to read the list of API servers, of `deploy/node-lb/rbac.yaml`.
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/tombolo-node-lb";

/// The API server by which workers with node-lb come.
pub(crate) const BY_NODE_LB: &str = "https://127.0.0.1:7443";

/// The error if there is no command to print.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinCommandError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("the cluster cannot be asked: {0}")]
    Cluster(String),
    #[error("the API server cannot be asked for {0}")]
    Send(&'static str, #[source] SendError),
    #[error("the API server refuses {what} (HTTP {status}); use the kubeconfig of an administrator")]
    Refused {
        /// The object that was asked for.
        what: &'static str,
        /// The status of the answer.
        status: u16,
    },
    #[error(
        "the cluster has no ConfigMap kube-public/cluster-info, by which machines learn its CA; on a master run: kubeadm init phase \
         bootstrap-token"
    )]
    NoClusterInfo,
    #[error("the cluster lists no API server; name them with --api-server")]
    NoApiServer,
    #[error("the CA of the kubeconfig cannot be read")]
    Ca,
    #[error(transparent)]
    Random(#[from] NoRandomBytes),
    #[error("cannot print")]
    Print(#[from] std::io::Error),
}

/// Makes a token, and prints the command.
pub(crate) fn print(args: &NodeJoinCommand) -> Result<(), JoinCommandError> {
    let command = runtime::run(async |scope| command(args, scope).await)??;
    print::document(&command)?;
    Ok(())
}

async fn command(args: &NodeJoinCommand, scope: &Scope) -> Result<String, JoinCommandError> {
    let reached = doctor::reach_cluster(args.kubeconfig.clone(), args.context.as_deref(), scope).await;
    let mut cluster = reached.map_err(|report| JoinCommandError::Cluster(report.failures()))?;
    command_of(&mut cluster, &args.api_servers, args.only_lb, args.ttl).await
}

/// The command for a cluster that has been reached as an administrator. Without API servers it names those that the cluster lists.
pub(crate) async fn command_of(
    cluster: &mut ReachedCluster,
    api_servers: &[String],
    only_lb: bool,
    ttl: Validity,
) -> Result<String, JoinCommandError> {
    let info = get(cluster, cluster_info::PATH, "kube-public/cluster-info").await?;
    let info: Option<Value> = info.and_then(|info| serde_json::from_slice(&info).ok());
    let server = info.as_ref().and_then(cluster_info::server).ok_or(JoinCommandError::NoClusterInfo)?;
    let api_servers = match api_servers {
        [] => {
            let list = get(cluster, KUBERNETES_SLICES, "the list of API servers").await?;
            list.and_then(|list| slices::endpoints(&list).ok()).unwrap_or_default()
        }
        named => named.to_vec(),
    };
    if api_servers.is_empty() {
        return Err(JoinCommandError::NoApiServer);
    }
    if get(cluster, ROLE, "the Role tombolo-node-lb").await?.is_none() {
        print::note(
            "workers of this cluster may not read the list of API servers, so they keep those of the command; allow it: kubectl apply -f \
             deploy/node-lb/rbac.yaml",
        )?;
    }
    let hash = cluster.roots.iter().find_map(Pin::of_ca).ok_or(JoinCommandError::Ca)?;
    let token = BootstrapToken::generate()?;
    create(cluster, &token, ttl).await?;
    if only_lb && server != BY_NODE_LB {
        let note = format!(
            "kubeadm writes the server of cluster-info, {server}, into kubelet.conf; for workers with node-lb that is {BY_NODE_LB} \
             (kubeadm: controlPlaneEndpoint, or edit the ConfigMap kube-public/cluster-info)"
        );
        print::note(&note)?;
    }
    let named: Vec<String> = api_servers.iter().map(|address| format!(" --api-server {address}")).collect();
    let (token, named) = (token.text(), named.concat());
    let by_kubeadm = format!(" && kubeadm join {LB} --token {token} --discovery-token-ca-cert-hash {hash}");
    let (only_lb, by_kubeadm) = if only_lb { (" --only-lb", by_kubeadm) } else { ("", String::new()) };
    Ok(format!("tombolo node join{only_lb} --token {token} --ca-hash {hash}{named}{by_kubeadm}\n"))
}

/// The object at this path, JSON; `None` if there is none.
async fn get(
    cluster: &mut ReachedCluster,
    path: &str,
    what: &'static str,
) -> Result<Option<Vec<u8>>, JoinCommandError> {
    let path = format!("{}{path}", cluster.prefix);
    let answer = cluster.connection.send(Method::GET, &path, None).await;
    let answer = answer.map_err(|error| JoinCommandError::Send(what, error))?;
    match answer.status {
        200 => Ok(Some(answer.body)),
        404 => Ok(None),
        status => Err(JoinCommandError::Refused { what, status }),
    }
}

async fn create(
    cluster: &mut ReachedCluster,
    token: &BootstrapToken,
    ttl: Validity,
) -> Result<(), JoinCommandError> {
    const WHAT: &str = "a bootstrap token";
    let ends = OffsetDateTime::from(SystemTime::now()) + ttl.duration();
    let secret = secret(token, &ends.format(&Rfc3339).unwrap_or_default());
    let path = format!("{}{SECRETS}", cluster.prefix);
    let answer = cluster.connection.send(Method::POST, &path, Some(secret.to_string())).await;
    let status = answer.map_err(|error| JoinCommandError::Send(WHAT, error))?.status;
    if status == 201 { Ok(()) } else { Err(JoinCommandError::Refused { what: WHAT, status }) }
}

/// The Secret of a token, as kubeadm makes it.
fn secret(token: &BootstrapToken, expiration: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": format!("bootstrap-token-{}", token.id()), "namespace": "kube-system" },
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": token.id(),
            "token-secret": token.secret(),
            "expiration": expiration,
            "description": "made by tombolo node join-command",
            "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true",
            "auth-extra-groups": JOINING_GROUP,
        },
    })
}
