//! The way to a cluster: found now, or waited for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use daemon::Home;
use policy::Target;
use proto::ClusterId;
use proto::greeting::Advertised;
use proto::session::HEARTBEAT_IDLE;
use proto::spiffe::AgentId;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use transport::Tunnel;

use super::places::{Outcome, Places};
use super::roster::Entry;
use super::{Enlisting, Registry, advertised, standing};

/// Before work moves away from a tunnel that is only silent, another tunnel of the cluster has been live for so long: a
/// link that comes and goes does not drive work from one tunnel to the other and back.
pub const SETTLED: Duration = Duration::from_secs(10);

/// How long an answer is waited for from the tunnels that could be taken: longer than it takes a tunnel that does not answer to
/// become suspect, idle or not, so that nothing goes to a dead one because it was not yet known to be.
const ANSWER_MAX: Duration = HEARTBEAT_IDLE.saturating_mul(2);

/// After which time it is first looked whether an answer came, and how long at most from one look to the next.
const LOOK_FIRST: Duration = Duration::from_millis(10);
const LOOK_LAST: Duration = Duration::from_millis(160);

/// When a look is due that nothing else brings about: never, in effect.
const FAR: Duration = Duration::from_secs(24 * 3600);

/// The way to a cluster: a tunnel, and the home on which its exchanges run.
#[derive(Clone)]
pub struct Route {
    /// The tunnel's number, which no other tunnel of this process ever bears.
    pub number: u64,
    /// Whose it is.
    pub agent: AgentId,
    /// The tunnel.
    pub tunnel: Tunnel,
    /// Where its exchanges run.
    pub home: Home,
    live: Arc<LiveSince>,
    advertised: Arc<Mutex<Advertised>>,
}

/// Since when a tunnel has been live without a break; `None` while it is not.
pub(super) type LiveSince = watch::Sender<Option<Instant>>;

/// Why there is no way to a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoTunnel {
    /// No agent of it has ever greeted this server.
    #[error("cluster {0} was never seen")]
    NeverSeen(ClusterId),
    /// It was seen before; now its agents are away, or nothing is heard from them.
    #[error("cluster {cluster} is not connected and was last heard of at {}", in_utc(*last_seen))]
    Away {
        /// Which.
        cluster: ClusterId,
        /// When it was last heard of, as far as this server remembers. Whole seconds after a restart.
        last_seen: SystemTime,
    },
    /// It is away, and no place is left in which to wait for it.
    #[error("cluster {0} is not connected, and as many requests wait for it as may")]
    Crowded(ClusterId),
}

impl Registry {
    /// The best way to a cluster now: through a live tunnel, near and idle.
    #[must_use]
    pub fn route(&self, cluster: &ClusterId) -> Option<Route> {
        self.0.rosters.get(cluster)?.best(standing).map(route)
    }

    /// The best way to a cluster. While there is none, waits until `until` for a tunnel that is live again or new, in one
    /// of `places`. Cancel-safe; whoever gives up waiting leaves nothing behind.
    ///
    /// # Errors
    /// `NoTunnel`: at once where the cluster was never seen or no place is left, else at `until`.
    pub async fn route_within(
        &self,
        cluster: &ClusterId,
        until: Instant,
        places: &Places,
    ) -> Result<Route, NoTunnel> {
        if let Some(route) = self.route(cluster) {
            return Ok(route);
        }
        if !self.0.directory.was_seen(cluster) && !self.0.rosters.contains_key(cluster) {
            return Err(NoTunnel::NeverSeen(cluster.clone()));
        }
        if until > Instant::now() {
            let place = places.take(cluster).ok_or_else(|| NoTunnel::Crowded(cluster.clone()))?;
            let route = self.0.returns.found(cluster, until, || self.route(cluster)).await;
            place.leave(if route.is_some() { Outcome::Served } else { Outcome::GaveUp });
            if let Some(route) = route {
                return Ok(route);
            }
        }
        Err(NoTunnel::Away { cluster: cluster.clone(), last_seen: self.last_seen(cluster) })
    }

