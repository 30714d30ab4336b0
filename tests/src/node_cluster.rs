//! A cluster with a node at a site, where nothing of ours runs yet.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::kube::controllers::Controllers;
use crate::kube::kubectl::Kubectl;
use crate::kube::{ClusterOptions, EdgeCluster};
use crate::lab::{Lab, Site, Uplink};
use crate::node::{self, Node, NodeOptions};

/// The address that each cluster's control plane and node take for their own.
pub const CONTROL_PLANE: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 168, 1, 10), 6443);
/// The limit for one kubectl. Builds of other tests may run beside.
pub const KUBECTL_MAX: Duration = Duration::from_secs(120);

/// A control plane with its controllers and one node.
#[derive(Debug)]
#[must_use = "all of it ends when this is dropped"]
pub struct NodeCluster {
    // The node goes before what it talks to.
    /// The node of the cluster.
    pub node: Node,
    /// A kubectl of an administrator, at the site and at the API server itself.
    pub direct: Kubectl,
    /// The controllers of the cluster.
    pub controllers: Controllers,
    /// The control plane of the cluster.
    pub cluster: EdgeCluster,
    /// The machine is the site's pod.
    pub site: Site,
}

impl NodeCluster {
    /// Starts one in a lab, behind this uplink. Its pods resolve names by `resolver`, if there is one.
    ///
    /// # Panics
    /// If something does not start.
    pub async fn start(lab: &Lab, name: &str, uplink: Uplink, resolver: Option<Ipv4Addr>) -> Self {
        let site = lab.site(name, uplink).await;
        let (address, port) = CONTROL_PLANE;
        site.pod().ip(&format!("addr add {address}/32 dev lo")).await.expect("an address can be added");
        let place = ClusterOptions {
            network_namespace: Some(site.pod().path().to_owned()),
            address: address.into(),
            port: Some(port),
            advertise: address.into(),
            has_controllers: true,
            ..ClusterOptions::default()
        };
        let cluster = EdgeCluster::start_at(place).await.expect("a cluster starts");
        let assets = node::assets().expect("they were there before");
        let controllers = cluster.start_controllers(&assets).await.expect("controllers start");
        let node_name = format!("{name}-node");
        let options = NodeOptions { name: &node_name, resolver, ..NodeOptions::default() };
        let node = Node::start(site.pod(), &cluster, &options).await;
        let node = node.unwrap_or_else(|error| panic!("{name}: {error}\n{}", controllers.tails()));
        let direct = cluster.admin().limit(KUBECTL_MAX);
        Self { node, direct, controllers, cluster, site }
    }
}
