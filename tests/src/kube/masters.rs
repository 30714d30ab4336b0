//! Further API servers of a cluster in network namespaces of their own, as masters of one control plane.

use std::net::IpAddr;
use std::path::Path;

use super::{ClusterOptions, EdgeCluster, control_plane};
use crate::process::{Process, ProcessError};

impl EdgeCluster {
    /// The process of the cluster's own API server.
    pub fn apiserver_process(&mut self) -> &mut Process {
        &mut self.apiserver
    }

    /// Kills the etcd of events. Every API server then says that it is not ready, and serves all but events.
    ///
    /// # Panics
    /// If the cluster was started without one.
    pub fn kill_events_etcd(&mut self) {
        self.events_etcd.as_mut().expect("it was started with one").kill();
    }

    /// Starts an API server of this cluster, on the same etcd, in a network namespace. It listens on port 6443 of
    /// this address, and advertises it. Returns at once.
    ///
    /// # Errors
    /// The process does not start.
    pub async fn start_apiserver_at(
        &self,
        namespace: &Path,
        address: IpAddr,
        name: &str,
    ) -> Result<Process, ProcessError> {
        let options = ClusterOptions {
            network_namespace: Some(namespace.to_owned()),
            address,
            advertise: address,
            ..self.options.clone()
        };
        let invocation = control_plane::apiserver(&self.assets, &options, self.port, &self.files);
        // The last one of a flag counts.
        let audit = format!("--audit-log-path={}", self.files.path(&format!("audit-{name}.log")).display());
        Process::start(
            &invocation.arguments([audit]),
            &self.files.path(&format!("kube-apiserver-{name}.log")),
        )
        .await
    }
}
