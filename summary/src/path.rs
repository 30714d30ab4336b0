//! Paths into objects, as `kubectl wait --for=jsonpath` writes them: fields, indices, `[*]` and filters, without `..`.

mod parse;

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

pub use parse::NotAPath;

/// The longest path, in bytes.
pub const PATH_BYTES_MAX: usize = 256;

/// Most steps of a path.
const STEPS_MAX: usize = 16;

/// A path into an object. It leads to any number of values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    text: String,
    steps: Vec<Step>,
}

/// One step from a value to those below it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    /// An element of a list. A negative number counts from its end.
    Index(i64),
    /// All elements of a list, or all values of an object.
    All,
    /// The elements of a list that pass.
    Filter(Filter),
}

/// The condition of a filter: `@.type=="Ready"`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Filter {
    steps: Vec<Step>,
    is_equal: bool,
    value: Value,
}

impl Path {
    /// The path as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The values in an object to which the path leads, in their order. A null counts as no value.
    #[must_use]
    pub fn find<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        let mut found = follow(&self.steps, object);
        found.retain(|value| !value.is_null());
        found
    }

    /// Returns true if the path can lead to several values of one object.
    #[must_use]
    pub fn is_plural(&self) -> bool {
        self.steps.iter().any(|step| match step {
            Step::All | Step::Filter(_) => true,
            Step::Field(_) | Step::Index(_) => false,
        })
    }
}

fn follow<'a>(steps: &[Step], object: &'a Value) -> Vec<&'a Value> {
    steps.iter().fold(vec![object], |values, step| {
        let mut found = Vec::new();
        for value in values {
            step.follow(value, &mut found);
        }
        found
    })
}

impl Step {
    fn follow<'a>(&self, value: &'a Value, found: &mut Vec<&'a Value>) {
        match (self, value) {
            (Self::Field(name), Value::Object(fields)) => found.extend(fields.get(name)),
            (Self::Index(index), Value::Array(items)) => {
                let from_end = || items.len().checked_sub(usize::try_from(index.unsigned_abs()).ok()?);
                let place = if *index < 0 { from_end() } else { usize::try_from(*index).ok() };
                found.extend(place.and_then(|place| items.get(place)));
            }
            (Self::All, Value::Array(items)) => found.extend(items),
            (Self::All, Value::Object(fields)) => found.extend(fields.values()),
            (Self::Filter(filter), Value::Array(items)) => {
                found.extend(items.iter().filter(|item| filter.passes(item)));
            }
            // A step that does not fit leads nowhere, as a field that is not there.
            (Self::Field(_) | Self::Index(_) | Self::All | Self::Filter(_), _) => {}
        }
    }
}

impl Filter {
    fn passes(&self, item: &Value) -> bool {
        let values = follow(&self.steps, item);
        // As in kubectl, an element without the field does not pass either way.
        !values.is_empty() && values.iter().any(|value| **value == self.value) == self.is_equal
    }
}

impl FromStr for Path {
    type Err = NotAPath;

    fn from_str(text: &str) -> Result<Self, NotAPath> {
        Ok(Self { text: text.to_owned(), steps: parse::steps(text)? })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests;
