//! Tells the other servers of this server's tunnels and of the records that it has, as they change, and of itself.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proto::peering::{CallerShare, PeerMessage, PeerStatus, PoolDelta, RemoteTunnel};
use tokio::time::{MissedTickBehavior, interval, sleep};
use transport::Tunnel;

use crate::registry::{OwnServer, Registry};

/// The time between two deltas. A cluster that comes back is reachable through every server as soon.
const TOLD_EVERY: Duration = Duration::from_millis(50);

/// The time between two looks at distances and streams, whose changes nobody is notified of.
const FIGURES_EVERY: Duration = Duration::from_secs(2);

/// The time between two words about this server's clock.
const CLOCK_TOLD_EVERY: Duration = Duration::from_secs(1);

/// The time between two words of this server about its state.
const STATUS_EVERY: Duration = Duration::from_secs(2);

/// Smaller differences between distances are noise.
const DISTANCE_NOISE: Duration = Duration::from_millis(2);

/// Smaller differences between numbers of streams are not worth a message.
const STREAMS_NOISE: u32 = 4;

/// Tells all sessions of the same changes. Clones share them.
#[derive(Clone)]
pub(super) struct Teller(Arc<SharedTeller>);

struct SharedTeller {
    own: OwnServer,
    registry: Registry,
    told: Mutex<Told>,
}

/// The sessions, and the tunnels as all of them know them.
#[derive(Default)]
struct Told {
    /// By the numbers of their [`ToldSession`].
    sessions: HashMap<u64, Tunnel>,
    next_session: u64,
    tunnels: HashMap<u64, RemoteTunnel>,
    revision: u64,
    /// The newest revision of the records that all sessions were told of.
    applied: Option<i64>,
    is_draining: bool,
}

/// A session that is told of changes until this is dropped.
#[must_use = "the session is told of nothing more when this is dropped"]
pub(super) struct ToldSession {
    teller: Teller,
    number: u64,
}

impl Teller {
    pub(super) fn new(own: OwnServer, registry: Registry) -> Self {
        Self(Arc::new(SharedTeller { own, registry, told: Mutex::default() }))
    }

    /// Tells a new session of everything, and then of each change.
    pub(super) fn join(&self, session: Tunnel) -> ToldSession {
        let mut told = self.told();
        // Nobody was told while there was no session.
        told.refresh(self.0.registry.own_tunnels());
        let all = told.tunnels.values().cloned().collect();
        tell(&session, &PoolDelta::split(true, told.revision, all, Vec::new()));
        if told.is_draining {
            drain(&session);
        }
        tell_clock(&session);
        if let Some(revision) = told.applied {
            tell_applied(&session, revision);
        }
        tell_status(&session, &self.0.own.status());
        let number = told.next_session;
        told.next_session += 1;
        told.sessions.insert(number, session);
        ToldSession { teller: self.clone(), number }
    }

    /// Tells all sessions that this server is stopping.
    pub(super) fn drain(&self) {
        let mut told = self.told();
        told.is_draining = true;
        told.sessions.values().for_each(drain);
    }

    /// Tells of each revision that this server's memory reaches, as long as it is polled: so that a server that has revoked
    /// somebody knows where this is in force.
    pub(super) async fn run_applied(self) {
        let directory = self.0.registry.directory().clone();
        let mut revision = 0;
        loop {
            revision = directory.applied_after(revision).await;
            self.told().tell_applied(revision);
            // Revisions of this time are told together.
            sleep(TOLD_EVERY).await;
        }
    }

    /// The number of sessions with other servers.
    pub(super) fn sessions(&self) -> usize {
        self.told().sessions.len()
    }

    /// Tells all sessions of the callers who use much of a limit here.
    pub(super) fn tell_usage(&self, shares: &[CallerShare]) {
        for session in self.told().sessions.values() {
            // As with tunnels: a session that does not take it ends.
            let _ = session.tell_peer(PeerMessage::Usage(shares.to_vec()));
        }
    }

    /// Tells of this server's time, as long as it is polled.
    pub(super) async fn run_clock(self) {
        let mut ticks = interval(CLOCK_TOLD_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.told().sessions.values().for_each(tell_clock);
        }
    }

    /// Tells all sessions of this server's state as long as it is polled.
    pub(super) async fn run_status(self) {
        let mut ticks = interval(STATUS_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let status = self.0.own.status();
            self.told().sessions.values().for_each(|session| tell_status(session, &status));
        }
    }

