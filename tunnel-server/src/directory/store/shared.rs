//! The engine of many servers: etcd, where each server follows the changes of all. No other file uses etcd's client.

mod election;
mod followed;
mod following;
mod own_lease;
mod registration;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::{Scope, error_chain};
use etcd::{Client, CommitError, Compare, KeyRange, Outcome, Revision, Unsuitable, Write};
use records::layout::{IMPORT_KEY, Part, SCHEMA, SCHEMA_KEY};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::warn;

use super::engine::{Commit, Engine, Follower, RecordVisitor, View};
use super::{RecordChange, RecordDamage, StoreError, StoreTable};
use crate::directory::freshness::{Freshness, MemoryAge};
use followed::Followed;
use following::Following;

pub(in crate::directory) use election::SharedElection;
pub use own_lease::{LEASE_MARGIN, REGISTRATION_TTL};
pub(super) use registration::Registrar;
pub use registration::{RegistrationOutcome, ServerEntry, ServerRegistration};

/// Longest wait until this server has seen its own change. etcd tells of a change within some milliseconds.
const APPLIED_MAX: Duration = Duration::from_secs(5);

/// The records of all servers.
#[derive(Debug)]
pub(super) struct SharedEngine {
    client: Client,
    runtime: Handle,
    scope: Scope,
    /// The beginning of all keys, such as `/tombolo/example.org/`.
    prefix: String,
    /// The revision up to which the follower has all changes; none without a follower.
    applied: Arc<watch::Sender<Option<Revision>>>,
    age: Arc<MemoryAge>,
}

/// A transaction over etcd. Its reads are of one revision.
struct SharedView<'e> {
    engine: &'e SharedEngine,
    at: Option<Revision>,
    /// The keys that were read already.
    keys: BTreeSet<String>,
    conditions: Vec<Compare>,
}

impl SharedEngine {
    /// Opens the records below `prefix`, and notes the version of their form if there are none yet. Blocks, so it must
    /// not be called on a runtime's own thread. What follows the changes is a task of `scope`.
    pub(super) fn open(
        client: Client,
        prefix: String,
        age: Arc<MemoryAge>,
        runtime: Handle,
        scope: Scope,
    ) -> Result<Self, StoreError> {
        let applied = Arc::new(watch::Sender::new(None));
        let engine = Self { client, runtime, scope, prefix, applied, age };
        engine.check_members()?;
        engine.check_schema()?;
        // After the schema: no import begins where it is.
        engine.check_import()?;
        Ok(engine)
    }

    /// Refuses releases of etcd whose watches lose events. A member that does not answer is not needed now.
    fn check_members(&self) -> Result<(), StoreError> {
        for endpoint in self.client.endpoints() {
            let status = match self.runtime.block_on(self.client.status(endpoint)) {
                Ok(status) => status,
                Err(error) => {
                    warn!(%endpoint, error = %error_chain(&error), "a member of etcd does not answer");
                    continue;
                }
            };
            match status.check() {
                Ok(()) => {}
                Err(Unsuitable::Alarm(alarm)) => {
                    warn!(%endpoint, alarm, "a member of etcd has an alarm, and may take no changes");
                }
                Err(why @ Unsuitable::Version(_)) => {
                    return Err(StoreError::UnsuitableEtcd { endpoint: endpoint.to_string(), why });
                }
            }
        }
        Ok(())
    }

    /// Refuses what this server could not do by the newest records.
    fn check_freshness(&self) -> Result<(), StoreError> {
        if self.age.freshness() == Freshness::Fresh {
            return Ok(());
        }
        Err(StoreError::NotFresh { seconds: self.age.age().as_secs() })
    }

