//! A cluster with every entry point to its API server, shared by the tests of clients.

use std::sync::{Arc, Weak};

use tests::entry_points::{DialListeners, EntryPoints};
use tests::kube::EdgeCluster;
use tests::kube::kubectl::Kubectl;
use tests::rig::{Agent, ApiServer, GROUP, Rig};
use tokio::sync::Mutex;

const CLUSTER: &str = "edge-a";

/// A cluster, and what leads to it.
pub(super) struct ClusterEntryPoints {
    pub(super) cluster: EdgeCluster,
    pub(super) rig: Rig,
    entry_points: EntryPoints,
    _agent: Agent,
}

impl ClusterEntryPoints {
    /// Those that are there, or new ones: trials that run beside each other share them.
    pub(super) async fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<ClusterEntryPoints>> = Mutex::const_new(Weak::new());
        let mut shared = SHARED.lock().await;
        if let Some(entry_points) = shared.upgrade() {
            return entry_points;
        }
        let entry_points = Arc::new(Self::start().await);
        *shared = Arc::downgrade(&entry_points);
        entry_points
    }

    async fn start() -> Self {
        let cluster = EdgeCluster::start().await.unwrap();
        let account = cluster.create_agent_account().await.unwrap();
        cluster.make_admins(GROUP).await;
        let target = cluster.address().to_string();
        let mut rig = Rig::start().await;
        let listeners = DialListeners::of(&mut rig, CLUSTER, &target).await;
        let api = ApiServer::of(&cluster, &account);
        let agent = rig.agent_with(CLUSTER, &api, &format!("targets: [{target:?}]\n")).await;
        rig.connected(CLUSTER).await;
        let entry_points = EntryPoints::open(&rig, &listeners, &cluster, CLUSTER, &target).await;
        Self { cluster, rig, entry_points, _agent: agent }
    }

    /// A kubectl that comes by one of the ways.
    pub(super) fn kubectl(&self, entry_point: &str) -> Kubectl {
        self.entry_points.kubectl(&self.cluster, entry_point)
    }

    /// Makes something to be seen.
    pub(super) async fn make(&self, config_map: &str) {
        self.cluster.admin().stdout(&["create", "configmap", config_map]).await;
    }
}
