//! Validates raw paths, and finds the end of the part that Kubernetes interprets.

use std::borrow::Cow;

use http::uri::PathAndQuery;

use super::error::{ActionError, TARGET_BYTES_MAX};

/// The target as text, if a request line may contain each of its bytes.
pub(super) fn target(raw: &[u8]) -> Result<&str, ActionError> {
    if raw.len() > TARGET_BYTES_MAX {
        return Err(ActionError::TooLong);
    }
    if raw.first() != Some(&b'/') {
        return Err(ActionError::NotAPath);
    }
    // '#' would end the target in some parsers and not in others; '\' is a separator to some.
    if !raw.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#' && *byte != b'\\') {
        return Err(ActionError::RawByte);
    }
    std::str::from_utf8(raw).map_err(|_| ActionError::RawByte)
}

/// The cluster's own path: the part after the cluster's name, with a leading `/`.
pub(super) fn of_cluster(rest: &str) -> Result<PathAndQuery, ActionError> {
    let complete: Cow<'_, str> = if rest.starts_with('/') { rest.into() } else { format!("/{rest}").into() };
    let path = PathAndQuery::try_from(complete.as_ref()).map_err(|_| ActionError::RawByte)?;
    // The parser may stop early; every byte must be part of the path.
    if path.as_str() == complete { Ok(path) } else { Err(ActionError::RawByte) }
}

/// The path of `received` with this canonical query, or without one where it is empty.
pub(super) fn with_query(received: PathAndQuery, query: &str) -> Result<PathAndQuery, ActionError> {
    let path = received.path();
    let bytes = if query.is_empty() { path.len() } else { path.len() + 1 + query.len() };
    // Encoding may have made it longer.
    if bytes > TARGET_BYTES_MAX {
        return Err(ActionError::TooLong);
    }
    // Mostly it is canonical already, at the agent always.
    if received.query().map_or(query.is_empty(), |own| !own.is_empty() && own == query) {
        return Ok(received);
    }
    let complete = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    PathAndQuery::try_from(complete).map_err(|_| ActionError::RawByte)
}

/// The first segment of a target, decoded, if it has one that is not empty.
pub(super) fn first_segment(target: &str) -> Result<Option<Cow<'_, str>>, ActionError> {
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    if first.is_empty() { Ok(None) } else { decoded(first).map(Some) }
}

/// The segments of a cluster's path, decoded once as the API server does, up to and including the `proxy` of a
/// service, pod or node. The rest belongs to an application, which may use `//` and `%2F` freely.
pub(super) fn segments(path: &str) -> Result<Vec<Cow<'_, str>>, ActionError> {
    let path = path.strip_prefix('/').ok_or(ActionError::NotAPath)?;
    if path.is_empty() {
        return Ok(Vec::new());
    }
    // One slash may stand at the end: the API server reads `/api/v1/pods/` as `/api/v1/pods`.
    let path = path.strip_suffix('/').unwrap_or(path);
    let read = opaque_from(path).map_or(path, |end| &path[..end]);
    read.split('/').map(decoded).collect()
}

/// The index, after the first slash, where the application's part of a path begins: behind `proxy`.
///
/// All segments before it but the names must be literal: an escaped `p%72oxy` does not end the validation.
fn opaque_from(path: &str) -> Option<usize> {
    let segments: Vec<&str> = path.splitn(8, '/').collect();
    let read = match segments.as_slice() {
        ["api", "v1", "namespaces", _, "pods" | "services", _, "proxy", ..] => 7,
        ["api", "v1", "nodes", _, "proxy", ..] => 5,
        _ => return None,
    };
    let names: usize = segments.iter().take(read).map(|segment| segment.len()).sum();
    Some(names + read - 1)
}

/// One segment after one decoding.
fn decoded(segment: &str) -> Result<Cow<'_, str>, ActionError> {
    if segment.is_empty() {
        return Err(ActionError::EmptySegment);
    }
    let text = percent_decoded(segment)?;
    if text == "." || text == ".." {
        return Err(ActionError::DotSegment);
    }
    let hidden = |character: char| matches!(character, '/' | '\\' | '%') || character.is_control();
    if text.contains(hidden) {
        return Err(ActionError::HiddenCharacter);
    }
    Ok(text)
}

/// `text` with each `%XX` replaced by its byte.
pub(super) fn percent_decoded(text: &str) -> Result<Cow<'_, str>, ActionError> {
    if !text.contains('%') {
        return Ok(text.into());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, after @ ..] = rest else {
            return Err(ActionError::Encoding);
        };
        bytes.push(hex(*high)? << 4 | hex(*low)?);
        rest = after;
    }
    String::from_utf8(bytes).map(Cow::from).map_err(|_| ActionError::Encoding)
}

fn hex(digit: u8) -> Result<u8, ActionError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(ActionError::Encoding),
    }
}
