//! What the parser found, in words for the one who wrote the file, who may have put a secret there.

use serde_saphyr::{Error, Location, MessageFormatter as _, UserMessageFormatter};

use super::shown;

/// One line, with the key before it where the fault lies in a value.
pub(super) fn describe(text: &str, error: &Error) -> String {
    let error = error.without_snippet();
    let at = error.location().and_then(|location| cut(text, location));
    let (key, value) = at.map_or((None, ""), |(before, after)| (key_before(before), scalar(after)));
    let what = what(error, value);
    match key {
        Some(key) => format!("{key}: {what}"),
        None => what,
    }
}

/// The fault, at which `value` stands. The parser's own words are taken where they quote nothing.
#[expect(clippy::wildcard_enum_match_arm, reason = "the parser's errors are foreign and many")]
fn what(error: &Error, value: &str) -> String {
    match error {
        Error::InvalidScalar { ty, .. } => {
            format!("{} is not allowed, use {}", shown::word(value), spoken(ty))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            format!("{} is not allowed, use {}", shown::word(variant), expected.join(" or "))
        }
        Error::SerdeUnknownField { field, expected, .. } if shown::key(field).is_none() => {
            format!("what stands here is no key, expected one of {}", expected.join(", "))
        }
        Error::DuplicateMappingKey { key: Some(key), .. } if shown::key(key).is_none() => {
            "a key stands twice here".to_owned()
        }
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            format!("what stands here is not allowed, use {expected}")
        }
        Error::NonFiniteFloat { .. } | Error::TaggedEnumMismatch { .. } | Error::QuotingRequired { .. } => {
            "what stands here is not allowed".to_owned()
        }
        Error::AliasError { error, .. } => what(error.without_snippet(), ""),
        _ => UserMessageFormatter.format_message(error).replace('\n', " "),
    }
}

/// The line of `location`, cut at its column.
fn cut(text: &str, location: Location) -> Option<(&str, &str)> {
    let line = text.lines().nth(usize::try_from(location.line()).ok()?.checked_sub(1)?)?;
    let column = usize::try_from(location.column()).ok()?.checked_sub(1)?;
    let byte = line.char_indices().nth(column).map_or(line.len(), |(byte, _)| byte);
    line.split_at_checked(byte)
}

/// The key whose value begins after `before`; `None` if no value begins there.
fn key_before(before: &str) -> Option<&str> {
    let key = before.trim_end().strip_suffix(':')?;
    // Behind a blank it may be the end of another key's value.
    let key = key.rsplit(['{', ',']).next()?.trim();
    shown::key(key.strip_prefix("- ").unwrap_or(key).trim())
}

/// The plain scalar at the beginning of `after`.
fn scalar(after: &str) -> &str {
    let ends = after.find([',', '}', ']', '#']).unwrap_or(after.len());
    after[..ends].trim_end()
}

fn spoken(rust_type: &str) -> &str {
    match rust_type {
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => "a whole number of 0 or more, within reason",
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number, within reason",
        "floating point" => "a number",
        "boolean" => "true or false",
        other => other,
    }
}
