//! Transactions over a database that others change, too, and whose answers can be lost.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::engine::{RecordVisitor, View};
use super::*;
use crate::directory::records::{Cluster, Seen, UnixSeconds};

#[test]
fn a_change_that_conflicts_is_decided_again_on_what_is_there_then() {
    let shared = SharedTable::default();
    let store = store(&shared);
    shared.before_commit(Interference::Put(1));

    let found = add_to(&store, 10);

    assert_eq!((found.unwrap(), shared.value()), (11, Some(11)));
}

#[test]
fn a_change_whose_answer_was_lost_is_made_once() {
    for is_made in [true, false] {
        let shared = SharedTable::default();
        let store = store(&shared);
        shared.before_commit(Interference::LoseAnswer { is_made });

        let found = add_to(&store, 10);

        assert_eq!((found.unwrap(), shared.value()), (10, Some(10)), "made: {is_made}");
    }
}

#[test]
fn a_change_that_always_conflicts_is_given_up_and_changes_nothing() {
    let shared = SharedTable::default();
    let store = store(&shared);
    for value in 0..TRIES_MAX as u64 {
        shared.before_commit(Interference::Put(value));
    }

    let refused = add_to(&store, 100);

    assert!(matches!(refused, Err(StoreError::Contended)), "{refused:?}");
    assert_eq!(shared.value(), Some(TRIES_MAX as u64 - 1));
}

#[test]
fn a_transaction_sees_its_own_changes() {
    let store = store(&SharedTable::default());
    let seen = store.update(|transaction| {
        transaction.put("a", &Seen(UnixSeconds(1)))?;
        transaction.put("b", &Seen(UnixSeconds(2)))?;
        let was_there = transaction.remove::<Seen>("a")?;
        let listed = transaction.list::<Seen>("")?.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        Ok::<_, StoreError>((was_there, transaction.get::<Seen>("a")?.is_some(), listed))
    });

    assert_eq!(seen.unwrap(), (true, false, vec!["b".to_owned()]));
}

#[test]
fn a_rewritten_record_keeps_the_fields_of_a_newer_server() {
    let shared = SharedTable::default();
    let store = store(&shared);
    let newer = br#"{"created":5,"labels":{},"networks":[],"advertise":[],"tombstone":null,"paused":true}"#;
    shared.state().records.insert(KEY.to_owned(), newer.to_vec());
    let is_paused = || String::from_utf8_lossy(&shared.state().records[KEY]).contains("\"paused\":true");

    let rewrite = |is_new: bool| {
        store.update(|transaction| {
            let mut cluster = transaction.get::<Cluster>(KEY)?.expect("it is there");
            cluster.networks.push("shop".to_owned());
            if is_new {
                transaction.remove::<Cluster>(KEY)?;
            }
            transaction.put(KEY, &cluster)
        })
    };

    rewrite(false).unwrap();
    assert!(is_paused());
    rewrite(true).unwrap();
    assert!(!is_paused());
}

/// An act of somebody else while a transaction is decided.
#[derive(Debug)]
enum Interference {
    /// They write the record before the commit.
    Put(u64),
    /// They lose the answer of the commit, which is made or not.
    LoseAnswer { is_made: bool },
}

/// One table in memory, in which changes are compared by the whole content.
#[derive(Debug, Default, Clone)]
struct SharedTable(Arc<Mutex<SharedState>>);

#[derive(Debug, Default)]
struct SharedState {
    records: BTreeMap<String, Vec<u8>>,
    to_come: std::collections::VecDeque<Interference>,
}

struct TableView<'t> {
    table: &'t SharedTable,
    seen: BTreeMap<String, Vec<u8>>,
}

const KEY: &str = "edge-a";

fn store(shared: &SharedTable) -> RecordStore {
    RecordStore { engine: Box::new(shared.clone()), registrar: None }
}

/// Adds to the record, and returns the sum.
fn add_to(store: &RecordStore, more: u64) -> Result<u64, StoreError> {
    store.update(|transaction| {
        let before = transaction.get::<Seen>(KEY)?.map_or(0, |seen| seen.0.0);
        transaction.put(KEY, &Seen(UnixSeconds(before + more)))?;
        Ok(before + more)
    })
}

impl SharedTable {
    fn before_commit(&self, interference: Interference) {
        self.state().to_come.push_back(interference);
    }

    fn value(&self) -> Option<u64> {
        self.state().records.get(KEY).map(|bytes| serde_json::from_slice::<Seen>(bytes).unwrap().0.0)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, SharedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedState {
    fn make(&mut self, changes: &[RecordChange]) {
        for RecordChange { key, record, .. } in changes {
            match record {
                Some(record) => self.records.insert(key.clone(), record.clone()),
                None => self.records.remove(key),
            };
        }
    }
}

impl Engine for SharedTable {
    fn follow(&self, _follower: Arc<dyn Follower>) -> Result<(), StoreError> {
        Ok(())
    }

    fn begin(&self) -> Result<Box<dyn View + '_>, StoreError> {
        Ok(Box::new(TableView { table: self, seen: self.state().records.clone() }))
    }

    fn get(&self, _table: StoreTable, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.state().records.get(key).cloned())
    }

    fn list(&self, _table: StoreTable, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let state = self.state();
        let found = state.records.iter().filter(|(key, _)| key.starts_with(prefix));
        Ok(found.map(|(key, record)| (key.clone(), record.clone())).collect())
    }

    fn count(&self, _table: StoreTable) -> Result<usize, StoreError> {
        Ok(self.state().records.len())
    }

    fn visit(&self, _visitor: &mut RecordVisitor<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    fn newest(&self) -> Result<Option<Revision>, StoreError> {
        Ok(None)
    }

    fn applied(&self) -> Option<watch::Receiver<Option<Revision>>> {
        None
    }

    fn damaged(&self, damage: RecordDamage) -> StoreError {
        StoreError::Damaged { path: "shared".into(), source: damage.into() }
    }
}

impl View for TableView<'_> {
    fn get(&mut self, _table: StoreTable, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.seen.get(key).cloned())
    }

    fn list(&mut self, table: StoreTable, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.table.list(table, prefix)
    }

    fn count(&mut self, _table: StoreTable) -> Result<usize, StoreError> {
        Ok(self.seen.len())
    }

    fn commit(
        self: Box<Self>,
        _removed: &[(StoreTable, String)],
        changes: &[RecordChange],
    ) -> Result<Commit, StoreError> {
        let mut state = self.table.state();
        match state.to_come.pop_front() {
            Some(Interference::Put(value)) => {
                state.records.insert(KEY.to_owned(), value.to_string().into_bytes());
            }
            Some(Interference::LoseAnswer { is_made }) => {
                if is_made {
                    state.make(changes);
                }
                return Ok(Commit::Unknown);
            }
            None => {}
        }
        if state.records != self.seen {
            return Ok(Commit::Conflict);
        }
        state.make(changes);
        Ok(Commit::Done(None))
    }
}
