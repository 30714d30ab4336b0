//! The servers that share their records, as one of them knows all others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use proto::peering::{PeerStatus, RecordsState};
use proto::session::Health;

use super::peer_status::{ClockOffset, KnownPeer};
use crate::directory::RegisteredServer;

/// The state of a server, for administrators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    /// It serves callers and agents.
    Ready,
    /// Its readiness probe fails at the moment.
    NotReady,
    /// It is stopping, and begins nothing new.
    Draining,
    /// It has no news from etcd, and changes nothing.
    Behind,
    /// It has had no news from etcd for so long that it serves nothing new.
    Stale,
    /// It has a session with this server, and tells nothing: the session has been silent for longer than it may be, or the
    /// server's version is an earlier one.
    Silent,
    /// It is registered, and has no session with this server.
    Unreachable,
    /// It is not registered any more, has no session with this server, and still has a number.
    Gone,
}

/// One of the servers, as this one knows it.
#[derive(Debug, Clone)]
pub struct ServerStatus {
    /// The ID of the server.
    pub id: String,
    /// Its state, as this server sees it.
    pub state: ServerState,
    /// True for the server that is asked.
    pub is_own: bool,
    /// The nonce of its process in hexadecimal; empty if it is not registered.
    pub epoch: String,
    /// Name and version of its software; empty if it is not known.
    pub software: String,
    /// The time of its start.
    pub started: Option<SystemTime>,
    /// The address at which other servers dial it.
    pub peering: Option<String>,
    /// The number of its tunnels, as far as it has told this server.
    pub tunnels: Option<usize>,
    /// Its last words about itself.
    pub told: Option<PeerStatus>,
    /// The difference of its clock from this server's.
    pub clock: Option<ClockOffset>,
}

/// The other servers that are registered and take sessions, by the state of their sessions with this one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PeerReach {
    /// The session is open and live.
    pub connected: usize,
    /// The session is open, and silent for longer than it may be.
    pub silent: usize,
    /// There is no session with it.
    pub missing: usize,
}

/// The number of peers that differ from this server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PeerDifferences {
    /// The peers with another policy in force.
    pub policy: usize,
    /// The peers that hand out another trust bundle.
    pub trust_bundle: usize,
}

/// The servers of one moment: those that are registered, and those with a session.
pub(super) struct KnownServers {
    pub(super) registered: BTreeMap<String, Arc<RegisteredServer>>,
    pub(super) sessions: BTreeMap<Arc<str>, KnownPeer>,
    pub(super) own_id: String,
}

impl ServerState {
    /// The state of a server that has told `status` of itself.
    pub(super) fn of(is_draining: bool, status: &PeerStatus) -> Self {
        match (is_draining, status.records, status.is_ready) {
            (true, ..) => Self::Draining,
            (false, RecordsState::Stale, _) => Self::Stale,
            (false, RecordsState::Behind, _) => Self::Behind,
            (false, RecordsState::Fresh, true) => Self::Ready,
            (false, RecordsState::Fresh, false) => Self::NotReady,
        }
    }
}

impl PeerReach {
    /// The number of servers that are counted.
    #[must_use]
    pub fn all(self) -> usize {
        self.connected + self.silent + self.missing
    }
}

impl KnownServers {
    /// Another server that is registered.
    pub(super) fn registered(&self, id: &str, entry: &RegisteredServer) -> ServerStatus {
        let known = self.sessions.get(id);
        let state = match known {
            Some(known) => known.state(entry.draining),
            None if entry.draining => ServerState::Draining,
            None => ServerState::Unreachable,
        };
        ServerStatus {
            epoch: entry.epoch.clone(),
            started: entry.started.time(),
            peering: entry.peering.clone(),
            ..known.map_or_else(
                || ServerStatus { software: entry.software.clone(), ..nothing_known(id, state) },
                |known| told_by(id, state, known),
            )
        }
    }

    /// Another server that is not registered, and still has a number. With a session it is not gone: its registration may have
    /// ended because it cannot reach etcd.
    pub(super) fn unregistered(&self, id: &str) -> ServerStatus {
        match self.sessions.get(id) {
            Some(known) => told_by(id, known.state(false), known),
            None => nothing_known(id, ServerState::Gone),
        }
    }

    /// Counts the other servers by the state of their sessions.
    pub(super) fn reach(&self) -> PeerReach {
        let mut reach = PeerReach::default();
        for id in self.others() {
            match self.sessions.get(id).map(|known| known.health) {
                Some(Health::Live) => reach.connected += 1,
                Some(Health::Suspect | Health::Lost) => reach.silent += 1,
                None => reach.missing += 1,
            }
        }
        reach
    }

    /// Compares the other servers with what this one has.
    pub(super) fn differences(&self, own: &PeerStatus) -> PeerDifferences {
        let known: Vec<&KnownPeer> = self.others().filter_map(|id| self.sessions.get(id)).collect();
        let told = || known.iter().filter_map(|known| known.status.as_ref());
        PeerDifferences {
            policy: told().filter(|status| status.policy != own.policy).count(),
            trust_bundle: told().filter(|status| status.trust_bundle != own.trust_bundle).count(),
        }
    }

    /// The IDs of the other servers that are registered and take sessions.
    fn others(&self) -> impl Iterator<Item = &str> {
        let others = self.registered.iter();
        let others = others.filter(|(id, entry)| **id != self.own_id && entry.peering.is_some());
        others.map(|(id, _)| id.as_str())
    }
}

