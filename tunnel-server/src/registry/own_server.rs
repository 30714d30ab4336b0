//! This server, as it tells the others of itself, and the list of all servers from its point of view.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use daemon::Readiness;
use proto::peering::{FileDigest, PeerInfo, PeerStatus, RecordsState};
use tokio::sync::watch;

use super::Registry;
use super::servers::{KnownServers, PeerDifferences, PeerReach, ServerState, ServerStatus};
use crate::config::file_digest;
use crate::directory::{Freshness, RegisteredServer};

/// This server among those that share its records. Clones are the same one.
#[derive(Clone)]
pub struct OwnServer(Arc<OwnServerParts>);

/// The sources of what a server tells of itself.
pub struct OwnServerParts {
    /// Its ID, its process and its software.
    pub info: PeerInfo,
    /// The trust domain of all servers.
    pub trust_domain: String,
    /// The time of its start.
    pub started: SystemTime,
    /// The address at which other servers dial it; `None` if it has no sessions with them.
    pub peering: Option<String>,
    /// The digest of the policy's file whose rules are in force.
    pub policy: watch::Receiver<FileDigest>,
    /// The trust bundle that it hands to agents; empty if it has none.
    pub trust_bundle: watch::Receiver<Arc<[u8]>>,
    /// Its readiness, as its probe reports it.
    pub readiness: Readiness,
    /// Its tunnels, its sessions, and the records.
    pub registry: Registry,
}

impl OwnServer {
    /// The server that these sources describe.
    #[must_use]
    pub fn new(parts: OwnServerParts) -> Self {
        Self(Arc::new(parts))
    }

    /// The ID of the server.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.info.server_id
    }

    /// The trust domain of all servers.
    #[must_use]
    pub fn trust_domain(&self) -> &str {
        &self.0.trust_domain
    }

    /// The state of this server, as it tells the others.
    #[must_use]
    pub fn status(&self) -> PeerStatus {
        let OwnServerParts { policy, trust_bundle, readiness, registry, .. } = &*self.0;
        let (directory, reach) = (registry.directory(), self.reach());
        let records = match directory.freshness() {
            Freshness::Fresh => RecordsState::Fresh,
            Freshness::Behind => RecordsState::Behind,
            Freshness::Stale | Freshness::Outdated => RecordsState::Stale,
        };
        let bundle = trust_bundle.borrow();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        PeerStatus {
            is_ready: readiness.is_ready(),
            records,
            records_age: directory.age(),
            policy: *policy.borrow(),
            trust_bundle: (!bundle.is_empty()).then(|| file_digest(&bundle)),
            peers: count(reach.all()),
            peers_connected: count(reach.connected),
        }
    }

    /// The other servers by the state of their sessions with this one; all zero without `peering`.
    #[must_use]
    pub fn reach(&self) -> PeerReach {
        if self.0.peering.is_some() { self.known().reach() } else { PeerReach::default() }
    }

    /// The differences of the peers from this server.
    #[must_use]
    pub fn differences(&self) -> PeerDifferences {
        self.known().differences(&self.status())
    }

    /// Returns true if the server of this ID has a session with this one.
    #[must_use]
    pub fn has_session(&self, id: &str) -> bool {
        self.known().sessions.contains_key(id)
    }

    /// All servers: this one, those that are registered, and those that still have a number, in the order of their IDs.
    #[must_use]
    pub fn list(&self) -> Vec<ServerStatus> {
        let known = self.known();
        let own = known.registered.get(self.id()).cloned();
        let others = known.registered.iter().filter(|(id, _)| *id != self.id());
        let mut servers: Vec<ServerStatus> =
            others.map(|(id, entry)| known.registered(id, entry)).chain([self.own(own.as_deref())]).collect();
        let named: BTreeSet<String> = servers.iter().map(|server| server.id.clone()).collect();
        let numbered = self.0.registry.directory().numbered_servers().into_iter();
        servers.extend(numbered.filter(|id| !named.contains(id)).map(|id| known.unregistered(&id)));
        servers.sort_by(|a, b| a.id.cmp(&b.id));
        servers
    }

    fn own(&self, entry: Option<&RegisteredServer>) -> ServerStatus {
        let OwnServerParts { info, started, peering, registry, .. } = &*self.0;
        let status = self.status();
        ServerStatus {
            id: info.server_id.clone(),
            state: ServerState::of(entry.is_some_and(|entry| entry.draining), &status),
            is_own: true,
            epoch: info.boot.to_string(),
            software: info.software.clone(),
            started: Some(*started),
            peering: peering.clone(),
            tunnels: Some(registry.tunnels_here()),
            told: Some(status),
            clock: None,
        }
    }

    fn known(&self) -> KnownServers {
        let registry = &self.0.registry;
        KnownServers {
            registered: registry.directory().servers(),
            sessions: registry.0.peer_sessions.known(),
            own_id: self.id().to_owned(),
        }
    }
}
