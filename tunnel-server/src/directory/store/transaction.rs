//! Reads of one moment, and changes that are made together or not at all.

use std::collections::BTreeMap;

use super::engine::{Commit, View};
use super::unknown_fields::UnknownFields;
use super::{RECORD_BYTES_MAX, RecordChange, RecordStore, StoreError, StoreTable, StoredRecord, parse_all};

/// A transaction. Its changes are buffered until it is committed, and its own reads see them.
pub(in crate::directory) struct Transaction<'s> {
    store: &'s RecordStore,
    view: Box<dyn View + 's>,
    /// The prefixes whose records are removed, before anything is written.
    removed: Vec<(StoreTable, String)>,
    written: BTreeMap<(StoreTable, String), Option<Vec<u8>>>,
    /// The fields of newer servers in records that were read here.
    unknown: BTreeMap<(StoreTable, String), UnknownFields>,
}

impl<'s> Transaction<'s> {
    pub(super) fn new(store: &'s RecordStore, view: Box<dyn View + 's>) -> Self {
        Self { store, view, removed: Vec::new(), written: BTreeMap::new(), unknown: BTreeMap::new() }
    }

    /// Commits what was removed and written; nothing if that is nothing.
    pub(super) fn commit(self) -> Result<(Commit, Vec<RecordChange>), StoreError> {
        let Self { view, removed, written, .. } = self;
        let changes = written.into_iter().map(|((table, key), record)| RecordChange { table, key, record });
        let changes: Vec<_> = changes.collect();
        if removed.is_empty() && changes.is_empty() {
            return Ok((Commit::Done(None), changes));
        }
        Ok((view.commit(&removed, &changes)?, changes))
    }

    /// Reads the record of a key.
    pub(in crate::directory) fn get<R: StoredRecord>(&mut self, key: &str) -> Result<Option<R>, StoreError> {
        let bytes = self.bytes(R::TABLE, key)?;
        bytes.map(|bytes| self.parsed(key, &bytes)).transpose()
    }

    /// The records whose keys begin with `prefix`, in the order of their keys. No decision may depend on one of them
    /// being there until the commit.
    pub(in crate::directory) fn list<R: StoredRecord>(
        &mut self,
        prefix: &str,
    ) -> Result<Vec<(String, R)>, StoreError> {
        let mut found: BTreeMap<String, Vec<u8>> = self.view.list(R::TABLE, prefix)?.into_iter().collect();
        for ((table, key), record) in &self.written {
            if *table == R::TABLE && key.starts_with(prefix) {
                match record {
                    Some(record) => found.insert(key.clone(), record.clone()),
                    None => found.remove(key),
                };
            }
        }
        let parse = |(key, bytes): (String, Vec<u8>)| {
            let record = self.parsed(&key, &bytes)?;
            Ok((key, record))
        };
        found.into_iter().map(parse).collect()
    }

    /// Counts the records of a table, without the changes of this transaction.
    pub(in crate::directory) fn count<R: StoredRecord>(&mut self) -> Result<usize, StoreError> {
        self.view.count(R::TABLE)
    }

    /// Writes a record. If it was read here before, fields that this server does not know stay.
    pub(in crate::directory) fn put<R: StoredRecord>(
        &mut self,
        key: &str,
        record: &R,
    ) -> Result<(), StoreError> {
        let place = (R::TABLE, key.to_owned());
        let serialized = match self.unknown.get(&place) {
            Some(unknown) => unknown.serialized_with(record),
            None => serde_json::to_vec(record),
        };
        let bytes = serialized.map_err(|error| self.store.damaged_at(R::TABLE, key, error))?;
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(StoreError::TooLarge(bytes.len()));
        }
        self.written.insert(place, Some(bytes));
        Ok(())
    }

    /// Removes a record. Returns whether there was one.
    pub(in crate::directory) fn remove<R: StoredRecord>(&mut self, key: &str) -> Result<bool, StoreError> {
        let was_there = self.bytes(R::TABLE, key)?.is_some();
        self.unknown.remove(&(R::TABLE, key.to_owned()));
        if was_there {
            self.written.insert((R::TABLE, key.to_owned()), None);
        }
        Ok(was_there)
    }

    /// Removes all records whose keys begin with `prefix`, however many they are. Nothing of this table may be read or
    /// written in the same transaction, and memory does not hold it.
    pub(in crate::directory) fn remove_all<R: StoredRecord>(&mut self, prefix: &str) {
        self.removed.push((R::TABLE, prefix.to_owned()));
    }

    /// Parses a record, and remembers its fields that are unknown here.
    fn parsed<R: StoredRecord>(&mut self, key: &str, bytes: &[u8]) -> Result<R, StoreError> {
        let parsed = parse_all(key, bytes).map_err(|damage| self.store.engine.damaged(damage));
        let (record, unknown) = parsed?;
        self.unknown.insert((R::TABLE, key.to_owned()), unknown);
        Ok(record)
    }

    fn bytes(&mut self, table: StoreTable, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match self.written.get(&(table, key.to_owned())) {
            Some(record) => Ok(record.clone()),
            None => self.view.get(table, key),
        }
    }
}
