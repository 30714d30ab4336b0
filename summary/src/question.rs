//! The question of a summary: what is grouped, which objects count, which figures are made, and which objects are named.

mod raw;

use serde_json::Value as Json;

use crate::path::{NotAPath, Path};

/// Most fields by which objects are grouped.
pub const GROUP_BY_MAX: usize = 4;

/// Most figures of one group.
pub const VALUES_MAX: usize = 8;

/// Most objects that `top` names.
pub const TOP_MAX: usize = 50;

/// Most objects of which `select` shows fields.
pub const ROWS_MAX: usize = 200;

/// The longest question, in bytes.
pub const QUESTION_BYTES_MAX: usize = 8 * 1024;

/// Most conditions, most values of one, and most fields that `select` shows.
const CONDITIONS_MAX: usize = 8;
const CONDITION_VALUES_MAX: usize = 64;
const SELECT_MAX: usize = 8;

/// A valid question. Only [`Question::parse`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub(crate) group_by: Vec<Path>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) values: Vec<Value>,
    pub(crate) top: Option<Top>,
    pub(crate) select: Vec<Path>,
}

/// A condition on an object, as in a label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub(crate) path: Path,
    pub(crate) operator: Operator,
    pub(crate) values: Vec<String>,
}

/// The comparison of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// One of the field's values is in the list.
    In,
    /// None of the field's values is in the list. An object without the field passes, as in a label selector.
    NotIn,
    /// The object has the field.
    Exists,
    /// The object does not have the field.
    DoesNotExist,
}

/// One figure of each group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// The number of objects that have the field.
    Count(Path),
    /// The sum of the field's numbers.
    Sum(Path),
    /// The smallest of the field's numbers and moments.
    Min(Path),
    /// The greatest of the field's numbers and moments.
    Max(Path),
    /// The mean of the field's numbers, kept as their sum and count.
    Avg(Path),
}

/// The objects with the greatest numbers or moments in a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Top {
    pub(crate) count: usize,
    pub(crate) by: Path,
}

/// The part of a question that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field(String);

/// The reason why a text is no question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAQuestion {
    /// The text has more bytes than [`QUESTION_BYTES_MAX`].
    #[error("a question has at most {QUESTION_BYTES_MAX} bytes")]
    TooLong,
    /// The text is no JSON of a question: an unknown field, a wrong type, a missing value.
    #[error("{0}")]
    Json(String),
    /// A path of the question is none.
    #[error("{0}: {1}")]
    Path(Field, NotAPath),
    /// A list of the question has too many entries.
    #[error("{0}: at most {1} are allowed")]
    TooMany(Field, usize),
    /// A condition has the wrong values for its operator.
    #[error("{0}: In and NotIn need values, Exists and DoesNotExist take none")]
    Values(Field),
    /// A figure is none, or several at once.
    #[error("{0}: name one of count, sum, min, max and avg, with a path")]
    Figure(Field),
    /// The number of objects is zero or too large.
    #[error("{0}: the number of objects must be 1 to {TOP_MAX}")]
    TopCount(Field),
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Value {
    /// The word of the figure, as the question has it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Count(_) => "count",
            Self::Sum(_) => "sum",
            Self::Min(_) => "min",
            Self::Max(_) => "max",
            Self::Avg(_) => "avg",
        }
    }

    /// The field of which the figure is made.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Count(path) | Self::Sum(path) | Self::Min(path) | Self::Max(path) | Self::Avg(path) => path,
        }
    }
}

impl Question {
    /// The fields by which objects are grouped.
    #[must_use]
    pub fn group_by(&self) -> &[Path] {
        &self.group_by
    }

    /// The figures of each group.
    #[must_use]
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// The field by which the greatest objects are named, if the question wants some.
    #[must_use]
    pub fn top_by(&self) -> Option<&Path> {
        self.top.as_ref().map(|top| &top.by)
    }

    /// The fields of each object that are shown.
    #[must_use]
    pub fn select(&self) -> &[Path] {
        &self.select
    }

    /// Returns true if the object meets every condition.
    pub(crate) fn counts(&self, object: &Json) -> bool {
        self.conditions.iter().all(|condition| condition.is_met_by(object))
    }
}

impl Condition {
    fn is_met_by(&self, object: &Json) -> bool {
        let found = self.path.find(object);
        let is_in = || {
            let mut texts = found.iter().filter_map(|value| scalar_text(value));
            texts.any(|text| self.values.contains(&text))
        };
        match self.operator {
            Operator::In => is_in(),
            Operator::NotIn => !is_in(),
            Operator::Exists => !found.is_empty(),
            Operator::DoesNotExist => found.is_empty(),
        }
    }
}

/// The text of a field that is neither a list nor an object.
pub(crate) fn scalar_text(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        Json::Bool(value) => Some(value.to_string()),
        Json::Null | Json::Array(_) | Json::Object(_) => None,
    }
}

#[cfg(test)]
mod tests;
