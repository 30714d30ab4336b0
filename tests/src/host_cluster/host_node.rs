//! A node of the host cluster: kubelet and containerd with shared images, and kube-proxy.

use super::SiteMachine;
use crate::kube::EdgeCluster;
use crate::kube::assets::NodeAssets;
use crate::lab::NamespaceRuntime;
use crate::node::{ImageStore, Node, NodeOptions, processes_in};
use crate::process::Process;

/// A node of the host cluster.
#[derive(Debug)]
#[must_use = "the node is removed when this is dropped"]
pub struct HostNode {
    // The processes go before their network.
    _kube_proxy: Process,
    /// kubelet, containerd and the pods.
    pub node: Node,
    /// Code of the test that runs in the node's network, as pods of the host's network do.
    pub inside: NamespaceRuntime,
    /// The node's network and address.
    pub machine: SiteMachine,
    /// The name of the Node.
    pub name: String,
}

impl HostNode {
    /// Starts the node with this number at its machine.
    ///
    /// # Panics
    /// If it does not start.
    pub(super) async fn start(
        edge: &EdgeCluster,
        assets: &NodeAssets,
        images: &ImageStore,
        machine: SiteMachine,
        number: usize,
    ) -> Self {
        let name = format!("host-{number}");
        let pods = machine.pods();
        let options = NodeOptions {
            name: &name,
            address: Some(machine.address.into()),
            pods: &pods,
            has_kube_proxy: true,
            images: Some(images),
            ..NodeOptions::default()
        };
        let node = Node::start(&machine.network, edge, &options).await;
        let node = node.unwrap_or_else(|error| panic!("{name}: {error}"));
        let kube_proxy = edge.start_kube_proxy(assets, &name, &machine.network).await;
        let inside = NamespaceRuntime::new(&machine.network);
        Self { _kube_proxy: kube_proxy, node, inside, machine, name }
    }

    /// The processes of this program in pods of the node, such as `kube-apiserver`, by their ids on this machine.
    pub fn processes(&self, program: &str) -> Vec<u32> {
        processes_in(self.node.cgroups(), program)
    }
}
