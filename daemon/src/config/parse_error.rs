//! Describes errors of the YAML parser for the author of the file, without quoting possible secrets.

use serde_saphyr::{Error, Location, MessageFormatter as _, UserMessageFormatter};

use super::common::COMMON_KEYS;
use super::redact;

/// Describes `error` in one line, with the key in front if the fault is in a value, and with the line of the file. `own` are
/// the keys of the struct beside which the common keys are allowed, if any.
pub(super) fn describe(text: &str, error: &Error, own: Option<&[&str]>) -> String {
    let error = error.without_snippet();
    let Some((before, after)) = error.location().and_then(|location| split_line(text, location)) else {
        return message(error, "", own);
    };
    let value = redact::without_login(after);
    let message = message(error, scalar(&value), own);
    let line = redact::redact_line(&[before, after].concat());
    let line = if line.is_empty() { String::new() } else { format!("; the line is `{line}`") };
    match key_before(before) {
        Some(key) => format!("{key}: {message}{line}"),
        None => format!("{message}{line}"),
    }
}

/// Describes the fault at `value`. The parser's own message is used only if it quotes nothing.
#[expect(clippy::wildcard_enum_match_arm, reason = "the parser's errors are foreign and many")]
fn message(error: &Error, value: &str, own: Option<&[&str]>) -> String {
    match error {
        Error::InvalidScalar { ty, .. } => {
            format!("{} is not allowed, use {}", redact::redact_word(value), type_in_words(ty))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            format!("{} is not allowed, use {}", redact::redact_word(variant), expected.join(" or "))
        }
        Error::SerdeUnknownField { field, expected, .. } if own == Some(expected.as_slice()) => {
            unknown_key(field, &[expected.as_slice(), &COMMON_KEYS].concat())
        }
        Error::SerdeUnknownField { field, expected, .. } => unknown_key(field, expected),
        Error::DuplicateMappingKey { key: Some(key), .. } if redact::plain_key(key).is_none() => {
            "a key stands twice here".to_owned()
        }
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            format!("what stands here is not allowed, use {expected}")
        }
        Error::NonFiniteFloat { .. } | Error::TaggedEnumMismatch { .. } | Error::QuotingRequired { .. } => {
            "what stands here is not allowed".to_owned()
        }
        Error::AliasError { error, .. } => message(error.without_snippet(), "", own),
        _ => UserMessageFormatter.format_message(error).replace('\n', " "),
    }
}

/// Describes a key that is none of the `expected` ones. A text that is no plain key is not quoted.
fn unknown_key(key: &str, expected: &[&str]) -> String {
    let expected = expected.join(", ");
    match redact::plain_key(key) {
        Some(key) => format!("unknown field `{key}`, expected one of {expected}"),
        None => format!("what stands here is no key, expected one of {expected}"),
    }
}

/// The line of `location`, split at its column.
fn split_line(text: &str, location: Location) -> Option<(&str, &str)> {
    let line = text.lines().nth(usize::try_from(location.line()).ok()?.checked_sub(1)?)?;
    let column = usize::try_from(location.column()).ok()?.checked_sub(1)?;
    let byte = line.char_indices().nth(column).map_or(line.len(), |(byte, _)| byte);
    line.split_at_checked(byte)
}

/// The key whose value begins after `before`; `None` if no value begins there.
fn key_before(before: &str) -> Option<&str> {
    let key = before.trim_end().strip_suffix(':')?;
    // After a blank it may be the end of another key's value.
    let key = key.rsplit(['{', ',']).next()?.trim();
    redact::plain_key(key.strip_prefix("- ").unwrap_or(key).trim())
}

/// The plain scalar at the beginning of `after`.
fn scalar(after: &str) -> &str {
    let ends = after.find([',', '}', ']', '#']).unwrap_or(after.len());
    after[..ends].trim_end()
}

fn type_in_words(rust_type: &str) -> &str {
    match rust_type {
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => "a whole number of 0 or more, within reason",
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number, within reason",
        "floating point" => "a number",
        "boolean" => "true or false",
        other => other,
    }
}
