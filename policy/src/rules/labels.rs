//! The label selectors of rules.

use super::lists::{check_keys, entries};
use crate::document;
use crate::error::{DocumentError, FieldPath};
use crate::label::{LABEL_BYTES_MAX, LabelSelector, Operator, Requirement, is_label_name, is_label_value};

/// Validates a rule's selector, which has at least one requirement.
pub(super) fn selector(
    at: &FieldPath,
    raw: &document::RawLabelSelector,
) -> Result<LabelSelector, DocumentError> {
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
            requirement,
        )?);
    }
    if requirements.is_empty() {
        return Err(
            at.invalid("nothing", "matchLabels, matchExpressions or both; every cluster is `names: [\"*\"]`")
        );
    }
    Ok(LabelSelector::new(requirements))
}

fn requirement(at: &FieldPath, raw: &document::RawExpression) -> Result<Requirement, DocumentError> {
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
    Ok(Requirement { key: key(&at.child("key", raw_key), &raw_key.value)?, operator })
}

/// The name of a label, perhaps behind a prefix and a slash.
fn key(at: &FieldPath, text: &str) -> Result<String, DocumentError> {
    if is_label_name(text) {
        return Ok(text.to_owned());
    }
    Err(at.invalid(format_args!("{text:?}"), "a label's name such as stage or example.com/stage"))
}

fn value(at: &FieldPath, text: &str) -> Result<String, DocumentError> {
    if is_label_value(text) {
        return Ok(text.to_owned());
    }
    let allowed = format!(
        "at most {LABEL_BYTES_MAX} letters, digits, '-', '_' and '.', with a letter or digit at both ends"
    );
    Err(at.invalid(format_args!("{text:?}"), allowed))
}