impl KnownPeer {
    fn state(&self, is_marked_as_draining: bool) -> ServerState {
        let is_draining = is_marked_as_draining || self.is_draining;
        match (self.health, &self.status) {
            (Health::Live, Some(status)) => ServerState::of(is_draining, status),
            (Health::Live | Health::Suspect | Health::Lost, _) if is_draining => ServerState::Draining,
            (Health::Live, None) | (Health::Suspect | Health::Lost, _) => ServerState::Silent,
        }
    }
}

fn told_by(id: &str, state: ServerState, known: &KnownPeer) -> ServerStatus {
    ServerStatus {
        software: known.software.clone(),
        tunnels: Some(known.tunnels),
        told: known.status.clone(),
        clock: known.clock,
        ..nothing_known(id, state)
    }
}

fn nothing_known(id: &str, state: ServerState) -> ServerStatus {
    ServerStatus {
        id: id.to_owned(),
        state,
        is_own: false,
        epoch: String::new(),
        software: String::new(),
        started: None,
        peering: None,
        tunnels: None,
        told: None,
        clock: None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proto::peering::FileDigest;

    use super::*;

    #[test]
    fn a_server_is_ready_only_if_it_is_fresh_and_does_not_stop() {
        use {RecordsState as R, ServerState as S};
        for (is_draining, records, is_ready, expected) in [
            (false, R::Fresh, true, S::Ready),
            (false, R::Fresh, false, S::NotReady),
            (false, R::Behind, true, S::Behind),
            (false, R::Stale, false, S::Stale),
            (true, R::Stale, false, S::Draining),
        ] {
            let status = PeerStatus { records, is_ready, ..told() };
            assert_eq!(ServerState::of(is_draining, &status), expected);
        }
    }

    #[test]
    fn registered_servers_are_counted_by_their_sessions_and_this_one_is_not() {
        let mut known = servers(&["own", "a", "b", "c", "alone"]);
        let mut alone = entry();
        alone.peering = None;
        known.registered.insert("alone".to_owned(), Arc::new(alone));
        known.sessions.insert("a".into(), peer(told()));
        known.sessions.insert("b".into(), KnownPeer { health: Health::Suspect, ..peer(told()) });
        // Its registration has ended, and its session not yet.
        known.sessions.insert("left".into(), peer(told()));

        assert_eq!(known.reach(), PeerReach { connected: 1, silent: 1, missing: 1 });
        let state = |id: &str| known.registered(id, &entry()).state;
        assert_eq!((state("a"), state("c")), (ServerState::Ready, ServerState::Unreachable));
    }

    /// One that runs an earlier version tells nothing, and one that is frozen tells nothing new.
    #[test]
    fn a_server_that_tells_nothing_of_itself_is_silent_unless_it_stops() {
        let mut known = servers(&["own", "a", "b"]);
        known.sessions.insert("a".into(), KnownPeer { status: None, ..peer(told()) });
        known.sessions.insert("b".into(), KnownPeer { health: Health::Suspect, ..peer(told()) });

        assert_eq!(known.registered("a", &entry()).state, ServerState::Silent);
        assert_eq!(known.registered("b", &entry()).state, ServerState::Silent);
        let stopping = RegisteredServer { draining: true, ..entry() };
        assert_eq!(known.registered("a", &stopping).state, ServerState::Draining);
        assert_eq!(known.differences(&told()), PeerDifferences::default());
    }

    /// It may be cut off from etcd alone, and serves.
    #[test]
    fn a_server_that_is_not_registered_is_gone_only_without_a_session() {
        let mut known = servers(&["own"]);
        let behind = PeerStatus { records: RecordsState::Behind, ..told() };
        known.sessions.insert("a".into(), peer(behind));

        let (cut_off, gone) = (known.unregistered("a"), known.unregistered("b"));
        assert_eq!((cut_off.state, cut_off.tunnels), (ServerState::Behind, Some(2)));
        assert_eq!((gone.state, gone.tunnels), (ServerState::Gone, None));
    }

    #[test]
    fn digests_of_peers_are_compared_with_those_of_this_server() {
        let mut known = servers(&["own", "a", "b"]);
        let other = PeerStatus { policy: FileDigest([9; 32]), ..told() };
        known.sessions.insert("a".into(), peer(other));
        known.sessions.insert("b".into(), peer(PeerStatus { trust_bundle: None, ..told() }));

        let expected = PeerDifferences { policy: 1, trust_bundle: 1 };
        assert_eq!(known.differences(&told()), expected);
    }

    fn servers(ids: &[&str]) -> KnownServers {
        let registered = ids.iter().map(|id| ((*id).to_owned(), Arc::new(entry()))).collect();
        KnownServers { registered, sessions: BTreeMap::new(), own_id: "own".to_owned() }
    }

    fn entry() -> RegisteredServer {
        let record = serde_json::json!({
            "level": 1,
            "epoch": "07",
            "keysMark": "",
            "software": "tunnel-server/1",
            "started": 1,
            "addresses": [],
            "peering": "a.example:8446",
            "draining": false,
        });
        serde_json::from_value(record).unwrap()
    }

    fn peer(status: PeerStatus) -> KnownPeer {
        KnownPeer {
            software: "tunnel-server/1".to_owned(),
            health: Health::Live,
            is_draining: false,
            tunnels: 2,
            status: Some(status),
            clock: None,
        }
    }

    fn told() -> PeerStatus {
        PeerStatus {
            is_ready: true,
            records: RecordsState::Fresh,
            records_age: Duration::ZERO,
            policy: FileDigest([1; 32]),
            trust_bundle: Some(FileDigest([2; 32])),
            peers: 2,
            peers_connected: 2,
        }
    }
}
