//! A real kube-apiserver with an agent, and the direct and the tunneled route to it.

use std::error::Error;

use ::tests::kube::EdgeCluster;
use ::tests::rig::{ApiServer, GROUP};

use crate::rig::{TunnelRig, USER};
use crate::route::{DIRECT, Destination, Http, Route};

/// The binding that gives the callers' group every right in the cluster.
const ADMINS: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: tombolo-admins }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin }
subjects: [{ apiGroup: rbac.authorization.k8s.io, kind: Group, name: \"tombolo:admins\" }]
";

/// A cluster that the same user of the same group reaches directly and through the tunnel.
#[derive(Debug)]
pub struct TestCluster {
    cluster: EdgeCluster,
    /// The server and the agent between callers and the cluster.
    pub tunneled: TunnelRig,
}

impl TestCluster {
    /// Starts the cluster, the server and the agent.
    ///
    /// # Errors
    /// The cluster does not start. `tests/kube/build` must have built its programs.
    pub async fn start() -> Result<Self, Box<dyn Error>> {
        let cluster = EdgeCluster::start().await?;
        let account = cluster.create_agent_account().await?;
        let admins = cluster.directory().join("admins.yaml");
        std::fs::write(&admins, ADMINS)?;
        cluster.admin().stdout(&["apply", "-f", &admins.display().to_string()]).await;
        let tunneled = TunnelRig::start(&ApiServer::of(&cluster, &account), 1, "").await;
        Ok(Self { cluster, tunneled })
    }

    /// The direct and the tunneled route to this path.
    pub async fn routes(&mut self, small: &str) -> [Route; 2] {
        let target = self.cluster.process_ids()[0];
        let tunnel = self.tunneled.route("tunnel", Http::Two, small, None, target).await;
        [self.direct(small), tunnel]
    }

    /// Stops the server and the agent, then the cluster.
    ///
    /// # Errors
    /// The cluster does not stop.
    pub async fn stop(self) -> Result<(), Box<dyn Error>> {
        drop(self.tunneled);
        Ok(self.cluster.stop().await?)
    }

    /// The direct route, with a client certificate of the cluster's own CA.
    fn direct(&self, small: &str) -> Route {
        let destination = Destination {
            address: self.cluster.address(),
            ca_pem: self.cluster.ca_pem().to_owned(),
            identity: Some(self.cluster.issue_user(USER, &[GROUP])),
            http: Http::Two,
            via: None,
        };
        let (small, target) = (vec![destination.uri(small)], self.cluster.process_ids()[0]);
        Route { name: DIRECT.to_owned(), destination, small, bulk: None, daemons: None, target }
    }
}
