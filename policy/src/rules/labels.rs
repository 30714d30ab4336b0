//! Label selectors with the semantics of Kubernetes.
//!
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#resources-that-support-set-based-requirements>

use std::collections::BTreeMap;

use super::lists::{check_keys, entries};
use crate::document;
use crate::error::{DocumentError, FieldPath};

/// Longest value, and longest name in a key, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// Longest prefix of a key, a DNS name, in bytes.
const PREFIX_BYTES_MAX: usize = 253;

/// All of these must hold; there is at least one.
#[derive(Debug, Clone)]
pub(super) struct Selector(Vec<Requirement>);

#[derive(Debug, Clone)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone)]
enum Operator {
    /// The label is there and has one of these values.
    In(Vec<String>),
    /// It has none of these values, or is not there.
    NotIn(Vec<String>),
    /// The label is there, with any value.
    Exists,
    /// The label is not there.
    DoesNotExist,
}

impl Selector {
    /// Returns true if something with these labels is selected.
    pub(super) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|Requirement { key, operator }| {
            let value = labels.get(key);
            match operator {
                Operator::In(values) => value.is_some_and(|value| values.contains(value)),
                Operator::NotIn(values) => !value.is_some_and(|value| values.contains(value)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        })
    }

    pub(super) fn validate(at: &FieldPath, raw: &document::RawLabelSelector) -> Result<Self, DocumentError> {
        let document::RawLabelSelector { match_labels, match_expressions } = raw;
        let mut requirements = Vec::new();
        if let Some(labels) = match_labels {
            let at = at.child("matchLabels", labels);
            check_keys(&at, &labels.value)?;
            for (raw_key, value) in &labels.value {
                let at = at.child(raw_key, value);
                let operator = Operator::In(vec![self::value(&at, &value.value)?]);
                requirements.push(Requirement { key: key(&at, raw_key)?, operator });
            }
        }
        if let Some(expressions) = match_expressions {
            requirements.extend(entries(
                &at.child("matchExpressions", expressions),
                &expressions.value,
                Requirement::validate,
            )?);
        }
        if requirements.is_empty() {
            return Err(at.invalid(
                "nothing",
                "matchLabels, matchExpressions or both; every cluster is `names: [\"*\"]`",
            ));
        }
        Ok(Self(requirements))
    }
}

impl Requirement {
    fn validate(at: &FieldPath, raw: &document::RawExpression) -> Result<Self, DocumentError> {
        let document::RawExpression { key: raw_key, operator, values } = raw;
        let operators = "In, NotIn, Exists or DoesNotExist";
        let raw_key = raw_key.as_ref().ok_or_else(|| at.required("key", "a label's name"))?;
        let raw_operator = operator.as_ref().ok_or_else(|| at.required("operator", operators))?;
        let some = || {
            let values = values.as_ref().ok_or_else(|| at.required("values", "at least one value"))?;
            entries(&at.child("values", values), &values.value, |at, text: &String| value(at, text))
        };
        let none = |operator| match values {
            None => Ok(operator),
            Some(values) => Err(at
                .child("values", values)
                .invalid("a list", format!("no values with {}", raw_operator.value))),
        };
        let operator = match raw_operator.value.as_str() {
            "In" => Operator::In(some()?),
            "NotIn" => Operator::NotIn(some()?),
            "Exists" => none(Operator::Exists)?,
            "DoesNotExist" => none(Operator::DoesNotExist)?,
            other => {
                return Err(at.child("operator", raw_operator).invalid(format_args!("{other:?}"), operators));
            }
        };
        Ok(Self { key: key(&at.child("key", raw_key), &raw_key.value)?, operator })
    }
}

/// The name of a label, perhaps behind a prefix and a slash.
fn key(at: &FieldPath, text: &str) -> Result<String, DocumentError> {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let is_prefix = |prefix: &str| {
        let labels = prefix
            .split('.')
            .all(|label| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-'));
        prefix.len() <= PREFIX_BYTES_MAX && prefix.bytes().all(lower) && labels
    };
    if !name.is_empty() && is_value(name) && prefix.is_none_or(is_prefix) {
        return Ok(text.to_owned());
    }
    Err(at.invalid(format_args!("{text:?}"), "a label's name such as stage or example.com/stage"))
}

fn value(at: &FieldPath, text: &str) -> Result<String, DocumentError> {
    if is_value(text) {
        return Ok(text.to_owned());
    }
    let allowed = format!(
        "at most {NAME_BYTES_MAX} letters, digits, '-', '_' and '.', with a letter or digit at both ends"
    );
    Err(at.invalid(format_args!("{text:?}"), allowed))
}

fn is_value(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let end = |character: char| character.is_ascii_alphanumeric();
    text.len() <= NAME_BYTES_MAX
        && text.bytes().all(fits)
        && (text.is_empty() || text.starts_with(end) && text.ends_with(end))
}
