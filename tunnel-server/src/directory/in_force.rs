//! The servers that have a change in their memory, as they tell each other.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use etcd::Revision;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Directory;

/// Longest wait for the other servers after a change.
pub const CONFIRMED_WITHIN: Duration = Duration::from_secs(1);

/// The moment of a change of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The revision of the shared store that has it; `None` if nobody shares the store.
    revision: Option<Revision>,
    made: SystemTime,
}

/// The word of one server about a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfirmation {
    /// The ID of the server.
    pub server_id: String,
    /// The time from which it refuses everybody if it hears nothing; `None` if it has the change in its memory.
    pub refuses_from: Option<SystemTime>,
}

/// The newest revisions that other servers have told, by their IDs.
#[derive(Debug)]
pub(super) struct Confirmations {
    told: Mutex<HashMap<String, ToldRevision>>,
    changed: watch::Sender<()>,
}

/// A memory never goes back, so this stays true for as long as the process runs.
#[derive(Debug)]
struct ToldRevision {
    /// The process that has told it.
    epoch: String,
    revision: i64,
}

impl Default for Confirmations {
    fn default() -> Self {
        Self { told: Mutex::default(), changed: watch::Sender::new(()) }
    }
}

/// A change that was just made, in this revision.
pub(super) fn changed_at(revision: Option<Revision>) -> Change {
    Change { revision, made: SystemTime::now() }
}

impl Directory {
    /// The age at which memory is stale; `None` if nobody shares the directory.
    pub(super) fn stale_limit(&self) -> Option<Duration> {
        self.0.age.as_ref().map(|age| age.stale_limit())
    }

    /// The revision of the shared store up to which memory has everything, once it is later than `told`. Waits for ever
    /// if nobody shares the directory. Cancel-safe.
    pub async fn applied_after(&self, told: i64) -> i64 {
        let Some(mut applied) = self.0.store.applied() else { return pending().await };
        let is_later = |applied: &Option<Revision>| applied.is_some_and(|applied| applied.0 > told);
        let found = applied.wait_for(is_later).await.map_or(None, |found| *found);
        match found {
            Some(Revision(found)) => found,
            // Nothing more is followed.
            None => pending().await,
        }
    }

    /// Notes that the process `epoch` of another server has everything up to a revision.
    pub fn confirmed(&self, server_id: &str, epoch: &str, revision: i64) {
        let servers = self.servers();
        let mut told = self.0.confirmations.told();
        told.retain(|id, _| id == server_id || servers.contains_key(id));
        let before = told.get(server_id).filter(|before| before.epoch == epoch);
        let revision = before.map_or(revision, |before| before.revision.max(revision));
        told.insert(server_id.to_owned(), ToldRevision { epoch: epoch.to_owned(), revision });
        drop(told);
        self.0.confirmations.changed.send_replace(());
    }

    /// Waits up to [`CONFIRMED_WITHIN`] for every server to have a change, and returns the word of each, in the order of
    /// their IDs; none if nobody shares the directory. A server that was lost counts until it refuses everybody.
    pub async fn in_force(&self, change: Change, own_id: &str) -> Vec<ServerConfirmation> {
        let Some(Revision(revision)) = change.revision else { return Vec::new() };
        let mut told = self.0.confirmations.changed.subscribe();
        let all_have_it = async {
            // One's own memory has it, unless etcd's answer was lost.
            self.applied_after(revision - 1).await;
            while self
                .confirmations(change.made, revision, own_id)
                .iter()
                .any(|one| one.refuses_from.is_some())
            {
                if told.changed().await.is_err() {
                    return;
                }
            }
        };
        // What is missing after this time is in the answer.
        let _ = timeout(CONFIRMED_WITHIN, all_have_it).await;
        self.confirmations(change.made, revision, own_id)
    }

    fn confirmations(&self, made: SystemTime, revision: i64, own_id: &str) -> Vec<ServerConfirmation> {
        let own_has_it = self.0.store.applied().is_some_and(|applied| {
            let applied = applied.borrow();
            applied.is_some_and(|applied| applied.0 >= revision)
        });
        let now = SystemTime::now();
        let cache = self.cache();
        let told = self.0.confirmations.told();
        let has_it = |id: &str, epoch: &str| {
            told.get(id).is_some_and(|told| told.epoch == epoch && told.revision >= revision)
        };
        let confirmation = |id: &str, epoch: &str, refuses_from| {
            let is_confirmed = if id == own_id { own_has_it } else { has_it(id, epoch) };
            let refuses_from = (!is_confirmed).then_some(refuses_from);
            ServerConfirmation { server_id: id.to_owned(), refuses_from }
        };
        // A proof of a memory's age that begins after the change has the change. So the last one began before.
        let registered = cache
            .servers
            .iter()
            .map(|(id, server)| confirmation(id, &server.epoch, made + server.stale_limit()));
        let departed = cache
            .departed
            .at(now)
            .filter(|(id, _)| *id != own_id)
            .map(|(id, departed)| confirmation(id, &departed.server.epoch, departed.refuses_from));
        let mut all: Vec<_> = registered.chain(departed).collect();
        if !all.iter().any(|one| one.server_id == own_id) {
            let stale_limit = self.stale_limit().unwrap_or_default();
            all.push(confirmation(own_id, "", made + stale_limit));
        }
        all.sort_by(|one, other| one.server_id.cmp(&other.server_id));
        all
    }
}

impl Confirmations {
    fn told(&self) -> MutexGuard<'_, HashMap<String, ToldRevision>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
