//! The controllers of a cluster: a real kube-controller-manager and a real kube-scheduler.

use super::EdgeCluster;
use super::assets::NodeAssets;
use super::control_plane;
use crate::process::{Process, ProcessError};

/// Both of them, running; they are killed when this is dropped.
#[derive(Debug)]
#[must_use = "the controllers are killed when this is dropped"]
pub struct Controllers {
    manager: Process,
    scheduler: Process,
}

impl EdgeCluster {
    /// Starts both controllers and returns at once. The cluster's [`ClusterOptions`](super::ClusterOptions)
    /// must have them enabled.
    ///
    /// # Errors
    /// If a process does not start.
    pub async fn start_controllers(&self, assets: &NodeAssets) -> Result<Controllers, ProcessError> {
        let manager = control_plane::controller_manager(assets, &self.options, &self.files);
        let scheduler = control_plane::scheduler(assets, &self.options, &self.files);
        Ok(Controllers {
            manager: Process::start(&manager, &self.files.path("kube-controller-manager.log")).await?,
            scheduler: Process::start(&scheduler, &self.files.path("kube-scheduler.log")).await?,
        })
    }
}

impl Controllers {
    /// The last output of each of them, for error messages.
    pub fn tails(&self) -> String {
        let [manager, scheduler] = [&self.manager, &self.scheduler].map(Process::tail);
        format!("kube-controller-manager:\n{manager}\nkube-scheduler:\n{scheduler}")
    }
}
