//! kubeadm on the first master of a cluster, which makes what machines that join read.

use std::fs;

use super::command::Ended;
use super::{LB, LbCluster};
use crate::kube::assets::{NodeAssets, pinned_kubernetes};
use crate::process::Invocation;

/// Runs `kubeadm init phase`, so that others may join, with this configuration of kubelets.
///
/// # Panics
/// If kubeadm refuses it.
pub async fn init_phase(
    cluster: &LbCluster,
    assets: &NodeAssets,
    phase: &[&str],
    kubelet: &serde_json::Value,
) {
    let kubeconfig = format!("--kubeconfig={}", cluster.edge.admin_kubeconfig().display());
    // What it would find out of the network and of the machine otherwise.
    let text = format!(
        "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nlocalAPIEndpoint: {{ advertiseAddress: {} }}\nnodeRegistration: {{ name: \
         master, criSocket: unix:///run/containerd/containerd.sock }}\n---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: \
         ClusterConfiguration\nkubernetesVersion: {}\ncontrolPlaneEndpoint: {LB}\n---\n{kubelet}\n",
        cluster.addresses[0],
        pinned_kubernetes(),
    );
    let file = cluster.edge.directory().join("kubeadm.yaml");
    fs::write(&file, text).expect("a file");
    let config = format!("--config={}", file.display());
    let kubeadm = Invocation::of(&assets.kubeadm)
        .arguments(["init", "phase"].iter().chain(phase).copied())
        .arguments([kubeconfig, config])
        .in_network_namespace(Some(cluster.worker.path().to_owned()));
    let ended = Ended::of(&kubeadm).await;
    assert!(ended.is_done, "{}", ended.said);
}
