//! Gives a silent tunnel up beside a live one of the same agent process, so that no stream waits on it for minutes.

use std::time::Duration;

use tokio::time::Instant;

use super::Registration;

/// A tunnel that is silent for this long, while another tunnel of the same agent process is live, is closed. A
/// little less than 30 s, in which its streams have ended.
pub const SILENT_BESIDE_LIVE_MAX: Duration = Duration::from_secs(29);

impl Registration {
    /// Resolves when this tunnel has been silent for [`SILENT_BESIDE_LIVE_MAX`] while another tunnel of its
    /// process was live. Cancel-safe.
    pub async fn given_up(&self) {
        let deadline = |silent_since| {
            self.sibling_live_since().map(|since| since.max(silent_since) + SILENT_BESIDE_LIVE_MAX)
        };
        self.registry.silent_until(&self.cluster, &self.live, deadline).await;
    }

    /// The time since which another tunnel of the same process has been live, of those that take new exchanges.
    fn sibling_live_since(&self) -> Option<Instant> {
        let tunnels = self.registry.0.by_cluster.get(&self.cluster)?;
        let siblings = tunnels.siblings(self.ticket).filter(|sibling| !sibling.tunnel.is_draining());
        siblings.filter_map(|sibling| *sibling.live.borrow()).min()
    }
}
