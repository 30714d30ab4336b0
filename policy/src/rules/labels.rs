//! Label selectors, which mean what they mean to Kubernetes.
//!
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#resources-that-support-set-based-requirements>

use std::collections::BTreeMap;

use super::lists::{entries, keyed};
use crate::document;
use crate::fault::{At, PolicyFault};

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
    must: Must,
}

#[derive(Debug, Clone)]
enum Must {
    /// The label is there and has one of these values.
    In(Vec<String>),
    /// It has none of these values, or is not there.
    NotIn(Vec<String>),
    Exist,
    NotExist,
}

impl Selector {
    /// Whether something with these labels is selected.
    pub(super) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|Requirement { key, must }| {
            let value = labels.get(key);
            match must {
                Must::In(values) => value.is_some_and(|value| values.contains(value)),
                Must::NotIn(values) => !value.is_some_and(|value| values.contains(value)),
                Must::Exist => value.is_some(),
                Must::NotExist => value.is_none(),
            }
        })
    }

    pub(super) fn of(at: &At, written: &document::LabelSelector) -> Result<Self, PolicyFault> {
        let document::LabelSelector { match_labels, match_expressions } = written;
        let mut requirements = Vec::new();
        if let Some(labels) = match_labels {
            let at = at.below("matchLabels", labels);
            keyed(&at, &labels.value)?;
            for (written_key, value) in &labels.value {
                let at = at.below(written_key, value);
                let must = Must::In(vec![self::value(&at, &value.value)?]);
                requirements.push(Requirement { key: key(&at, written_key)?, must });
            }
        }
        if let Some(expressions) = match_expressions {
            requirements.extend(entries(
                &at.below("matchExpressions", expressions),
                &expressions.value,
                Requirement::of,
            )?);
        }
        if requirements.is_empty() {
            return Err(at.fault(
                "nothing",
                "matchLabels, matchExpressions or both; every cluster is `names: [\"*\"]`",
            ));
        }
        Ok(Self(requirements))
    }
}

impl Requirement {
    fn of(at: &At, written: &document::Expression) -> Result<Self, PolicyFault> {
        let document::Expression { key: written_key, operator, values } = written;
        let operators = "In, NotIn, Exists or DoesNotExist";
        let written_key = written_key.as_ref().ok_or_else(|| at.missing("key", "a label's name"))?;
        let operator = operator.as_ref().ok_or_else(|| at.missing("operator", operators))?;
        let some = || {
            let values = values.as_ref().ok_or_else(|| at.missing("values", "at least one value"))?;
            entries(&at.below("values", values), &values.value, |at, text: &String| value(at, text))
        };
        let none = |must| match values {
            None => Ok(must),
            Some(values) => {
                Err(at.below("values", values).fault("a list", format!("no values with {}", operator.value)))
            }
        };
        let must = match operator.value.as_str() {
            "In" => Must::In(some()?),
            "NotIn" => Must::NotIn(some()?),
            "Exists" => none(Must::Exist)?,
            "DoesNotExist" => none(Must::NotExist)?,
            other => return Err(at.below("operator", operator).fault(format_args!("{other:?}"), operators)),
        };
        Ok(Self { key: key(&at.below("key", written_key), &written_key.value)?, must })
    }
}

/// The name of a label, perhaps behind a prefix and a slash.
fn key(at: &At, text: &str) -> Result<String, PolicyFault> {
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
    Err(at.fault(format_args!("{text:?}"), "a label's name such as stage or example.com/stage"))
}

fn value(at: &At, text: &str) -> Result<String, PolicyFault> {
    if is_value(text) {
        return Ok(text.to_owned());
    }
    let allowed = format!(
        "at most {NAME_BYTES_MAX} letters, digits, '-', '_' and '.', with a letter or digit at both ends"
    );
    Err(at.fault(format_args!("{text:?}"), allowed))
}

fn is_value(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let end = |character: char| character.is_ascii_alphanumeric();
    text.len() <= NAME_BYTES_MAX
        && text.bytes().all(fits)
        && (text.is_empty() || text.starts_with(end) && text.ends_with(end))
}
