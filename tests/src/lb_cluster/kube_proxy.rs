//! A real kube-proxy on the worker, in its mode `nftables`.

use std::fs;
use std::time::Duration;

use serde_json::json;
use tokio::time::{sleep, timeout};

use super::{LOOK_EVERY, LbCluster};
use crate::kube::assets::{MissingAssets, NodeAssets};
use crate::kube::kubeconfig::{Credential, Kubeconfig};
use crate::process::{Invocation, Process, run};

/// The name of the worker's Node.
const NODE: &str = "worker";

/// Longest wait for its rules.
const RULES_MAX: Duration = Duration::from_secs(60);

/// Longest run of the program `nft`.
const NFT_MAX: Duration = Duration::from_secs(10);

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
        let program = NodeAssets::find()?.kube_proxy;
        let folder = cluster.edge.directory();
        let credential = Credential::Certificate(cluster.administrator());
        let server = format!("https://{}", cluster.socket(0));
        let (kubeconfig, config) = (folder.join("kube-proxy.conf"), folder.join("kube-proxy.yaml"));
        let written = Kubeconfig { server: &server, ca_pem: cluster.edge.ca_pem(), credential: &credential };
        written.write(&kubeconfig).expect("a file");
        // With these settings of conntrack it leaves the machine's sysctls alone.
        let configuration = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
            "mode": "nftables", "nftables": { "masqueradeAll": true },
            "clientConnection": { "kubeconfig": kubeconfig }, "hostnameOverride": NODE,
            "conntrack": { "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s" },
        });
        fs::write(&config, configuration.to_string()).expect("a file");
        let node = folder.join("node.json");
        let object = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE } });
        fs::write(&node, object.to_string()).expect("a file");
        let admin = cluster.edge.admin();
        admin.stdout(&["apply", "-f", &node.display().to_string()]).await;
        let status = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "10.7.1.1" }] } });
        admin.stdout(&["patch", "node", NODE, "--subresource=status", "-p", &status.to_string()]).await;

        let proxy = Invocation::of(program)
            .arguments([format!("--config={}", config.display())])
            .in_network_namespace(Some(cluster.worker.path().to_owned()));
        let log = folder.join("kube-proxy.log");
        let process = Process::start(&proxy, &log).await.expect("kube-proxy starts");
        let has_rules = async {
            while !ruleset(cluster).await.contains("default/kubernetes/tcp/https") {
                sleep(LOOK_EVERY).await;
            }
        };
        if timeout(RULES_MAX, has_rules).await.is_err() {
            panic!("kube-proxy has no rules: {}", fs::read_to_string(&log).unwrap_or_default());
        }
        Ok(Self(process))
    }
}

/// All rules of nftables on the worker.
///
/// # Panics
/// If `nft` cannot be run.
pub async fn ruleset(cluster: &LbCluster) -> String {
    let nft = Invocation::of("nft")
        .arguments(["list", "ruleset"])
        .in_network_namespace(Some(cluster.worker.path().to_owned()));
    let output = run(&nft, NFT_MAX).await.expect("nft runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
