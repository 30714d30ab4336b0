//! The place of a node in its cluster and in its network.

use std::net::{IpAddr, Ipv4Addr};

use super::settings::PODS;
use super::store::ImageStore;

/// Options of a node. The default is the only node of a cluster, on the machine of the API server.
#[derive(Debug, Clone)]
pub struct NodeOptions<'a> {
    /// The name of the Node and of its machine.
    pub name: &'a str,
    /// The node's own address; `None` is that of the API server.
    pub address: Option<IpAddr>,
    /// The network of its pods, which no other node of the cluster has.
    pub pods: &'a str,
    /// The address of a DNS server, by which the pods resolve names.
    pub resolver: Option<Ipv4Addr>,
    /// True if kube-proxy will run on the machine. Otherwise the Service of the API server is imitated.
    pub has_kube_proxy: bool,
    /// The images that the node has from its start, beside those that it gets later.
    pub images: Option<&'a ImageStore>,
}

impl Default for NodeOptions<'_> {
    fn default() -> Self {
        Self { name: "node", address: None, pods: PODS, resolver: None, has_kube_proxy: false, images: None }
    }
}
