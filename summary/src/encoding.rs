//! The JSON of an aggregate, and the check of one that came from elsewhere.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::aggregate::{Aggregate, GROUPS_MAX, Group, Key};
use crate::figure::Figure;
use crate::item::{CELL_CHARS_MAX, KEY_BYTES_MAX};
use crate::question::{Question, ROWS_MAX};
use crate::row::{RankedItem, Row};
use crate::unreadable::Unreadable;

/// The longest aggregate as JSON, in bytes.
pub const ENCODED_BYTES_MAX: usize = 64 * 1024;

/// The longest name of an object, of a namespace or of a cluster, in bytes.
const NAME_BYTES_MAX: usize = 253;

/// An aggregate is too large to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the summary has {0} bytes, and at most {ENCODED_BYTES_MAX} are sent: group by fewer fields, or select fewer of them"
)]
pub struct TooLarge(pub usize);

/// An aggregate as JSON has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RawAggregate {
    items: u64,
    #[serde(default)]
    groups: Vec<RawGroup>,
    #[serde(default)]
    overflow: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    top: Vec<RankedItem>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rows: Vec<Row>,
    #[serde(default)]
    rows_overflow: bool,
    #[serde(default)]
    unreadable: Unreadable,
}

#[derive(Debug, Serialize, Deserialize)]
struct RawGroup {
    key: Key,
    count: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    figures: Vec<Figure>,
}

impl From<&Aggregate> for RawAggregate {
    fn from(aggregate: &Aggregate) -> Self {
        let Aggregate { items, groups, overflow, top, rows, rows_overflow, unreadable } = aggregate;
        let group = |(key, Group { count, figures }): (&Key, &Group)| RawGroup {
            key: key.clone(),
            count: *count,
            figures: figures.clone(),
        };
        Self {
            items: *items,
            groups: groups.iter().map(group).collect(),
            overflow: *overflow,
            top: top.iter().cloned().collect(),
            rows: rows.iter().cloned().collect(),
            rows_overflow: *rows_overflow,
            unreadable: unreadable.clone(),
        }
    }
}

impl RawAggregate {
    /// Checks an aggregate for this question. `None`: it is not what this crate would make for it.
    pub(crate) fn check(self, question: &Question) -> Option<Aggregate> {
        let Self { items, groups, overflow, top, rows, rows_overflow, unreadable } = self;
        let top_max = question.top.as_ref().map_or(0, |top| top.count);
        let is_small = groups.len() <= GROUPS_MAX
            && top.len() <= top_max
            && rows.len() <= ROWS_MAX
            && unreadable.is_valid();
        let is_valid = is_small
            && groups.iter().all(|group| group.is_valid(question))
            && top.iter().all(|item| are_names(&item.namespace, &item.name, &item.cluster))
            && rows.iter().all(|row| {
                are_names(&row.namespace, &row.name, &row.cluster)
                    && row.cells.len() == question.select().len()
                    // One more for the mark of a cut cell.
                    && row.cells.iter().flatten().all(|cell| cell.chars().count() <= CELL_CHARS_MAX + 1)
            })
            && (rows.is_empty() || !question.select().is_empty());
        let keys: BTreeSet<&Key> = groups.iter().map(|group| &group.key).collect();
        if !is_valid || keys.len() < groups.len() {
            return None;
        }
        let groups =
            groups.into_iter().map(|RawGroup { key, count, figures }| (key, Group { count, figures }));
        Some(Aggregate {
            items,
            groups: groups.collect(),
            overflow,
            top: top.into_iter().collect(),
            rows: rows.into_iter().collect(),
            rows_overflow,
            unreadable,
        })
    }
}

impl RawGroup {
    fn is_valid(&self, question: &Question) -> bool {
        let values = question.values();
        self.key.len() == question.group_by().len()
            && self.key.iter().flatten().all(|part| part.len() <= KEY_BYTES_MAX)
            && self.figures.len() == values.len()
            && self.figures.iter().zip(values).all(|(figure, value)| figure.is_of(value))
    }
}

impl Serialize for Aggregate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawAggregate::from(self).serialize(serializer)
    }
}

fn are_names(namespace: &str, name: &str, cluster: &str) -> bool {
    [namespace, name, cluster].iter().all(|name| name.len() <= NAME_BYTES_MAX)
}
