//! Reads a question from JSON, and says which part of it is wrong.

use serde::Deserialize;

use super::{
    CONDITION_VALUES_MAX, CONDITIONS_MAX, Condition, Field, GROUP_BY_MAX, NotAQuestion, Operator,
    QUESTION_BYTES_MAX, Question, SELECT_MAX, TOP_MAX, Top, VALUES_MAX, Value,
};
use crate::path::Path;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawQuestion {
    #[serde(default)]
    group_by: Vec<String>,
    #[serde(default, rename = "where")]
    conditions: Vec<RawCondition>,
    #[serde(default)]
    values: Vec<RawValue>,
    top: Option<RawTop>,
    #[serde(default)]
    select: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCondition {
    path: String,
    operator: RawOperator,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Deserialize)]
enum RawOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawValue {
    count: Option<String>,
    sum: Option<String>,
    min: Option<String>,
    max: Option<String>,
    avg: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTop {
    count: usize,
    by: String,
}

impl Question {
    /// Reads a question: an object with `groupBy`, `where`, `values`, `top` and `select`, all of them optional.
    ///
    /// # Errors
    ///
    /// [`NotAQuestion`] names the part that is wrong.
    pub fn parse(text: &str) -> Result<Self, NotAQuestion> {
        if text.len() > QUESTION_BYTES_MAX {
            return Err(NotAQuestion::TooLong);
        }
        let raw: RawQuestion =
            serde_json::from_str(text).map_err(|error| NotAQuestion::Json(error.to_string()))?;
        let RawQuestion { group_by, conditions, values, top, select } = raw;
        let top = top.map(|RawTop { count, by }| {
            if !(1..=TOP_MAX).contains(&count) {
                return Err(NotAQuestion::TopCount(Field("top.count".to_owned())));
            }
            Ok(Top { count, by: path(Field("top.by".to_owned()), &by)? })
        });
        Ok(Self {
            group_by: list("groupBy", GROUP_BY_MAX, group_by, |field, text| path(field, &text))?,
            conditions: list("where", CONDITIONS_MAX, conditions, condition)?,
            values: list("values", VALUES_MAX, values, value)?,
            top: top.transpose()?,
            select: list("select", SELECT_MAX, select, |field, text| path(field, &text))?,
        })
    }
}

/// Reads the entries of a list, each with the name of its place.
fn list<R, T>(
    name: &str,
    max: usize,
    raw: Vec<R>,
    read: impl Fn(Field, R) -> Result<T, NotAQuestion>,
) -> Result<Vec<T>, NotAQuestion> {
    if raw.len() > max {
        return Err(NotAQuestion::TooMany(Field(name.to_owned()), max));
    }
    let entries = raw.into_iter().enumerate();
    entries.map(|(number, raw)| read(Field(format!("{name}[{number}]")), raw)).collect()
}

fn path(field: Field, text: &str) -> Result<Path, NotAQuestion> {
    text.parse().map_err(|fault| NotAQuestion::Path(field, fault))
}

fn condition(field: Field, raw: RawCondition) -> Result<Condition, NotAQuestion> {
    let RawCondition { path: text, operator, values } = raw;
    let (operator, wants_values) = match operator {
        RawOperator::In => (Operator::In, true),
        RawOperator::NotIn => (Operator::NotIn, true),
        RawOperator::Exists => (Operator::Exists, false),
        RawOperator::DoesNotExist => (Operator::DoesNotExist, false),
    };
    if values.is_empty() == wants_values {
        return Err(NotAQuestion::Values(field));
    }
    if values.len() > CONDITION_VALUES_MAX {
        return Err(NotAQuestion::TooMany(Field(format!("{field}.values")), CONDITION_VALUES_MAX));
    }
    Ok(Condition { path: path(Field(format!("{field}.path")), &text)?, operator, values })
}

fn value(field: Field, raw: RawValue) -> Result<Value, NotAQuestion> {
    let RawValue { count, sum, min, max, avg } = raw;
    let of = |make: fn(Path) -> Value, text: Option<String>| text.map(|text| (make, text));
    let named = [
        of(Value::Count, count),
        of(Value::Sum, sum),
        of(Value::Min, min),
        of(Value::Max, max),
        of(Value::Avg, avg),
    ];
    let mut named = named.into_iter().flatten();
    match (named.next(), named.next()) {
        (Some((make, text)), None) => Ok(make(path(field, &text)?)),
        _ => Err(NotAQuestion::Figure(field)),
    }
}
