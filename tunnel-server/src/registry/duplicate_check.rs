//! Whether anybody still stands behind the tunnels of an agent that greets as another process.
//!
//! An agent that was killed and started again leaves tunnels behind that look alive for a while. Where they answer, two
//! processes use one certificate at the same time: a copied key, or two agents that were given the same one.

use std::time::Duration;

use proto::CloseCode;
use proto::session::Health;
use tokio::time::{Instant, sleep};
use transport::Tunnel;

use super::Registration;
use crate::config::CopiedKey;

/// An earlier tunnel that is not heard for so long is given up; for three round trips, where those take longer.
pub const PROBATION: Duration = Duration::from_millis(1_500);

/// Not counted: what a process has sent before its end and this server has not looked at yet.
const STRAGGLERS: Duration = Duration::from_millis(500);

/// How often it is asked for an answer, and looked whether one was heard.
const NUDGE_EVERY: Duration = Duration::from_millis(100);

/// What became of a probation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a tunnel that is refused is to be closed"]
pub enum DuplicateCheck {
    /// Nobody stands behind the earlier tunnels, which were closed, or they stop by themselves.
    NoDuplicate,
    /// An earlier process answers, and this one is to go.
    NewRefused,
    /// An earlier process answered, and had to go.
    OldReplaced,
}

impl Registration {
    /// Finds out whether an earlier process of this tunnel's agent still answers. If none does, its tunnels are closed as
    /// lost, so that what waits on them ends or goes on elsewhere, and this tunnel takes exchanges from then on.
    pub async fn check_duplicates(&self) -> DuplicateCheck {
        self.close_superseded();
        let earlier = self.live_earlier_tunnels();
        if !earlier.is_empty() {
            let slowest = earlier.iter().map(Tunnel::round_trip).max().unwrap_or_default();
            sleep(STRAGGLERS + slowest).await;
            let heard: Vec<u64> = earlier.iter().map(Tunnel::heard).collect();
            let answers = || earlier.iter().zip(&heard).any(|(tunnel, heard)| tunnel.heard() != *heard);
            let given_up = Instant::now() + PROBATION.max(slowest * 3);
            while Instant::now() < given_up {
                earlier.iter().for_each(Tunnel::nudge);
                sleep(NUDGE_EVERY).await;
                // One that has begun to stop meanwhile stops in good order.
                if answers() && earlier.iter().any(may_be_alive) {
                    return self.resolve_duplicate(&earlier);
                }
            }
        }
        self.take_over(&earlier, CloseCode::Lost);
        DuplicateCheck::NoDuplicate
    }

    /// Two processes use one certificate: both are marked, and one goes.
    fn resolve_duplicate(&self, earlier: &[Tunnel]) -> DuplicateCheck {
        if let Some(mut tunnels) = self.registry.0.by_cluster.get_mut(&self.cluster) {
            tunnels.mark_key_copied(self.ticket);
        }
        match self.registry.0.copied_key {
            CopiedKey::RefuseNewcomer => {
                self.registry.changed(&self.cluster);
                DuplicateCheck::NewRefused
            }
            CopiedKey::PreferNewcomer => {
                self.take_over(earlier, CloseCode::Replaced);
                DuplicateCheck::OldReplaced
            }
        }
    }

    /// Has this tunnel take exchanges in place of those before it, which are closed.
    fn take_over(&self, earlier: &[Tunnel], code: CloseCode) {
        // In this order: what waits on an earlier tunnel finds this one.
        self.end_probation();
        earlier.iter().filter(|old| !old.is_draining()).for_each(|old| old.close(code));
    }

    /// The tunnels of earlier processes that could be alive and do not stop.
    fn live_earlier_tunnels(&self) -> Vec<Tunnel> {
        let tunnels = self.registry.0.by_cluster.get(&self.cluster);
        let earlier =
            tunnels.as_ref().into_iter().flat_map(|tunnels| tunnels.of_earlier_processes(self.ticket));
        earlier.map(|old| &old.tunnel).filter(|old| may_be_alive(old)).cloned().collect()
    }

    fn end_probation(&self) {
        if let Some(mut tunnels) = self.registry.0.by_cluster.get_mut(&self.cluster) {
            tunnels.end_probation(self.ticket);
        }
        self.registry.changed(&self.cluster);
    }
}

fn may_be_alive(tunnel: &Tunnel) -> bool {
    tunnel.health() == Health::Live && !tunnel.is_draining()
}
