//! The aggregate of some objects, which merges with those of others in any order.

use std::collections::{BTreeMap, BTreeSet};

use crate::figure::{Figure, SumOverflow};
use crate::question::{Question, ROWS_MAX};
use crate::row::{RankedItem, Row};
use crate::unreadable::Unreadable;

/// Most groups of a summary. Those whose keys come first stay, and each of them is exact.
pub const GROUPS_MAX: usize = 100;

/// The values of the fields by which objects are grouped. `None` where an object has no such field.
pub(crate) type Key = Vec<Option<String>>;

/// The aggregate of some objects for one question.
///
/// Where there is too much, an order of its own decides which entries stay, and never the order of arrival: the first keys, the
/// greatest values, the first names. An entry that is among the first of all is among the first of any part, too. So no part drops it,
/// and merging is associative and commutative.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Aggregate {
    pub(crate) items: u64,
    pub(crate) groups: BTreeMap<Key, Group>,
    pub(crate) overflow: bool,
    pub(crate) top: BTreeSet<RankedItem>,
    pub(crate) rows: BTreeSet<Row>,
    pub(crate) rows_overflow: bool,
    pub(crate) unreadable: Unreadable,
}

/// The objects of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) count: u64,
    pub(crate) figures: Vec<Figure>,
}

impl Aggregate {
    /// The number of objects that met the conditions.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Each group in the order of the keys: its key, the number of its objects and its figures.
    pub fn groups(&self) -> impl Iterator<Item = (&[Option<String>], u64, &[Figure])> {
        self.groups.iter().map(|(key, group)| (key.as_slice(), group.count, group.figures.as_slice()))
    }

    /// Returns true if there are more groups than [`GROUPS_MAX`].
    #[must_use]
    pub fn has_more_groups(&self) -> bool {
        self.overflow
    }

    /// The objects with the greatest values, the greatest first.
    pub fn top(&self) -> impl Iterator<Item = &RankedItem> {
        self.top.iter()
    }

    /// The objects whose fields are shown.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter()
    }

    /// Returns true if there are more rows than [`ROWS_MAX`].
    #[must_use]
    pub fn has_more_rows(&self) -> bool {
        self.rows_overflow
    }

    /// The fields that could not be read.
    #[must_use]
    pub fn unreadable(&self) -> &Unreadable {
        &self.unreadable
    }

    /// Writes the name of a cluster to all objects, in place of what its agent has written.
    pub fn set_cluster(&mut self, cluster: &str) {
        let top = std::mem::take(&mut self.top);
        self.top = top.into_iter().map(|item| RankedItem { cluster: cluster.to_owned(), ..item }).collect();
        let rows = std::mem::take(&mut self.rows);
        self.rows = rows.into_iter().map(|row| Row { cluster: cluster.to_owned(), ..row }).collect();
    }

    /// Adds the aggregate of other objects for the same question.
    ///
    /// # Errors
    ///
    /// [`SumOverflow`]; this aggregate is of no more use then.
    pub fn merge(&mut self, other: Self, question: &Question) -> Result<(), SumOverflow> {
        let Self { items, groups, overflow, top, rows, rows_overflow, unreadable } = other;
        self.items = self.items.checked_add(items).ok_or(SumOverflow)?;
        self.overflow |= overflow;
        for (key, group) in groups {
            self.add_group(key, &group)?;
        }
        for item in top {
            self.add_ranked(item, question);
        }
        self.rows_overflow |= rows_overflow;
        for row in rows {
            self.add_row(row);
        }
        self.unreadable.merge(unreadable);
        Ok(())
    }

    pub(crate) fn add_group(&mut self, key: Key, group: &Group) -> Result<(), SumOverflow> {
        match self.groups.get_mut(&key) {
            Some(own) => own.merge(group)?,
            None => drop(self.groups.insert(key, group.clone())),
        }
        if self.groups.len() > GROUPS_MAX {
            self.groups.pop_last();
            self.overflow = true;
        }
        Ok(())
    }

    pub(crate) fn add_ranked(&mut self, item: RankedItem, question: &Question) {
        self.top.insert(item);
        if question.top.as_ref().is_none_or(|top| self.top.len() > top.count) {
            self.top.pop_last();
        }
    }

    pub(crate) fn add_row(&mut self, row: Row) {
        self.rows.insert(row);
        if self.rows.len() > ROWS_MAX {
            self.rows.pop_last();
            self.rows_overflow = true;
        }
    }
}

impl Group {
    fn merge(&mut self, other: &Self) -> Result<(), SumOverflow> {
        self.count = self.count.checked_add(other.count).ok_or(SumOverflow)?;
        self.figures.iter_mut().zip(&other.figures).try_for_each(|(own, other)| own.merge(other))
    }
}
