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
    /// It has a session with this server, and tells nothing of itself: its version is an earlier one.
    Silent,
    /// It is registered, and has no session with this server.
    Unreachable,
    /// It is not registered any more, and still has a number.
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
    /// The nonce of its process in hexadecimal; empty if it is gone.
    pub epoch: String,
    /// Name and version of its software; empty if it is gone.
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
        let is_draining = entry.draining || known.is_some_and(|known| known.is_draining);
        let told = known.and_then(|known| known.status.clone());
        let state = match (&told, known) {
            (Some(status), _) => ServerState::of(is_draining, status),
            (None, _) if is_draining => ServerState::Draining,
            (None, Some(_)) => ServerState::Silent,
            (None, None) => ServerState::Unreachable,
        };
        ServerStatus {
            id: id.to_owned(),
            state,
            is_own: false,
            epoch: entry.epoch.clone(),
            software: known.map_or_else(|| entry.software.clone(), |known| known.software.clone()),
            started: entry.started.time(),
            peering: entry.peering.clone(),
            tunnels: known.map(|known| known.tunnels),
            told,
            clock: known.and_then(|known| known.clock),
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

/// A server that has a number and is not registered.
pub(super) fn gone(id: String) -> ServerStatus {
    ServerStatus {
        id,
        state: ServerState::Gone,
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

    /// One that runs an earlier version tells nothing.
    #[test]
    fn a_server_that_tells_nothing_of_itself_is_silent_unless_it_stops() {
        let mut known = servers(&["own", "a"]);
        known.sessions.insert("a".into(), KnownPeer { status: None, ..peer(told()) });

        assert_eq!(known.registered("a", &entry()).state, ServerState::Silent);
        let stopping = RegisteredServer { draining: true, ..entry() };
        assert_eq!(known.registered("a", &stopping).state, ServerState::Draining);
        assert_eq!(known.differences(&told()), PeerDifferences::default());
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
