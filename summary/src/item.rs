//! Adds one object to an aggregate.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use crate::aggregate::{Aggregate, Group, Key};
use crate::figure::{Figure, SumOverflow};
use crate::path::Path;
use crate::question::{Question, Value, scalar_text};
use crate::row::{RankedItem, Row};
use crate::scalar::Scalar;
use crate::unreadable::Unreadable;

/// The longest value of a field by which objects are grouped, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 256;

/// The longest field that a row shows, in characters. The rest is cut off and marked.
pub(crate) const CELL_CHARS_MAX: usize = 200;

/// Most groups that one object counts in, where a path leads to several values.
const GROUPS_OF_ITEM_MAX: usize = 64;

/// The object that is added, and its notes about fields that cannot be read.
struct Item<'a> {
    object: &'a Json,
    unreadable: &'a mut Unreadable,
}

impl Aggregate {
    /// Adds an object if it meets the conditions. A field that cannot be read is noted, and is in no figure.
    ///
    /// # Errors
    ///
    /// [`SumOverflow`]; this aggregate is of no more use then.
    pub fn add(&mut self, object: &Json, question: &Question) -> Result<(), SumOverflow> {
        if !question.counts(object) {
            return Ok(());
        }
        self.items = self.items.checked_add(1).ok_or(SumOverflow)?;
        let mut unreadable = Unreadable::default();
        let mut item = Item { object, unreadable: &mut unreadable };
        let figures: Vec<Figure> =
            question.values().iter().map(|value| item.figure(value)).collect::<Result<_, _>>()?;
        let keys = item.keys(question.group_by());
        let ranked = question.top_by().and_then(|path| item.ranked(path));
        let row = (!question.select().is_empty()).then(|| item.row(question.select()));
        let group = Group { count: 1, figures };
        for key in keys {
            self.add_group(key, &group)?;
        }
        if let Some(ranked) = ranked {
            self.add_ranked(ranked, question);
        }
        if let Some(row) = row {
            self.add_row(row);
        }
        self.unreadable.merge(unreadable);
        Ok(())
    }
}

impl Item<'_> {
    fn metadata(&self, name: &str) -> String {
        let field = self.object.get("metadata").and_then(|metadata| metadata.get(name));
        field.and_then(Json::as_str).unwrap_or_default().to_owned()
    }

    fn note(&mut self, path: &Path, fault: &dyn std::fmt::Display) {
        let (namespace, name) = (self.metadata("namespace"), self.metadata("name"));
        let slash = if namespace.is_empty() { "" } else { "/" };
        self.unreadable.add(&format!("{path} of {namespace}{slash}{name}: {fault}"));
    }

    /// The groups in which the object counts: one for each combination of the values to which the paths lead.
    fn keys(&mut self, group_by: &[Path]) -> Vec<Key> {
        let mut keys: Vec<Key> = vec![Vec::new()];
        for path in group_by {
            let found = path.find(self.object);
            let texts: BTreeSet<String> = found.iter().filter_map(|value| scalar_text(value)).collect();
            let values: Vec<Option<String>> =
                if found.is_empty() { vec![None] } else { texts.into_iter().map(Some).collect() };
            let fault = if found.iter().any(|value| scalar_text(value).is_none()) {
                Some("a list or an object is no key of a group")
            } else if values.iter().flatten().any(|value| value.len() > KEY_BYTES_MAX) {
                Some("it is too long for a key of a group")
            } else if keys.len() * values.len() > GROUPS_OF_ITEM_MAX {
                Some("it has too many values for one object")
            } else {
                None
            };
            if let Some(fault) = fault {
                self.note(path, &fault);
                return Vec::new();
            }
            keys = keys
                .iter()
                .flat_map(|key| {
                    values.iter().map(|value| [key.as_slice(), std::slice::from_ref(value)].concat())
                })
                .collect();
        }
        keys
    }

    /// The figure of this object alone.
    fn figure(&mut self, value: &Value) -> Result<Figure, SumOverflow> {
        let mut figure = Figure::empty(value);
        let found = value.path().find(self.object);
        if let Value::Count(_) = value {
            figure.count = u64::from(!found.is_empty());
            return Ok(figure);
        }
        for found in found {
            let scalar = match Scalar::from_value(found) {
                Ok(scalar) => scalar,
                Err(fault) => {
                    self.note(value.path(), &fault);
                    continue;
                }
            };
            let one = match (value, scalar.number()) {
                (Value::Sum(_) | Value::Avg(_), None) => {
                    self.note(value.path(), &"a time has no sum");
                    continue;
                }
                (Value::Sum(_) | Value::Avg(_), sum) => Figure { count: 1, sum, ..Figure::default() },
                (Value::Min(_), _) => Figure { count: 1, min: Some(scalar), ..Figure::default() },
                (Value::Max(_) | Value::Count(_), _) => {
                    Figure { count: 1, max: Some(scalar), ..Figure::default() }
                }
            };
            figure.merge(&one)?;
        }
        Ok(figure)
    }

    /// The object with its greatest value in this field, if it has one.
    fn ranked(&mut self, path: &Path) -> Option<RankedItem> {
        let mut greatest = None;
        for found in path.find(self.object) {
            match Scalar::from_value(found) {
                Ok(scalar) => greatest = greatest.max(Some(scalar)),
                Err(fault) => self.note(path, &fault),
            }
        }
        let (namespace, name) = (self.metadata("namespace"), self.metadata("name"));
        Some(RankedItem { value: greatest?, namespace, name, cluster: String::new() })
    }

    fn row(&self, select: &[Path]) -> Row {
        let cell = |path: &Path| {
            let found = path.find(self.object);
            if found.is_empty() {
                return None;
            }
            let text = |value: &Json| scalar_text(value).unwrap_or_else(|| value.to_string());
            let texts: Vec<String> = found.into_iter().map(text).collect();
            Some(shortened(&texts.join(",")))
        };
        let (namespace, name) = (self.metadata("namespace"), self.metadata("name"));
        Row { namespace, name, cluster: String::new(), cells: select.iter().map(cell).collect() }
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(CELL_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
