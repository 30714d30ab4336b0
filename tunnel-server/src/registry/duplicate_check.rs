//! Detects whether an earlier process of an agent is still alive when the agent greets as a new process.
//!
//! An agent that was killed and restarted leaves tunnels behind that look alive for a while. If such a tunnel
//! still answers, two processes use one certificate at the same time: the key was copied, or two agents were
//! given the same certificate. The earlier process may have its tunnels at other servers, which are asked.

use std::future::pending;
use std::time::Duration;

use proto::CloseCode;
use proto::peering::ProbeOutcome;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use transport::Tunnel;

use super::Registration;
use crate::config::CopiedKey;

/// An earlier tunnel that was silent for this long is given up, or for three round trips if those take
/// longer.
pub const PROBATION: Duration = Duration::from_millis(1_500);

/// Answers within this time do not count, because the earlier process may have sent them before it ended.
const STRAGGLERS: Duration = Duration::from_millis(500);

/// The interval at which an answer is requested and looked for.
const NUDGE_EVERY: Duration = Duration::from_millis(100);

/// The result of a check for duplicate processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a tunnel that is refused is to be closed"]
pub enum DuplicateCheck {
    /// The earlier tunnels did not answer and were closed, or they are draining by themselves.
    NoDuplicate,
    /// An earlier process answers, so the new tunnel must be closed.
    NewRefused,
    /// An earlier process answered, and its tunnels were closed in favour of the new one.
    OldReplaced,
}

/// The changes that the last check for duplicate processes has seen. The next one waits for a further change.
#[derive(Debug)]
pub struct SeenProcesses(watch::Receiver<Option<Instant>>);

impl Registration {
    /// Checks whether an earlier process of this tunnel's agent still answers, here or at another server. If none does,
    /// its tunnels are closed as lost, so that their exchanges end or move, and this tunnel receives exchanges from then
    /// on. After the first check, it waits until another server tells of a process that has to be looked for.
    pub async fn check_duplicates(&self, seen: Option<SeenProcesses>) -> (DuplicateCheck, SeenProcesses) {
        let seen = match seen {
            None => SeenProcesses(self.live.subscribe()),
            Some(mut seen) => {
                while seen.0.changed().await.is_ok() {
                    if !self.others_elsewhere().is_empty() {
                        return (self.check_now().await, seen);
                    }
                }
                // The tunnel ends.
                pending().await
            }
        };
        (self.check_now().await, seen)
    }

    async fn check_now(&self) -> DuplicateCheck {
        self.close_superseded();
        let earlier = self.live_earlier_tunnels();
        let here = async {
            match (is_any_alive(&earlier).await, self.registry.0.copied_key) {
                (false, _) => ProbeOutcome::NoDuplicate,
                (true, CopiedKey::RefuseNew) => ProbeOutcome::NewRefused,
                (true, CopiedKey::PreferNew) => ProbeOutcome::OldReplaced,
            }
        };
        let (here, elsewhere) = tokio::join!(here, self.ask_elsewhere());
        match here.max(elsewhere) {
            ProbeOutcome::NoDuplicate => {
                self.take_over(&earlier, CloseCode::Lost);
                DuplicateCheck::NoDuplicate
            }
            ProbeOutcome::OldReplaced => {
                self.mark_key_copied();
                self.take_over(&earlier, CloseCode::Replaced);
                DuplicateCheck::OldReplaced
            }
            ProbeOutcome::NewRefused => {
                self.mark_key_copied();
                self.registry.changed(&self.cluster);
                DuplicateCheck::NewRefused
            }
        }
    }

    /// Marks both processes that share a certificate.
    fn mark_key_copied(&self) {
        if let Some(mut tunnels) = self.registry.0.by_cluster.get_mut(&self.cluster) {
            tunnels.mark_key_copied(self.ticket);
        }
    }

    /// Lets this tunnel receive exchanges in place of the `earlier` ones, and closes those.
    fn take_over(&self, earlier: &[Tunnel], code: CloseCode) {
        // In this order, so that exchanges of the earlier tunnel find this one.
        self.end_probation();
        self.abandon_earlier_processes();
        earlier.iter().filter(|old| !old.is_draining()).for_each(|old| old.close(code));
    }

    /// The tunnels of earlier processes that may be alive and do not drain.
    fn live_earlier_tunnels(&self) -> Vec<Tunnel> {
        let tunnels = self.registry.0.by_cluster.get(&self.cluster);
        let earlier =
            tunnels.as_ref().into_iter().flat_map(|tunnels| tunnels.of_earlier_processes(self.ticket));
        earlier.map(|old| &old.tunnel).filter(|old| old.serves()).cloned().collect()
    }

    /// Nobody waits for answers of an earlier process, unless it drains: then it still answers.
    fn abandon_earlier_processes(&self) {
        if let Some(tunnels) = self.registry.0.by_cluster.get(&self.cluster) {
            let earlier = tunnels.of_earlier_processes(self.ticket);
            earlier.filter(|old| !old.tunnel.is_draining()).for_each(|old| old.inquiry.abandon());
        }
    }

    fn end_probation(&self) {
        if let Some(mut tunnels) = self.registry.0.by_cluster.get_mut(&self.cluster) {
            tunnels.end_probation(self.ticket);
        }
        self.registry.changed(&self.cluster);
    }
}

/// Waits for a sign of life of tunnels of earlier processes. Returns false if none has answered, or all have begun to drain.
pub(super) async fn is_any_alive(earlier: &[Tunnel]) -> bool {
    if earlier.is_empty() {
        return false;
    }
    let slowest = earlier.iter().map(Tunnel::round_trip).max().unwrap_or_default();
    sleep(STRAGGLERS + slowest).await;
    let heard: Vec<u64> = earlier.iter().map(Tunnel::heard).collect();
    let answers = || earlier.iter().zip(&heard).any(|(tunnel, heard)| tunnel.heard() != *heard);
    let given_up = Instant::now() + PROBATION.max(slowest * 3);
    while Instant::now() < given_up {
        earlier.iter().for_each(Tunnel::nudge);
        sleep(NUDGE_EVERY).await;
        // A process that has begun to drain meanwhile shuts down in good order.
        if answers() && earlier.iter().any(Tunnel::serves) {
            return true;
        }
    }
    false
}

/// The longest time that such a wait takes, for tunnels of this round trip.
pub(super) fn longest_check(round_trip: Duration) -> Duration {
    STRAGGLERS + round_trip + PROBATION.max(round_trip * 3) + NUDGE_EVERY
}
