//! Lists as rules have them: never empty, never too long.

use std::collections::BTreeMap;

use serde_saphyr::Spanned;

use super::ENTRIES_MAX;
use super::choice::{ANY, Choice};
use crate::document::List;
use crate::fault::{At, PolicyFault};

/// Each entry of a list of 1 to [`ENTRIES_MAX`].
pub(super) fn entries<W, T>(
    at: &At,
    written: &[Spanned<W>],
    valid: impl Fn(&At, &W) -> Result<T, PolicyFault>,
) -> Result<Vec<T>, PolicyFault> {
    counted(at, written.len())?;
    written.iter().enumerate().map(|(index, entry)| valid(&at.entry(index, entry), &entry.value)).collect()
}

/// A list of which each entry is `*` or valid; `valid` says what is allowed where one is not.
pub(super) fn choice<T>(
    at: &At,
    written: &List,
    valid: impl Fn(&str) -> Result<T, &'static str>,
) -> Result<Choice<T>, PolicyFault> {
    let some = entries(at, &written.value, |at, text: &String| {
        if text == ANY {
            return Ok(None);
        }
        valid(text).map(Some).map_err(|allowed| at.fault(format_args!("{text:?}"), allowed))
    })?;
    let all: Option<Vec<T>> = some.into_iter().collect();
    Ok(all.map_or(Choice::Any, Choice::Of))
}

/// Refuses a mapping that has not 1 to [`ENTRIES_MAX`] keys.
pub(super) fn keyed<V>(at: &At, written: &BTreeMap<String, V>) -> Result<(), PolicyFault> {
    counted(at, written.len())
}

fn counted(at: &At, count: usize) -> Result<(), PolicyFault> {
    if (1..=ENTRIES_MAX).contains(&count) {
        return Ok(());
    }
    Err(at.fault(format_args!("{count} entries"), format!("1 to {ENTRIES_MAX} entries")))
}
