//! Validates the lists of a rule: never empty, and never beyond the limit.

use std::collections::BTreeMap;

use serde_saphyr::Spanned;

use super::choice::{ANY, Choice};
use crate::document::{ENTRIES_MAX, List};
use crate::error::{DocumentError, FieldPath};

/// Validates each entry of a list of 1 to [`ENTRIES_MAX`].
pub(super) fn entries<W, T>(
    at: &FieldPath,
    raw: &[Spanned<W>],
    valid: impl Fn(&FieldPath, &W) -> Result<T, DocumentError>,
) -> Result<Vec<T>, DocumentError> {
    check_count(at, raw.len())?;
    raw.iter().enumerate().map(|(index, entry)| valid(&at.index(index, entry), &entry.value)).collect()
}

/// A list of valid entries, or of `*`. `valid` returns the allowed values for an invalid one.
pub(super) fn choice<T>(
    at: &FieldPath,
    raw: &List,
    valid: impl Fn(&str) -> Result<T, &'static str>,
) -> Result<Choice<T>, DocumentError> {
    let some = entries(at, &raw.value, |at, text: &String| {
        if text == ANY {
            return Ok(None);
        }
        valid(text).map(Some).map_err(|allowed| at.invalid(format_args!("{text:?}"), allowed))
    })?;
    let all: Option<Vec<T>> = some.into_iter().collect();
    Ok(all.map_or(Choice::Any, Choice::Of))
}

/// Refuses a mapping without 1 to [`ENTRIES_MAX`] keys.
pub(super) fn check_keys<V>(at: &FieldPath, raw: &BTreeMap<String, V>) -> Result<(), DocumentError> {
    check_count(at, raw.len())
}

fn check_count(at: &FieldPath, count: usize) -> Result<(), DocumentError> {
    if (1..=ENTRIES_MAX).contains(&count) {
        return Ok(());
    }
    Err(at.invalid(format_args!("{count} entries"), format!("1 to {ENTRIES_MAX} entries")))
}
