//! Gives a silent tunnel up beside a live one of the same agent process, so that no stream waits on it for minutes.

use std::time::Duration;

use tokio::time::Instant;

use super::Registration;
use super::route::UNBOUNDED;

/// A tunnel that is silent for this long, while another tunnel of the same agent process is live, is closed. A
/// little less than 30 s, in which its streams have ended.
pub const SILENT_BESIDE_LIVE_MAX: Duration = Duration::from_secs(29);

impl Registration {
    /// Resolves when this tunnel has been silent for [`SILENT_BESIDE_LIVE_MAX`] while another tunnel of its
    /// process was live. Cancel-safe.
    pub async fn given_up(&self) {
        let mut live = self.live.subscribe();
        loop {
            // The sender is ours, so it cannot be closed.
            let _ = live.wait_for(Option::is_none).await;
            let silent_since = Instant::now();
            while self.live.borrow().is_none() {
                let sibling = self.sibling_live_since();
                let until = sibling.map(|since| since.max(silent_since) + SILENT_BESIDE_LIVE_MAX);
                let look = || {
                    let has_changed = self.live.borrow().is_some() || self.sibling_live_since() != sibling;
                    has_changed.then_some(())
                };
                let deadline = until.unwrap_or_else(|| Instant::now() + UNBOUNDED);
                let changed = self.registry.0.waiters.wait_for(&self.cluster, deadline, look).await;
                if changed.is_none() && until.is_some() {
                    return;
                }
            }
        }
    }

    /// The time since which another tunnel of the same process has been live, of those that take new exchanges.
    fn sibling_live_since(&self) -> Option<Instant> {
        let tunnels = self.registry.0.by_cluster.get(&self.cluster)?;
        let siblings = tunnels.siblings(self.ticket).filter(|sibling| !sibling.tunnel.is_draining());
        siblings.filter_map(|sibling| *sibling.live.borrow()).min()
    }
}