    /// Tells of changes as long as it is polled.
    pub(super) async fn run(self) {
        let mut changes = self.0.registry.changes();
        let mut figures = interval(FIGURES_EVERY);
        figures.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.tell_changes();
            // Changes of this time are told together.
            sleep(TOLD_EVERY).await;
            // Both arms are cancel-safe: a change stays marked as unseen, and a tick comes again.
            tokio::select! {
                // The registry, which this holds, has the sender.
                _ = changes.changed() => {}
                _ = figures.tick() => {}
            }
        }
    }

    fn tell_changes(&self) {
        let mut told = self.told();
        if !told.sessions.is_empty() {
            told.refresh(self.0.registry.own_tunnels());
        }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Told {
    /// Tells all sessions of a revision that this server's memory has reached.
    fn tell_applied(&mut self, revision: i64) {
        self.applied = Some(revision);
        self.sessions.values().for_each(|session| tell_applied(session, revision));
    }

    /// Tells all sessions of what differs from the tunnels of `now`.
    fn refresh(&mut self, now: Vec<RemoteTunnel>) {
        let (added, removed) = difference(&self.tunnels, now);
        if added.is_empty() && removed.is_empty() {
            return;
        }
        for number in &removed {
            self.tunnels.remove(number);
        }
        for tunnel in &added {
            self.tunnels.insert(tunnel.number, tunnel.clone());
        }
        self.revision += 1;
        let deltas = PoolDelta::split(false, self.revision, added, removed);
        self.sessions.values().for_each(|session| tell(session, &deltas));
    }
}

impl Drop for ToldSession {
    fn drop(&mut self) {
        self.teller.told().sessions.remove(&self.number);
    }
}

/// Tells a session. One that does not take it ends, and the next one begins with a full copy.
fn tell(session: &Tunnel, deltas: &[PoolDelta]) {
    let told = |delta: &PoolDelta| session.tell_peer(PeerMessage::Tunnels(delta.clone())).is_ok();
    // The first that is not taken ends the session.
    let _ = deltas.iter().all(told);
}

fn drain(session: &Tunnel) {
    // As above.
    let _ = session.tell_peer(PeerMessage::Draining);
}

fn tell_clock(session: &Tunnel) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let unix_millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    // As above.
    let _ = session.tell_peer(PeerMessage::Clock { unix_millis });
}

fn tell_applied(session: &Tunnel, revision: i64) {
    // As above.
    let _ = session.tell_peer(PeerMessage::Applied { revision });
}

fn tell_status(session: &Tunnel, status: &PeerStatus) {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let clock = PeerMessage::Clock { unix_millis: u64::try_from(millis).unwrap_or(u64::MAX) };
    // As above.
    let _ = session.tell_peer(clock);
    let _ = session.tell_peer(PeerMessage::Status(status.clone()));
}

/// The tunnels that are new or differ, and the numbers of those that are gone.
fn difference(before: &HashMap<u64, RemoteTunnel>, now: Vec<RemoteTunnel>) -> (Vec<RemoteTunnel>, Vec<u64>) {
    let mut gone: HashSet<u64> = before.keys().copied().collect();
    let mut added = Vec::new();
    for tunnel in now {
        gone.remove(&tunnel.number);
        if before.get(&tunnel.number).is_none_or(|before| is_worth_telling(before, &tunnel)) {
            added.push(tunnel);
        }
    }
    (added, gone.into_iter().collect())
}

/// Returns true if a choice between tunnels may depend on the change.
fn is_worth_telling(before: &RemoteTunnel, now: &RemoteTunnel) -> bool {
    let distance = before.distance.abs_diff(now.distance);
    if distance > DISTANCE_NOISE && distance > before.distance / 4 {
        return true;
    }
    let streams = before.streams_open.abs_diff(now.streams_open);
    if streams > STREAMS_NOISE && streams > before.streams_open / 2 {
        return true;
    }
    let figures =
        RemoteTunnel { distance: before.distance, streams_open: before.streams_open, ..now.clone() };
    figures != *before
}

#[cfg(test)]
mod tests {
    use proto::greeting::{Advertised, BootNonce};
    use proto::spiffe::AgentId;

    use super::*;

    #[test]
    fn only_new_changed_and_ended_tunnels_are_told() {
        let before = HashMap::from([(1, tunnel(1)), (2, tunnel(2)), (3, tunnel(3))]);
        let draining = RemoteTunnel { is_draining: true, ..tunnel(2) };

        let (added, removed) = difference(&before, vec![tunnel(1), draining.clone(), tunnel(4)]);

        assert_eq!((added, removed), (vec![draining, tunnel(4)], vec![3]));
    }

    #[test]
    fn noise_of_figures_is_not_told() {
        let before = tunnel(1);
        let with = |distance_ms, streams_open| RemoteTunnel {
            distance: Duration::from_millis(distance_ms),
            streams_open,
            ..tunnel(1)
        };
        for (distance_ms, streams, is_told) in
            [(40, 10, false), (49, 10, false), (51, 10, true), (40, 15, false), (40, 16, true), (40, 0, true)]
        {
            let is_worth = is_worth_telling(&before, &with(distance_ms, streams));
            assert_eq!(is_worth, is_told, "{distance_ms} ms, {streams} streams");
        }
    }

    fn tunnel(number: u64) -> RemoteTunnel {
        RemoteTunnel {
            number,
            agent: AgentId::parse("spiffe://tombolo/cluster/edge-a/agent/x", "tombolo").unwrap(),
            boot: BootNonce([7; 16]),
            sequence: 1,
            serial: "1".to_owned(),
            issued: 5,
            advertised: Advertised::default(),
            is_live: true,
            is_on_probation: false,
            is_draining: false,
            distance: Duration::from_millis(40),
            streams_open: 10,
            version: "0.1.0".to_owned(),
            since: Some(6),
            capabilities: proto::Capabilities::OWN,
        }
    }
}