    fn check_schema(&self) -> Result<(), StoreError> {
        let key = format!("{}{SCHEMA_KEY}", self.prefix).into_bytes();
        let conditions = vec![Compare::Absent(key.clone())];
        let changes = vec![Write::Put(key.clone(), SCHEMA.to_string().into())];
        match self.runtime.block_on(self.client.commit(conditions, changes)) {
            Ok(_) | Err(CommitError::Unknown(_)) => {}
            Err(CommitError::NotMade(error)) => return Err(StoreError::Etcd(error)),
        }
        let found = self.list_of(&KeyRange::key(key), None)?.entries.pop();
        let found = found.and_then(|found| String::from_utf8(found.value).ok()?.parse().ok());
        match found {
            Some(found) if found > SCHEMA => {
                Err(StoreError::Newer { path: self.prefix.clone().into(), found })
            }
            Some(_) => Ok(()),
            None => Err(StoreError::DamagedRecord {
                place: self.prefix.clone(),
                source: format!("{SCHEMA_KEY} is no number").into(),
            }),
        }
    }

    /// Refuses records that somebody imports now.
    fn check_import(&self) -> Result<(), StoreError> {
        let mark = KeyRange::key(format!("{}{IMPORT_KEY}", self.prefix));
        if self.list_of(&mark, None)?.entries.is_empty() {
            return Ok(());
        }
        Err(StoreError::Importing(self.prefix.clone()))
    }

    fn list_of(&self, range: &KeyRange, at: Option<Revision>) -> Result<etcd::Listing, StoreError> {
        self.runtime.block_on(self.client.list(range, at)).map_err(StoreError::Etcd)
    }

    /// Waits until the follower, if there is one, has all changes up to a revision.
    fn wait_for(&self, revision: Revision) -> Result<(), StoreError> {
        let mut applied = self.applied.subscribe();
        let has_it = |applied: &Option<Revision>| applied.is_none_or(|applied| applied >= revision);
        let reached = timeout(APPLIED_MAX, async { applied.wait_for(has_it).await.map(drop) });
        match self.runtime.block_on(reached) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(StoreError::Behind),
        }
    }

    /// The key in etcd of a record, or the beginning of the keys of several.
    fn path(&self, table: StoreTable, key: &str) -> String {
        path(&self.prefix, table, key)
    }

    fn watched(&self) -> String {
        format!("{}{}", self.prefix, Part::Watched.path())
    }

    fn records(&self, table: StoreTable, listing: etcd::Listing) -> Vec<(String, Vec<u8>)> {
        let cut = self.path(table, "").len();
        let record =
            |entry: etcd::Entry| Some((String::from_utf8(entry.key).ok()?.split_off(cut), entry.value));
        listing.entries.into_iter().filter_map(record).collect()
    }
}

fn path(prefix: &str, table: StoreTable, key: &str) -> String {
    format!("{prefix}{}", table.path(key))
}

impl Engine for SharedEngine {
    fn follow(&self, follower: Arc<dyn Follower>) -> Result<(), StoreError> {
        let mut followed = Followed::new(self.watched(), follower);
        let began = Instant::now();
        let listing = self.list_of(&KeyRange::prefix(self.watched()), None)?;
        let of = (listing.cluster_id, listing.revision);
        followed.replace(listing).map_err(|damage| self.damaged(damage))?;
        self.applied.send_replace(Some(of.1));
        self.age.prove(began);
        // Its timer belongs to the runtime.
        let _entered = self.runtime.enter();
        let (applied, age) = (Arc::clone(&self.applied), Arc::clone(&self.age));
        let following = Following::new(self.client.clone(), of, followed, applied, age);
        self.scope.spawn_background(following.run());
        Ok(())
    }

