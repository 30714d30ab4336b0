//! The operations that the store needs of a database.

use std::fmt;
use std::sync::Arc;

use etcd::Revision;
use tokio::sync::watch;

use super::{RecordChange, RecordDamage, StoreError, StoreTable};

/// The receiver of all records of one moment.
pub(super) type RecordVisitor<'v> = dyn FnMut(&str, &[u8]) -> Result<(), StoreError> + 'v;

/// A database. Its functions block.
pub(super) trait Engine: fmt::Debug + Send + Sync {
    /// Gives `follower` all records as if each had just been written, and then each change in order. It is called once.
    fn follow(&self, follower: Arc<dyn Follower>) -> Result<(), StoreError>;

    /// Begins a transaction on what is stored now.
    fn begin(&self) -> Result<Box<dyn View + '_>, StoreError>;

    /// Reads the newest record of a key.
    fn get(&self, table: StoreTable, key: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Reads the newest records whose keys begin with `prefix`, in the order of their keys.
    fn list(&self, table: StoreTable, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError>;

    /// Counts the records of a table.
    fn count(&self, table: StoreTable) -> Result<usize, StoreError>;

    /// Gives `visitor` the path and the bytes of all records as they are at one moment, in the order of their paths.
    fn visit(&self, visitor: &mut RecordVisitor<'_>) -> Result<(), StoreError>;

    /// The revision of a read that begins now; `None` if nobody shares the store.
    fn newest(&self) -> Result<Option<Revision>, StoreError>;

    /// The revision up to which the follower has all changes; `None` if nobody shares the store.
    fn applied(&self) -> Option<watch::Receiver<Option<Revision>>>;

    /// The error for a record that is not in our form, with the place where it lies.
    fn damaged(&self, damage: RecordDamage) -> StoreError;
}

/// The records at one moment, and the changes that depend on them.
///
/// A commit conflicts if a record that was read here by its key has changed since, or if one was added to a prefix
/// that was listed, or changed under it. A record that was *removed* from a listed prefix is no conflict: not every
/// engine can see that. So no decision may depend on a listed record being there.
pub(super) trait View {
    /// Reads the record of a key.
    fn get(&mut self, table: StoreTable, key: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Reads the records whose keys begin with `prefix`, in the order of their keys.
    fn list(&mut self, table: StoreTable, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError>;

    /// Counts the records of a table. A later change of the number is no conflict, so limits of tables can be passed
    /// by as many records as there are servers.
    fn count(&mut self, table: StoreTable) -> Result<usize, StoreError>;

    /// Makes all changes or none, and first removes all records with these prefixes. After [`Commit::Done`] the follower
    /// has the changes, too.
    fn commit(
        self: Box<Self>,
        removed: &[(StoreTable, String)],
        changes: &[RecordChange],
    ) -> Result<Commit, StoreError>;
}

/// The result of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Commit {
    /// The changes are made, and survive a crash: in this revision, if several servers share the store.
    Done(Option<Revision>),
    /// Nothing is changed, because somebody else has changed what was read.
    Conflict,
    /// The changes may be made or not: the answer was lost.
    Unknown,
}

/// The receiver of all changes.
pub(in crate::directory) trait Follower: fmt::Debug + Send + Sync {
    /// Applies changes that were made together. `revision` is the store's own after them, and 0 where it has none.
    ///
    /// # Errors
    /// A record is not in our form.
    fn apply(&self, changes: &[RecordChange], revision: i64) -> Result<(), RecordDamage>;
}
