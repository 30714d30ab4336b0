//! A pod on the worker: a network namespace with a route to its node, as a CNI plugin makes it.

use std::fs;

use super::LbCluster;
use crate::lab::NamespaceRuntime;
use crate::network::NetworkNamespace;

/// The network of the worker's pods.
pub const POD_NETWORK: &str = "10.244.0.0/16";

/// A pod's network, and code of the test that runs in it.
#[derive(Debug)]
#[must_use = "the pod ends when this is dropped"]
pub struct PodNetwork {
    /// Code of the test that runs in the pod.
    pub inside: NamespaceRuntime,
    _network: NetworkNamespace,
}

impl PodNetwork {
    /// Starts a pod, whose address is `10.244.NUMBER.2`.
    ///
    /// # Panics
    /// If the network cannot be made.
    pub async fn start(cluster: &LbCluster, number: u8) -> Self {
        Self::at(cluster, number, &format!("10.244.{number}")).await
    }

    /// Starts a namespace beside the worker that is no pod: its address is `192.0.2.2`.
    ///
    /// # Panics
    /// If the network cannot be made.
    pub async fn outside(cluster: &LbCluster) -> Self {
        Self::at(cluster, 0, "192.0.2").await
    }

    async fn at(cluster: &LbCluster, number: u8, prefix: &str) -> Self {
        let (worker, device) = (&cluster.worker, format!("veth{number}"));
        let network = NetworkNamespace::new().await.expect("the cluster has some");
        let done = async {
            worker.connect(&device, &network, "eth0").await?;
            worker.ip(&format!("addr add {prefix}.1/24 dev {device}")).await?;
            network.ip(&format!("addr add {prefix}.2/24 dev eth0")).await?;
            network.ip(&format!("route add default via {prefix}.1")).await
        };
        done.await.expect("the network of a pod");
        let forward = async { fs::write("/proc/sys/net/ipv4/ip_forward", "1") };
        cluster.on_worker.run(forward).await.expect("a worker forwards the packets of its pods");
        Self { inside: NamespaceRuntime::new(&network), _network: network }
    }
}
