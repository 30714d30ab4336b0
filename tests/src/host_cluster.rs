//! A host cluster at one site: three nodes with real kubelet, containerd and kube-proxy, which carry the control planes of
//! tenants as pods.

use std::fs;
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};

use crate::kube::assets::Assets;
use crate::kube::controllers::Controllers;
use crate::kube::kubectl::Kubectl;
use crate::kube::{ClusterOptions, EdgeCluster};
use crate::network::NetworkError;
use crate::node::{self, NodeUnavailable};

pub mod agents;
pub mod cloud_line;
mod host_node;
mod images;
mod site_network;
mod storage;
pub mod tenant;
pub mod worker;

pub use host_node::HostNode;
pub use site_network::{SiteMachine, SiteNetwork};
pub use storage::STORAGE_CLASS;

/// The number of nodes that carry control planes.
pub const NODES: usize = 3;

/// The port of the host cluster's API server.
const PORT: u16 = 6443;

/// The number of the first node's address; the others follow.
const FIRST_NODE: u8 = 11;

/// The number of the first address of further machines.
const FIRST_MACHINE: u8 = 101;

/// The limit for one kubectl. Builds of other tests may run beside.
pub const KUBECTL_MAX: Duration = Duration::from_secs(120);

/// Held by the only host cluster of a process. The kubelets and runtimes of one have half of the inotify instances that a user may have.
static ALONE: Mutex<()> = Mutex::const_new(());

/// A control plane with its controllers, and three nodes. All of it ends when this is dropped.
#[derive(Debug)]
#[must_use = "all of it ends when this is dropped"]
pub struct HostCluster {
    // The nodes go before what they talk to, and the network goes last.
    /// The nodes, in the order of their addresses.
    pub nodes: Vec<HostNode>,
    /// A kubectl of an administrator of the host cluster, beside its API server.
    pub admin: Kubectl,
    /// The controllers of the host cluster.
    pub controllers: Controllers,
    /// The control plane of the host cluster.
    pub edge: EdgeCluster,
    /// The network of all machines. The control plane is at its first address.
    pub network: SiteNetwork,
    machines: u8,
    _alone: MutexGuard<'static, ()>,
}

/// This machine can have no host cluster.
#[derive(Debug, thiserror::Error)]
pub enum HostUnavailable {
    /// There are no network namespaces here.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A program of a node is missing, or the right to run it.
    #[error(transparent)]
    Node(#[from] NodeUnavailable),
}

impl HostCluster {
    /// Starts one, with all images of a control plane on each node, and with volumes of [`STORAGE_CLASS`]. It waits until no other one is in
    /// this process.
    ///
    /// # Errors
    /// [`HostUnavailable`], where that is not possible.
    ///
    /// # Panics
    /// If something does not start.
    pub async fn start() -> Result<Self, HostUnavailable> {
        Self::start_with_releases(&[]).await
    }

    /// The same with the images of further releases of Kubernetes on each node, such as `v1.36.2`: these are the pinned programs, which
    /// say that they are of that release.
    ///
    /// # Errors
    /// [`HostUnavailable`], where that is not possible.
    ///
    /// # Panics
    /// If something does not start.
    pub async fn start_with_releases(others: &[&str]) -> Result<Self, HostUnavailable> {
        let alone = ALONE.lock().await;
        let node_assets = node::assets()?;
        let assets = Assets::find().map_err(NodeUnavailable::from)?;
        let network = SiteNetwork::new().await?;
        let options = ClusterOptions {
            network_namespace: Some(network.core().path().to_owned()),
            address: SiteNetwork::CORE.into(),
            port: Some(PORT),
            advertise: SiteNetwork::CORE.into(),
            has_controllers: true,
            ..ClusterOptions::default()
        };
        let (images, edge) = tokio::join!(
            images::store(&network, &node_assets, &assets, others),
            EdgeCluster::start_at(options)
        );
        let (images, edge) = (images.expect("images"), edge.expect("a cluster starts"));
        let controllers = edge.start_controllers(&node_assets).await.expect("the controllers start");
        let mut places = Vec::new();
        for number in 0..u8::try_from(NODES).expect("few") {
            places.push(network.machine(FIRST_NODE + number).await?);
        }
        SiteNetwork::join_pods(&places).await?;
        let nodes = (0..)
            .zip(places)
            .map(|(number, machine)| HostNode::start(&edge, &node_assets, &images, machine, number));
        let nodes: Vec<_> = join_all(nodes).await;
        let admin = edge.admin().limit(KUBECTL_MAX);
        let cluster = Self { nodes, admin, controllers, edge, network, machines: 0, _alone: alone };
        storage::provide(&cluster).await;
        Ok(cluster)
    }

    /// Adds a machine to the network that is no node of the host cluster, such as a worker of a tenant.
    ///
    /// # Errors
    /// [`NetworkError`].
    pub async fn add_machine(&mut self) -> Result<SiteMachine, NetworkError> {
        let number = FIRST_MACHINE + self.machines;
        self.machines += 1;
        self.network.machine(number).await
    }

    /// Gives each node the label by which the control planes of tenants choose it.
    ///
    /// # Panics
    /// If the API server refuses it.
    pub async fn label_nodes(&self) {
        self.admin.stdout(&["label", "nodes", "--all", "tombolo.dev/control-planes=true"]).await;
    }

    /// Applies objects, each as one item of a List.
    ///
    /// # Panics
    /// If the API server refuses one.
    pub async fn apply(&self, objects: &[Value]) {
        let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        let file =
            tempfile::Builder::new().suffix(".json").tempfile_in(self.edge.directory()).expect("a file");
        fs::write(file.path(), list.to_string()).expect("a file");
        self.admin.stdout(&["apply", "-f", path_text(file.path())]).await;
    }

    /// Waits until all pods of an owner such as `statefulset/etcd` are ready.
    ///
    /// # Panics
    /// With the state of the pods, if they are not within [`KUBECTL_MAX`].
    pub async fn rolled_out(&self, namespace: &str, owner: &str) {
        let words = ["rollout", "status", owner, "--namespace", namespace, "--timeout=110s"];
        let output = self.admin.run(&words).await.expect("kubectl");
        if output.status.success() {
            return;
        }
        let pods = self.admin.stdout(&["describe", "pods", "--namespace", namespace]).await;
        let log = ["logs", owner, "--namespace", namespace, "--tail=30", "--all-pods"];
        let log = self.admin.run(&log).await.expect("kubectl");
        panic!(
            "{owner}: {}\n{pods}\n{}\n{}",
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&log.stdout),
            self.controllers.tails()
        );
    }
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("a path of letters")
}
