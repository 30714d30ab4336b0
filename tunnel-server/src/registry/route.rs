//! Finds a route to a cluster, at once or after a wait.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use proto::ClusterId;
use proto::inquiry::StreamFate;
use proto::peering::RemoteTunnel;
use proto::session::HEARTBEAT_IDLE;
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};

use super::Registry;
use super::live_since::LiveSince;
use super::wait_queue::{WaitOutcome, WaitQueue};
use super::way::{Route, last_heard};
use crate::directory::{AgentCredential, Tombstone, UnixSeconds};

/// Another tunnel must have been live for this long before work moves to it from a silent tunnel. A link that
/// flaps therefore does not move work back and forth.
pub const STABLE_AFTER: Duration = Duration::from_secs(10);

/// The longest wait for an answer from the usable tunnels. It exceeds the time after which a dead tunnel
/// becomes suspect, idle or not, so that nothing is sent to a tunnel that is dead but not yet known to be.
const ANSWER_MAX: Duration = HEARTBEAT_IDLE.saturating_mul(2);

/// The first wait between two looks for an answer, and the longest one.
const POLL_FIRST: Duration = Duration::from_millis(10);
const POLL_MAX: Duration = Duration::from_millis(160);

/// The deadline of a wait that only a change may end: in effect never.
const UNBOUNDED: Duration = Duration::from_secs(24 * 3600);

/// The reason why there is no route to a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// No agent of this cluster has ever connected to this server.
    #[error("cluster {0} was never seen")]
    NeverSeen(ClusterId),
    /// The cluster was deleted by an administrator.
    #[error("cluster {cluster} was deleted at {}{}", in_utc(*deleted), undelete(cluster, *is_reserved))]
    Deleted {
        /// The cluster that was asked for.
        cluster: ClusterId,
        /// The time of the deletion. Whole seconds.
        deleted: SystemTime,
        /// True while the name is reserved, so that the cluster can be brought back.
        is_reserved: bool,
    },
    /// The cluster was seen before, but its agents are away or silent now.
    #[error("cluster {cluster} is not connected and was last heard of at {}", in_utc(*last_seen))]
    Away {
        /// The cluster that was asked for.
        cluster: ClusterId,
        /// The time of the last sign of life that this server knows. Whole seconds after a restart.
        last_seen: SystemTime,
    },
    /// The cluster is away, and its wait queue is full.
    #[error("cluster {0} is not connected, and its queue of waiting requests is full")]
    QueueFull(ClusterId),
}

impl Registry {
    /// The best route to a cluster now, through a live tunnel with a short round trip and little work.
    #[must_use]
    pub fn route(&self, cluster: &ClusterId) -> Option<Route> {
        // A hop costs the other server work, too.
        self.route_here(cluster).or_else(|| self.route_at_peer(cluster))
    }

    /// The best route through a tunnel to this server.
    #[must_use]
    pub fn route_here(&self, cluster: &ClusterId) -> Option<Route> {
        self.0.by_cluster.get(cluster)?.best().map(Route::here)
    }

    fn route_at_peer(&self, cluster: &ClusterId) -> Option<Route> {
        self.0.at_peers.best(cluster, |tunnel| self.admits_at_peer(tunnel)).map(Route::at_peer)
    }

    /// Returns true if another server has a usable tunnel to the cluster.
    pub(super) fn is_at_peer(&self, cluster: &ClusterId) -> bool {
        self.0.at_peers.has_usable(cluster, |tunnel| self.admits_at_peer(tunnel))
    }

    /// Returns true if this server, too, admits the agent of another one's tunnel: that one may not know of a revocation yet.
    fn admits_at_peer(&self, tunnel: &RemoteTunnel) -> bool {
        let credential =
            AgentCredential { serial: tunnel.serial.clone(), issued: UnixSeconds(tunnel.issued) };
        self.0.directory.admits(&tunnel.agent, &credential).is_ok()
    }

    /// The routes of all usable tunnels, those of this server first.
    fn usable(&self, cluster: &ClusterId) -> Vec<Route> {
        let here = self.0.by_cluster.get(cluster);
        let here = here.iter().flat_map(|tunnels| tunnels.usable().map(Route::here)).collect::<Vec<_>>();
        let at_peers = self.0.at_peers.usable(cluster, |tunnel| self.admits_at_peer(tunnel));
        here.into_iter().chain(at_peers.into_iter().map(Route::at_peer)).collect()
    }

