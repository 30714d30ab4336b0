//! Whether anybody still stands behind the tunnels of an agent that greets as another process.
//!
//! An agent that was killed and started again leaves tunnels behind that look alive for a while. Where they answer, two
//! processes use one certificate at the same time: a copied key, or two agents that were given the same one.

use std::time::Duration;

use proto::CloseCode;
use proto::session::Health;
use tokio::time::{Instant, sleep};
use transport::Tunnel;

use super::Enlisted;
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
pub enum Probed {
    /// Nobody stands behind the earlier tunnels, which were closed, or they stop by themselves.
    Alone,
    /// An earlier process answers, and this one is to go.
    Refused,
    /// An earlier process answered, and had to go.
    Preferred,
}

impl Enlisted {
    /// Finds out whether an earlier process of this tunnel's agent still answers. If none does, its tunnels are closed as
    /// lost, so that what waits on them ends or goes on elsewhere, and this tunnel takes exchanges from then on.
    pub async fn probe(&self) -> Probed {
        self.close_left_behind();
        let before = self.answerable();
        if !before.is_empty() {
            let slowest = before.iter().map(Tunnel::round_trip).max().unwrap_or_default();
            sleep(STRAGGLERS + slowest).await;
            let heard: Vec<u64> = before.iter().map(Tunnel::heard).collect();
            let answers = || before.iter().zip(&heard).any(|(tunnel, heard)| tunnel.heard() != *heard);
            let given_up = Instant::now() + PROBATION.max(slowest * 3);
            while Instant::now() < given_up {
                before.iter().for_each(Tunnel::nudge);
                sleep(NUDGE_EVERY).await;
                // One that has begun to stop meanwhile stops in good order.
                if answers() && before.iter().any(is_answerable) {
                    return self.judge_copy(&before);
                }
            }
        }
        self.take_over(&before, CloseCode::Lost);
        Probed::Alone
    }

    /// Two processes use one certificate: both are marked, and one goes.
    fn judge_copy(&self, before: &[Tunnel]) -> Probed {
        if let Some(mut roster) = self.registry.0.rosters.get_mut(&self.cluster) {
            roster.flag(self.ticket);
        }
        match self.registry.0.copied_key {
            CopiedKey::RefuseNew => {
                self.registry.changed(&self.cluster);
                Probed::Refused
            }
            CopiedKey::PreferNew => {
                self.take_over(before, CloseCode::Replaced);
                Probed::Preferred
            }
        }
    }

    /// Has this tunnel take exchanges in place of those before it, which are closed.
    fn take_over(&self, before: &[Tunnel], code: CloseCode) {
        // In this order: what waits on an earlier tunnel finds this one.
        self.trust();
        before.iter().filter(|old| !old.is_draining()).for_each(|old| old.close(code));
    }

    /// The tunnels of earlier processes that could be alive and do not stop.
    fn answerable(&self) -> Vec<Tunnel> {
        let roster = self.registry.0.rosters.get(&self.cluster);
        let before = roster.as_ref().into_iter().flat_map(|roster| roster.before(self.ticket));
        before.map(|old| &old.tunnel).filter(|old| is_answerable(old)).cloned().collect()
    }

    fn trust(&self) {
        if let Some(mut roster) = self.registry.0.rosters.get_mut(&self.cluster) {
            roster.trust(self.ticket);
        }
        self.registry.changed(&self.cluster);
    }
}

fn is_answerable(tunnel: &Tunnel) -> bool {
    tunnel.health() == Health::Live && !tunnel.is_draining()
}
