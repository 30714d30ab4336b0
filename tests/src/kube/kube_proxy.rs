//! A real kube-proxy for a node, in its mode `nftables`.

use std::fs;
use std::time::Duration;

use serde_json::json;
use tokio::time::{sleep, timeout};

use super::EdgeCluster;
use super::assets::NodeAssets;
use super::kubeconfig::Credential;
use crate::network::NetworkNamespace;
use crate::process::{Invocation, Process, run};

/// Longest wait for its rules. Builds of other tests may run beside.
const RULES_MAX: Duration = Duration::from_secs(60);

/// Pause between two looks at the rules.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Longest run of the program `nft`.
const NFT_MAX: Duration = Duration::from_secs(10);

impl EdgeCluster {
    /// Starts kube-proxy for the Node of this name in its network, and waits for the rules of the first Service. The rules
    /// stay in the network when the process ends.
    ///
    /// # Panics
    /// If it does not serve.
    pub async fn start_kube_proxy(
        &self,
        assets: &NodeAssets,
        node: &str,
        network: &NetworkNamespace,
    ) -> Process {
        let folder = self.directory();
        let credential = Credential::Certificate(self.issue_user("kube-proxy", &["system:masters"]));
        let kubeconfig =
            self.write_kubeconfig(&format!("kube-proxy-{node}.conf"), credential).expect("a file");
        // With these settings of conntrack it leaves the machine's sysctls alone.
        let configuration = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
            "mode": "nftables", "nftables": { "masqueradeAll": true },
            "clientConnection": { "kubeconfig": kubeconfig }, "hostnameOverride": node,
            "conntrack": { "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s" },
        });
        let config = folder.join(format!("kube-proxy-{node}.yaml"));
        fs::write(&config, configuration.to_string()).expect("a file");
        let proxy = Invocation::of(&assets.kube_proxy)
            .arguments([format!("--config={}", config.display())])
            .in_network_namespace(Some(network.path().to_owned()));
        let log = folder.join(format!("kube-proxy-{node}.log"));
        let process = Process::start(&proxy, &log).await.expect("kube-proxy starts");
        let has_rules = async {
            while !ruleset(network).await.contains("default/kubernetes/tcp/https") {
                sleep(LOOK_EVERY).await;
            }
        };
        if timeout(RULES_MAX, has_rules).await.is_err() {
            panic!("kube-proxy of {node} has no rules: {}", process.tail());
        }
        process
    }
}

/// All rules of nftables in a network.
///
/// # Panics
/// If `nft` cannot be run.
pub async fn ruleset(network: &NetworkNamespace) -> String {
    let nft = Invocation::of("nft")
        .arguments(["list", "ruleset"])
        .in_network_namespace(Some(network.path().to_owned()));
    let output = run(&nft, NFT_MAX).await.expect("nft runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
