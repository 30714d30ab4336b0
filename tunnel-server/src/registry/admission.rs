//! Admission of tunnels by the directory, at their beginning and after each of its changes.

use proto::{CloseCode, ClusterId};

use super::tunnels::TunnelEntry;
use super::{RegisterError, RegisteredTunnel, Registry};
use crate::directory::Freshness;

impl Registry {
    /// Most tunnels of all clusters together, as configured.
    #[must_use]
    pub fn tunnels_max(&self) -> usize {
        self.0.tunnels_max
    }

    /// Refuses tunnels that memory is too old for: of every cluster, or of those that it has never met.
    pub(super) fn check_freshness(&self, cluster: &ClusterId) -> Result<(), RegisterError> {
        let directory = &self.0.directory;
        let allowed = if directory.was_seen(cluster) { Freshness::Behind } else { Freshness::Fresh };
        if directory.freshness() <= allowed {
            return Ok(());
        }
        Err(RegisterError::NotFresh { seconds: directory.age().as_secs() })
    }

    /// Closes every tunnel whose agent is no longer admitted, with all its exchanges.
    pub fn disconnect_refused(&self) {
        let mut refused = Vec::new();
        for tunnels in &self.0.by_cluster {
            let is_refused = |entry: &&TunnelEntry<RegisteredTunnel>| {
                self.0.directory.admits(&entry.agent, &entry.tunnel.credential).is_err()
            };
            refused
                .extend(tunnels.entries().iter().filter(is_refused).map(|entry| entry.tunnel.tunnel.clone()));
        }
        refused.iter().for_each(|tunnel| tunnel.close(CloseCode::Revoked));
    }

    /// Applies changes of the directory by other servers to tunnels and to requests that wait, as long as it is polled.
    pub async fn follow_directory(self) {
        let mut changes = self.0.directory.changes();
        // Its sender is in the directory, and so in this registry.
        while changes.changed().await.is_ok() {
            self.disconnect_refused();
            self.0.changes.send_replace(());
            self.0.waiters.all_changed();
        }
    }
}
