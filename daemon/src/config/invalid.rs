//! What the parser found, in words for the one who wrote the file.

use serde_saphyr::{Error, Location, MessageFormatter as _, UserMessageFormatter};

/// One line, with the key before it where the fault lies in a value.
pub(super) fn describe(text: &str, error: &Error) -> String {
    let error = error.without_snippet();
    let at = error.location().and_then(|location| cut(text, location));
    let (key, value) = at.map_or((None, ""), |(before, after)| (key_before(before), scalar(after)));
    #[expect(clippy::wildcard_enum_match_arm, reason = "the parser's errors are foreign and many")]
    let what = match error {
        Error::InvalidScalar { ty, .. } => format!("{value} is not allowed, use {}", spoken(ty)),
        _ => UserMessageFormatter.format_message(error).replace('\n', " "),
    };
    match key {
        Some(key) => format!("{key}: {what}"),
        None => what,
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
    key.rsplit(['{', ',', ' ']).next().filter(|key| !key.is_empty())
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
