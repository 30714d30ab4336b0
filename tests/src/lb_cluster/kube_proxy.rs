//! A real kube-proxy on the worker.

use std::fs;

use serde_json::json;

use super::LbCluster;
use crate::kube::assets::{MissingAssets, NodeAssets};
use crate::kube::kube_proxy;
use crate::process::Process;

/// The name of the worker's Node.
const NODE: &str = "worker";

/// kube-proxy with its rules. It ends when this is dropped, and its rules stay.
#[derive(Debug)]
#[must_use = "kube-proxy ends when this is dropped"]
pub struct KubeProxy(#[expect(dead_code, reason = "the process ends with this")] Process);

impl KubeProxy {
    /// Starts it with the API server of the first master, whose certificate bears its own address, and waits for its
    /// rules.
    ///
    /// # Errors
    /// The program is missing.
    ///
    /// # Panics
    /// If it does not serve.
    pub async fn start(cluster: &LbCluster) -> Result<Self, MissingAssets> {
        let assets = NodeAssets::find()?;
        let node = cluster.edge.directory().join("node.json");
        let object = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE } });
        fs::write(&node, object.to_string()).expect("a file");
        let admin = cluster.edge.admin();
        admin.stdout(&["apply", "-f", &node.display().to_string()]).await;
        let status = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "10.7.1.1" }] } });
        admin.stdout(&["patch", "node", NODE, "--subresource=status", "-p", &status.to_string()]).await;
        Ok(Self(cluster.edge.start_kube_proxy(&assets, NODE, &cluster.worker).await))
    }
}

/// All rules of nftables on the worker.
///
/// # Panics
/// If `nft` cannot be run.
pub async fn ruleset(cluster: &LbCluster) -> String {
    kube_proxy::ruleset(&cluster.worker).await
}