    /// The way through the live tunnel that answers first, for what is sent again, which is not done often: a tunnel whose
    /// agent died a moment ago looks like any other. Whoever comes meanwhile is asked as well. `None` where no tunnel is left
    /// that could be taken, or none has answered in time. Cancel-safe.
    pub async fn answering_route(&self, cluster: &ClusterId) -> Option<Route> {
        // How much was heard of each tunnel when it was asked, by its number.
        let mut asked = HashMap::new();
        let (until, mut pause) = (Instant::now() + ANSWER_MAX, LOOK_FIRST);
        loop {
            let usable: Vec<Route> = self.0.rosters.get(cluster)?.usable(standing).map(route).collect();
            if usable.is_empty() || Instant::now() >= until {
                return None;
            }
            for route in usable {
                let heard = route.tunnel.heard();
                match asked.get(&route.number) {
                    Some(before) if heard != *before => return Some(route),
                    Some(_) => {}
                    None => {
                        asked.insert(route.number, heard);
                        route.tunnel.nudge();
                    }
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LOOK_LAST);
        }
    }

    /// Resolves when `route`'s tunnel is silent or gone while another tunnel of its cluster has been live for
    /// [`SETTLED`], so that what may be repeated is better repeated there. Cancel-safe.
    pub async fn settled_elsewhere(&self, cluster: &ClusterId, route: &Route) {
        let mut live = route.live.subscribe();
        loop {
            // The registry keeps the sender as long as the route does.
            let _ = live.wait_for(Option::is_none).await;
            let settles = self.settles(cluster);
            let look = || {
                let (is_back, other) = (route.live.borrow().is_some(), self.settles(cluster));
                (is_back || other != settles).then_some(())
            };
            let until = settles.unwrap_or_else(|| Instant::now() + FAR);
            if self.0.returns.found(cluster, until, look).await.is_none() && settles.is_some() {
                return;
            }
        }
    }

    /// Resolves when the process behind `route`'s tunnel stops while another one of its cluster takes exchanges, so that what
    /// would be cut off at the end of its drain, and may be repeated, is better repeated there. Cancel-safe.
    pub async fn relieved(&self, cluster: &ClusterId, route: &Route) {
        let mut live = route.live.subscribe();
        // The registry keeps the sender as long as the route does.
        let _ = live.wait_for(|_| route.tunnel.is_draining()).await;
        let look = || {
            let roster = self.0.rosters.get(cluster)?;
            roster.is_relieved(route.number, standing).then_some(())
        };
        while self.0.returns.found(cluster, Instant::now() + FAR, look).await.is_none() {}
    }

    /// When a tunnel of the cluster was last heard of: at most a heartbeat ago where one is live.
    fn last_seen(&self, cluster: &ClusterId) -> SystemTime {
        let remembered = self.0.directory.last_seen(cluster).unwrap_or(SystemTime::UNIX_EPOCH);
        let heard = self.0.rosters.get(cluster).and_then(|roster| {
            let tunnels = roster.entries().iter().map(|entry| &entry.tunnel.tunnel);
            tunnels.map(last_heard).max()
        });
        heard.map_or(remembered, |heard| heard.max(remembered))
    }

    /// When a tunnel of the cluster will have been, or had been, live for [`SETTLED`], if one is live.
    fn settles(&self, cluster: &ClusterId) -> Option<Instant> {
        let roster = self.0.rosters.get(cluster)?;
        let since = roster.usable(standing).filter_map(|entry| *entry.tunnel.live.borrow()).min();
        since.map(|since| since + SETTLED)
    }
}

/// A time as RFC 3339 writes it.
fn in_utc(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second) = time.to_hms();
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", u8::from(month))
}

fn route(entry: &Entry<Enlisting>) -> Route {
    let Enlisting { tunnel, home, live, advertised, credential: _ } = &entry.tunnel;
    Route {
        number: entry.ticket,
        agent: entry.agent.clone(),
        tunnel: tunnel.clone(),
        home: *home,
        live: Arc::clone(live),
        advertised: Arc::clone(advertised),
    }
}

impl Route {
    /// Whether the tunnel's agent advertises `target` now.
    #[must_use]
    pub fn advertises(&self, target: &Target) -> bool {
        let advertised = self.advertised.lock().unwrap_or_else(PoisonError::into_inner);
        advertised::has(&advertised.endpoints, target)
    }
}

/// When something was last heard through a tunnel.
pub(super) fn last_heard(tunnel: &Tunnel) -> SystemTime {
    SystemTime::now().checked_sub(tunnel.silence()).unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_refused_reads_when_the_cluster_was_last_heard_of() {
        let last_seen = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let away = NoTunnel::Away { cluster: "edge-a".parse().unwrap(), last_seen };

        let expected = "cluster edge-a is not connected and was last heard of at 2023-11-14T22:13:20Z";
        assert_eq!(away.to_string(), expected);
    }
}