    fn begin(&self) -> Result<Box<dyn View + '_>, StoreError> {
        self.check_freshness()?;
        Ok(Box::new(SharedView { engine: self, at: None, keys: BTreeSet::new(), conditions: Vec::new() }))
    }

    fn get(&self, table: StoreTable, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.check_freshness()?;
        let mut listing = self.list_of(&KeyRange::key(self.path(table, key)), None)?;
        Ok(listing.entries.pop().map(|entry| entry.value))
    }

    fn list(&self, table: StoreTable, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.check_freshness()?;
        let listing = self.list_of(&KeyRange::prefix(self.path(table, prefix)), None)?;
        Ok(self.records(table, listing))
    }

    fn count(&self, table: StoreTable) -> Result<usize, StoreError> {
        self.check_freshness()?;
        let range = KeyRange::prefix(self.path(table, ""));
        self.runtime.block_on(self.client.count(&range)).map_err(StoreError::Etcd)
    }

    fn visit(&self, visitor: &mut RecordVisitor<'_>) -> Result<(), StoreError> {
        self.check_freshness()?;
        let (mut at, mut range) = (None, KeyRange::prefix(self.prefix.clone()));
        loop {
            let page = self.runtime.block_on(self.client.list_page(&range, at)).map_err(StoreError::Etcd)?;
            let (listing, rest) = page;
            at = Some(listing.revision);
            for entry in listing.entries {
                let key = String::from_utf8_lossy(&entry.key);
                let path = key.strip_prefix(&self.prefix).unwrap_or_default();
                if path != SCHEMA_KEY {
                    visitor(path, &entry.value)?;
                }
            }
            match rest {
                Some(rest) => range = rest,
                None => return Ok(()),
            }
        }
    }

    fn newest(&self) -> Result<Option<Revision>, StoreError> {
        // The answer's revision counts, and no key.
        self.list_of(&KeyRange::key(self.watched()), None).map(|listing| Some(listing.revision))
    }

    fn applied(&self) -> Option<watch::Receiver<Option<Revision>>> {
        Some(self.applied.subscribe())
    }

    fn damaged(&self, damage: RecordDamage) -> StoreError {
        StoreError::DamagedRecord { place: self.prefix.clone(), source: damage.into() }
    }
}

impl View for SharedView<'_> {
    fn get(&mut self, table: StoreTable, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.engine.path(table, key);
        let mut listing = self.engine.list_of(&KeyRange::key(path.clone()), self.at)?;
        self.at.get_or_insert(listing.revision);
        let found = listing.entries.pop();
        if self.keys.insert(path.clone()) {
            let path = path.into_bytes();
            self.conditions.push(match &found {
                Some(entry) => Compare::Unchanged(path, entry.changed),
                None => Compare::Absent(path),
            });
        }
        Ok(found.map(|entry| entry.value))
    }

    fn list(&mut self, table: StoreTable, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let range = KeyRange::prefix(self.engine.path(table, prefix));
        let listing = self.engine.list_of(&range, self.at)?;
        let at = *self.at.get_or_insert(listing.revision);
        self.conditions.push(Compare::NothingNewer(range, at));
        Ok(self.engine.records(table, listing))
    }

    fn count(&mut self, table: StoreTable) -> Result<usize, StoreError> {
        self.engine.count(table)
    }

    fn commit(
        self: Box<Self>,
        removed: &[(StoreTable, String)],
        changes: &[RecordChange],
    ) -> Result<Commit, StoreError> {
        let Self { engine, conditions, .. } = *self;
        // The watch tells nothing of other tables.
        let is_followed = changes.iter().any(|change| change.table.is_followed());
        let removed = removed
            .iter()
            .map(|(table, prefix)| Write::RemoveAll(KeyRange::prefix(engine.path(*table, prefix))));
        let writes = changes.iter().map(|RecordChange { table, key, record }| {
            let path = engine.path(*table, key).into_bytes();
            match record {
                Some(record) => Write::Put(path, record.clone()),
                None => Write::Remove(path),
            }
        });
        let writes = removed.chain(writes).collect();
        match engine.runtime.block_on(engine.client.commit(conditions, writes)) {
            Ok(Outcome::Made(revision)) if is_followed => {
                engine.wait_for(revision).map(|()| Commit::Done(Some(revision)))
            }
            Ok(Outcome::Made(revision)) => Ok(Commit::Done(Some(revision))),
            Ok(Outcome::Conflict) => Ok(Commit::Conflict),
            Err(CommitError::Unknown(_)) => Ok(Commit::Unknown),
            Err(CommitError::NotMade(error)) => Err(StoreError::Etcd(error)),
        }
    }
}
