//! A pod with a shell in the first cluster, for which the demo answers in the place of a kubelet.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;

use super::DemoError;
use super::network::Edge;
use super::progress::Progress;
use crate::fake_api::{Behaviour, FakeApi, FakeApiOptions, HttpVersion};
use crate::kube::{ClusterError, EdgeCluster};
use crate::lab::NamespaceRuntime;
use crate::process::Invocation;

/// The name of the pod and of its container.
pub(super) const POD: &str = "shell";
const NODE: &str = "site";
/// The port that kubelets have by default.
const KUBELET_PORT: u16 = 10250;

/// The pod and its kubelet's stand-in, which is gone when this is dropped.
#[derive(Debug)]
#[must_use = "nobody answers for the pod when this is dropped"]
pub(super) struct ShellPod {
    // Dropped before the runtime whose tasks serve it.
    kubelet: FakeApi,
    _runtime: Option<NamespaceRuntime>,
}

impl ShellPod {
    /// Starts the stand-in at the address of the site's machine, and tells the cluster of a node and a pod there.
    pub(super) async fn start(
        edge: &Edge,
        cluster: &EdgeCluster,
        folder: &Path,
        progress: &Progress,
    ) -> Result<Self, DemoError> {
        // Loopback addresses are shared with the rest of the machine, so any port does there.
        let port = if edge.namespace.is_some() { KUBELET_PORT } else { 0 };
        let bound = SocketAddr::new(edge.options.address, port);
        let runtime = edge.namespace.as_ref().map(NamespaceRuntime::new);
        // It runs what it is told, so only the cluster's API server and its administrator may come.
        let required_clients = Some(cluster.ca_pem().to_owned());
        let options = FakeApiOptions {
            versions: vec![HttpVersion::Http1],
            required_clients,
            ..FakeApiOptions::default()
        };
        let start = FakeApi::start_at(bound, options);
        let kubelet = match &runtime {
            Some(runtime) => runtime.run(start).await,
            None => start.await,
        };
        let pod = Self { kubelet: kubelet.map_err(DemoError::Files)?, _runtime: runtime };
        let shell = Invocation::of("sh").arguments(["-c", "exec sh 2>&1"]);
        let shell = shell.in_network_namespace(edge.namespace_path());
        pod.kubelet.on(&format!("/exec/default/{POD}/{POD}"), Behaviour::ExecProgram(shell));
        pod.register(cluster, folder).await?;
        progress.say(&format!(
            "{} has a node and a pod now; the demo answers in the place of a kubelet, and runs sh on the site's machine",
            edge.name
        ));
        Ok(pod)
    }

    async fn register(&self, cluster: &EdgeCluster, folder: &Path) -> Result<(), DemoError> {
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE } });
        let container = json!({ "name": POD, "image": POD, "command": ["sh"] });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": POD, "namespace": "default" },
            "spec": { "nodeName": NODE, "containers": [container] },
        });
        let file = folder.join("pod.json");
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": [node, pod] });
        fs::write(&file, list.to_string()).map_err(DemoError::Files)?;
        let address = self.kubelet.address();
        let node_status = json!({ "status": {
            "addresses": [{ "type": "InternalIP", "address": address.ip() }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": address.port() } },
        } });
        let running = json!({ "name": POD, "image": POD, "imageID": "", "restartCount": 0, "ready": true, "state": { "running": {} } });
        let pod_status = json!({ "status": { "phase": "Running", "containerStatuses": [running] } });
        let file = file.display().to_string();
        site(cluster, &["create", "-f", &file]).await?;
        for (kind, name, status) in [("node", NODE, node_status), ("pod", POD, pod_status)] {
            let patch = ["patch", kind, name, "--subresource=status", "--type=merge", "-p"];
            site(cluster, &[patch.as_slice(), &[&status.to_string()]].concat()).await?;
        }
        Ok(())
    }
}

/// Runs kubectl as the site's own administrator, at the site.
pub(super) async fn site(cluster: &EdgeCluster, words: &[&str]) -> Result<(), DemoError> {
    let output = cluster.kubectl(words).await.map_err(ClusterError::from)?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(DemoError::Refused { command: format!("kubectl {}", words.join(" ")), stderr })
}