    /// The best route to a cluster. If there is none, waits in `queue` until `until` for a tunnel that
    /// becomes live. Cancel-safe: dropping the future leaves the queue.
    ///
    /// # Errors
    /// `RouteError`: at once if the cluster was never seen or was deleted, or the queue is full, else at `until`.
    pub async fn route_within(
        &self,
        cluster: &ClusterId,
        until: Instant,
        queue: &WaitQueue,
    ) -> Result<Route, RouteError> {
        if let Some(route) = self.route(cluster) {
            return Ok(route);
        }
        if !self.0.directory.was_seen(cluster)
            && !self.0.by_cluster.contains_key(cluster)
            && !self.0.at_peers.knows(cluster)
        {
            return Err(self.not_here(cluster));
        }
        if until > Instant::now() {
            let slot = queue.enter(cluster).ok_or_else(|| RouteError::QueueFull(cluster.clone()))?;
            let route = self.0.waiters.wait_for(cluster, until, || self.route(cluster)).await;
            slot.finish(if route.is_some() { WaitOutcome::Served } else { WaitOutcome::GaveUp });
            if let Some(route) = route {
                return Ok(route);
            }
        }
        Err(RouteError::Away { cluster: cluster.clone(), last_seen: self.last_seen(cluster) })
    }

    /// The route through the live tunnel that answers first. It is for requests that are sent a second time,
    /// because a tunnel whose agent has just died looks like any other. Tunnels that open meanwhile are asked
    /// too. `None` if no usable tunnel is left, or none answers in time. Cancel-safe.
    pub async fn answering_route(&self, cluster: &ClusterId) -> Option<Route> {
        // What each tunnel had received when it was asked, by its ticket.
        let mut asked = HashMap::new();
        let (until, mut pause) = (Instant::now() + ANSWER_MAX, POLL_FIRST);
        loop {
            let usable = self.usable(cluster);
            if usable.is_empty() || Instant::now() >= until {
                return None;
            }
            for route in usable {
                match asked.get(&route.ticket()) {
                    Some(heard) if route.has_answered_since(*heard) => return Some(route),
                    Some(_) => {}
                    None => {
                        asked.insert(route.ticket(), route.ask_for_answer());
                    }
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(POLL_MAX);
        }
    }

    /// Resolves when `route`'s tunnel is silent or gone while another tunnel of its cluster has been live for
    /// [`STABLE_AFTER`]. A repeatable request is then better repeated there. Cancel-safe.
    pub async fn stable_elsewhere(&self, cluster: &ClusterId, route: &Route) {
        self.silent_until(cluster, route.live(), |_| self.stable_at(cluster)).await;
    }

    /// Resolves when the tunnel of `live` has been silent or gone until a deadline, which `deadline` makes of
    /// the beginning of its silence. It is asked again after each change of `cluster`. Cancel-safe.
    pub(super) async fn silent_until(
        &self,
        cluster: &ClusterId,
        live: &LiveSince,
        deadline: impl Fn(Instant) -> Option<Instant>,
    ) {
        let mut changes = live.subscribe();
        loop {
            // The sender is borrowed, so it cannot be closed.
            let _ = changes.wait_for(Option::is_none).await;
            let silent_since = Instant::now();
            while live.borrow().is_none() {
                let due = deadline(silent_since);
                let look = || {
                    // Not borrowed any more when `deadline` is asked, which may borrow it again.
                    let is_back = live.borrow().is_some();
                    (is_back || deadline(silent_since) != due).then_some(())
                };
                let until = due.unwrap_or_else(|| Instant::now() + UNBOUNDED);
                let changed = self.0.waiters.wait_for(cluster, until, look).await;
                if changed.is_none() && due.is_some() {
                    return;
                }
            }
        }
    }

    /// Resolves when the process behind `route`'s tunnel drains while another process of its cluster takes
    /// exchanges. A repeatable request, which the end of the drain would cut off, is then better repeated
    /// there. Cancel-safe.
    pub async fn successor_ready(&self, cluster: &ClusterId, route: &Route) {
        let mut live = route.live().subscribe();
        // The route holds the sender too, so it cannot be closed.
        let _ = live.wait_for(|_| route.is_draining()).await;
        let look = || self.has_successor(cluster, route).then_some(());
        while self.0.waiters.wait_for(cluster, Instant::now() + UNBOUNDED, look).await.is_none() {}
    }

    /// The reason why no agent of the cluster is known.
    fn not_here(&self, cluster: &ClusterId) -> RouteError {
        let cluster = cluster.clone();
        let Some(Tombstone { deleted, reserved_until }) = self.0.directory.tombstone(&cluster) else {
            return RouteError::NeverSeen(cluster);
        };
        let is_reserved = UnixSeconds::from(SystemTime::now()) < reserved_until;
        RouteError::Deleted {
            cluster,
            deleted: deleted.time().unwrap_or(SystemTime::UNIX_EPOCH),
            is_reserved,
        }
    }

    /// The time of the last sign of life from the cluster, at most a heartbeat ago while a tunnel is live.
    fn last_seen(&self, cluster: &ClusterId) -> SystemTime {
        let remembered = self.0.directory.last_seen(cluster).unwrap_or(SystemTime::UNIX_EPOCH);
        let heard = self.0.by_cluster.get(cluster).and_then(|tunnels| {
            let tunnels = tunnels.entries().iter().map(|entry| &entry.tunnel.tunnel);
            tunnels.map(last_heard).max()
        });
        heard.map_or(remembered, |heard| heard.max(remembered))
    }

    /// The time at which a live tunnel of the cluster counts as stable, which may have passed. `None` if no
    /// tunnel is live.
    fn stable_at(&self, cluster: &ClusterId) -> Option<Instant> {
        let since = self.usable(cluster).iter().filter_map(Route::live_since).min();
        since.map(|since| since + STABLE_AFTER)
    }

    /// Returns true if something else than the draining tunnel of `route` takes exchanges.
    fn has_successor(&self, cluster: &ClusterId, route: &Route) -> bool {
        if route.is_here() {
            let tunnels = self.0.by_cluster.get(cluster);
            return tunnels.is_some_and(|tunnels| tunnels.has_successor(route.ticket()));
        }
        // Where the other server drains, the agent's same process serves by another server.
        self.usable(cluster).iter().any(|other| other.ticket() != route.ticket())
    }
}

/// Resolves once `fate` is the agent's promise that it has not begun a stream and never will. Never resolves
/// if the stream may have begun: its answer is awaited where it is. Cancel-safe if `fate` is.
pub(crate) async fn never_begun(fate: impl Future<Output = StreamFate>) {
    if fate.await == StreamFate::MayHaveBegun {
        std::future::pending::<()>().await;
    }
}

/// Advice that follows the message about a deleted cluster, while it can be brought back.
fn undelete(cluster: &ClusterId, is_reserved: bool) -> String {
    if !is_reserved {
        return String::new();
    }
    format!("; an operator can bring it back by `tombolo cluster undelete {cluster}`")
}

/// Formats a time as RFC 3339 does, in UTC.
fn in_utc(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second) = time.to_hms();
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", u8::from(month))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_caller_reads_when_the_cluster_was_last_seen() {
        let last_seen = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let away = RouteError::Away { cluster: "edge-a".parse().unwrap(), last_seen };

        let expected = "cluster edge-a is not connected and was last heard of at 2023-11-14T22:13:20Z";
        assert_eq!(away.to_string(), expected);
    }

    #[test]
    fn a_caller_of_a_deleted_cluster_reads_when_and_how_it_comes_back() {
        let deleted = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let message = |is_reserved| {
            let cluster = "edge-a".parse().unwrap();
            RouteError::Deleted { cluster, deleted, is_reserved }.to_string()
        };

        let gone = "cluster edge-a was deleted at 2023-11-14T22:13:20Z";
        assert_eq!(message(false), gone);
        let advice = "; an operator can bring it back by `tombolo cluster undelete edge-a`";
        assert_eq!(message(true), format!("{gone}{advice}"));
    }
}
