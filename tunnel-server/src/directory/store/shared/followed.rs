//! The watched part of etcd as this server has it, and the changes that its follower gets.

use std::collections::BTreeMap;
use std::sync::Arc;

use etcd::{Change, Listing, Revision};

use crate::directory::store::engine::Follower;
use crate::directory::store::{RecordChange, RecordDamage, StoreTable};

/// The newest state of every watched key.
#[derive(Debug)]
pub(super) struct Followed {
    /// The beginning of all watched keys.
    prefix: String,
    follower: Arc<dyn Follower>,
    records: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Followed {
    pub(super) fn new(prefix: String, follower: Arc<dyn Follower>) -> Self {
        Self { prefix, follower, records: BTreeMap::new() }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Applies what differs between this state and one that was read as a whole. Returns its revision.
    pub(super) fn replace(&mut self, listing: Listing) -> Result<Revision, RecordDamage> {
        let Listing { revision, entries, .. } = listing;
        let new: BTreeMap<Vec<u8>, Vec<u8>> =
            entries.into_iter().map(|entry| (entry.key, entry.value)).collect();
        let gone = self.records.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), None));
        let other = new.iter().filter(|(key, value)| self.records.get(*key) != Some(*value));
        let other = other.map(|(key, value)| (key.clone(), Some(value.clone())));
        // What exists is applied in the order of its tables: the time of a cluster follows its description.
        let changes = self.changes(gone.chain(other).collect())?;
        self.records = new;
        self.follower.apply(&changes, revision.0)?;
        Ok(revision)
    }

    /// Applies changes in their order. Returns the revision of the last one.
    pub(super) fn change(&mut self, changes: Vec<Change>) -> Result<Revision, RecordDamage> {
        let last = changes.last().map_or_else(Revision::default, |change| change.revision);
        for Change { key, value, .. } in &changes {
            match value {
                Some(value) => self.records.insert(key.clone(), value.clone()),
                None => self.records.remove(key),
            };
        }
        let changes = changes.into_iter().map(|change| (change.key, change.value)).collect();
        self.follower.apply(&self.changes(changes)?, last.0)?;
        Ok(last)
    }

    /// Names tables and keys. A table that is unknown here belongs to a newer server.
    fn changes(&self, raw: Vec<(Vec<u8>, Option<Vec<u8>>)>) -> Result<Vec<RecordChange>, RecordDamage> {
        let mut changes = Vec::with_capacity(raw.len());
        for (key, record) in raw {
            let text = String::from_utf8(key).ok();
            let parts = text.as_deref().and_then(|text| text.strip_prefix(&self.prefix)?.split_once('/'));
            let Some((name, key)) = parts else { continue };
            if let Some(table) = StoreTable::ALL.iter().find(|table| table.name() == name) {
                changes.push(RecordChange { table: *table, key: key.to_owned(), record });
            }
        }
        Ok(changes)
    }
}
