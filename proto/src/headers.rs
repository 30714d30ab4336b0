//! Decides which headers of a request and of its response may cross a tunnel.
//!
//! The gateway applies it before it sends a request into a tunnel, and the agent applies it again before it
//! adds its own credential and the caller's identity, so that a mistake on one side alone smuggles nothing.

use http::header::{self, Entry, HeaderMap, HeaderName, HeaderValue};

use crate::name_text::is_readable;
use crate::trace;
use crate::wire::Assert;

/// Most headers in a request, hop-by-hop ones included.
pub const HEADERS_MAX: usize = 100;

/// Largest sum of all names and values, in bytes.
pub const HEADER_BYTES_MAX: usize = 64 * 1024;

/// The header with the id of an exchange, the same in every log, the API server's too.
pub const AUDIT_ID: &str = "audit-id";

/// Longest audit id, in bytes (a UUID has 36); Kubernetes cuts longer ones.
/// <https://github.com/kubernetes/kubernetes/blob/v1.35.0/staging/src/k8s.io/apiserver/pkg/audit/context.go>
pub const AUDIT_ID_BYTES_MAX: usize = 64;

/// The WebSocket subprotocol in which browsers put a bearer token. It is a credential, and so it is taken
/// out. <https://github.com/kubernetes/kubernetes/pull/47740>
const BEARER_SUBPROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Hop-by-hop headers (RFC 9110, section 7.6.1) and what proxies of old made of them. `Expect` has been
/// answered by the hop that received it. `HTTP2-Settings` belongs to an upgrade that nobody serves.
const HOP_BY_HOP: [&str; 12] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "proxy-authentication-info",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "expect",
];

/// Credentials and statements about the caller that only we make. They are removed from callers' requests.
const OURS: [&str; 8] = [
    "authorization",
    "cookie",
    "forwarded",
    "via",
    "x-real-ip",
    "x-original-url",
    "x-rewrite-url",
    "x-forwarded",
];
const OURS_PREFIXES: [&str; 3] = ["x-remote-", "x-forwarded-", "x-tombolo-"];

/// Headers by which a request asserts an identity at an API server. Those that [`take_impersonation`] does
/// not take out are refused, never corrected.
const IMPERSONATION_PREFIX: &str = "impersonate-";
const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");

/// Headers whose removal would change what a request means; `Connection` may not name them.
const LOAD_BEARING: [&str; 17] = [
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "accept",
    "accept-encoding",
    AUDIT_ID,
    "if-match",
    "if-none-match",
    "range",
    trace::TRACEPARENT,
    trace::TRACESTATE,
    "user-agent",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
    "x-stream-protocol-version",
];

/// The reason why a request's headers are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// An attempt to choose the identity.
    #[error(
        "{0} is not accepted here: of impersonation (kubectl --as) only one user with any groups is, each name not empty and without invisible characters"
    )]
    Impersonation(String),
    /// A name with `_` that some server would read as one of ours.
    #[error("the header name {0} could be mistaken for a protected one")]
    Alias(String),
    /// `Connection: NAME` for a header that is not hop-by-hop.
    #[error("the Connection header may not name {0}")]
    ConnectionNames(String),
    /// The request has more headers than `HEADERS_MAX`.
    #[error("more than {max} headers", max = HEADERS_MAX)]
    TooMany,
    /// The headers have more bytes than `HEADER_BYTES_MAX`.
    #[error("headers of more than {max} bytes", max = HEADER_BYTES_MAX)]
    TooLarge,
    /// More than one header says whom the request is for.
    #[error("more than one Host header")]
    Hosts,
}

/// Checks that a request's headers are few and small enough. Its `Audit-ID` is not counted, because we add
/// one where there is none.
///
/// # Errors
/// `TooMany` and `TooLarge`.
pub fn check_limits(headers: &HeaderMap) -> Result<(), HeaderError> {
    let (mut count, mut bytes) = (0, 0);
    for (name, value) in headers.iter().filter(|(name, _)| name.as_str() != AUDIT_ID) {
        count += 1;
        bytes += name.as_str().len() + value.len();
    }
    if count > HEADERS_MAX {
        return Err(HeaderError::TooMany);
    }
    if bytes > HEADER_BYTES_MAX { Err(HeaderError::TooLarge) } else { Ok(()) }
}

/// Returns true if this is an audit id that every log can hold, and that an API server keeps unchanged.
#[must_use]
pub fn is_audit_id(id: &[u8]) -> bool {
    (1..=AUDIT_ID_BYTES_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

/// Takes the identity that the caller wants to assume out of a request: one user, and any groups. It is not
/// authorized yet. Other impersonation headers stay, for [`clean_request`] to refuse.
pub fn take_impersonation(headers: &mut HeaderMap) -> Option<Assert> {
    let named = |value: &HeaderValue| {
        let name =
            std::str::from_utf8(value.as_bytes()).ok().filter(|name| !name.is_empty() && is_readable(name));
        name.map(str::to_owned)
    };
    let users: Option<Vec<String>> = headers.get_all(IMPERSONATE_USER).iter().map(named).collect();
    let groups: Option<Vec<String>> = headers.get_all(IMPERSONATE_GROUP).iter().map(named).collect();
    let ([user], groups) = (users?.try_into().ok()?, groups?);
    headers.remove(IMPERSONATE_USER);
    headers.remove(IMPERSONATE_GROUP);
    Some(Assert { user, groups })
}

/// Removes everything from a request that must not reach the next hop.
///
/// Hop-by-hop headers go first, so that nothing which is added later can be named by a caller's `Connection`.
///
/// # Errors
/// `HeaderError`: the request must be refused, because it claims an identity or hides a header.
pub fn clean_request(headers: &mut HeaderMap) -> Result<(), HeaderError> {
    check_names(headers)?;
    if headers.get_all(header::HOST).iter().count() > 1 {
        return Err(HeaderError::Hosts);
    }
    for name in connection_options(headers) {
        if is_protected(&name) || LOAD_BEARING.contains(&name.as_str()) {
            return Err(HeaderError::ConnectionNames(name));
        }
        headers.remove(&name);
    }
    remove_all(headers, |name| HOP_BY_HOP.contains(&name) || is_ours(name));
    remove_bearer_subprotocol(headers);
    trace::clean(headers);
    Ok(())
}

/// The bearer tokens among the WebSocket subprotocols that a request offers, still in base64url.
pub fn bearer_subprotocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    offered_subprotocols(headers).filter_map(|entry| entry.strip_prefix(BEARER_SUBPROTOCOL))
}

/// Returns true if a request offers a WebSocket subprotocol that is no bearer token, and so can be spoken.
#[must_use]
pub fn offers_subprotocol(headers: &HeaderMap) -> bool {
    offered_subprotocols(headers).any(|entry| !entry.is_empty() && !entry.starts_with(BEARER_SUBPROTOCOL))
}

/// Removes hop-by-hop headers from a response, and headers that an edge may not set under the gateway's host
/// name.
pub fn clean_response(headers: &mut HeaderMap) {
    for name in connection_options(headers) {
        headers.remove(&name);
    }
    remove_all(headers, |name| {
        HOP_BY_HOP.contains(&name) || ["set-cookie", "alt-svc", "strict-transport-security"].contains(&name)
    });
}

/// The value marked as sensitive: it names people, or is a credential. It stays out of debug output and of
/// HTTP/2's compression table.
#[must_use]
pub fn secret(value: &HeaderValue) -> HeaderValue {
    let mut value = value.clone();
    value.set_sensitive(true);
    value
}

/// Returns true if a header decides the identity of a request: no caller may add, remove or change it.
#[must_use]
pub fn is_protected(name: &str) -> bool {
    is_ours(name) || name.starts_with(IMPERSONATION_PREFIX) || name == "proxy-authorization"
}

fn is_ours(name: &str) -> bool {
    OURS.contains(&name) || OURS_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn check_names(headers: &HeaderMap) -> Result<(), HeaderError> {
    for name in headers.keys().map(HeaderName::as_str) {
        let folded = name.replace('_', "-");
        if folded.starts_with(IMPERSONATION_PREFIX) {
            return Err(HeaderError::Impersonation(name.to_owned()));
        }
        if folded != name && (is_protected(&folded) || HOP_BY_HOP.contains(&folded.as_str())) {
            return Err(HeaderError::Alias(name.to_owned()));
        }
    }
    Ok(())
}

/// The header names that `Connection` lists, in lower case, without its own tokens (`close`, `keep-alive`,
/// `upgrade`).
fn connection_options(headers: &HeaderMap) -> Vec<String> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .chain(headers.get_all("proxy-connection"))
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(|option| String::from_utf8_lossy(option).trim_matches(['"', ' ', '\t']).to_ascii_lowercase())
        .filter(|option| !option.is_empty() && !["close", "keep-alive", "upgrade"].contains(&option.as_str()))
        .filter(|option| !HOP_BY_HOP.contains(&option.as_str()) || is_protected(option))
        .collect()
}

fn remove_all(headers: &mut HeaderMap, unwanted: impl Fn(&str) -> bool) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| unwanted(name.as_str())).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

fn offered_subprotocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    values.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(',')).map(str::trim)
}

fn remove_bearer_subprotocol(headers: &mut HeaderMap) {
    let Entry::Occupied(offered) = headers.entry(header::SEC_WEBSOCKET_PROTOCOL) else {
        return;
    };
    let (_, values) = offered.remove_entry_mult();
    let kept: Vec<HeaderValue> = values.filter_map(without_bearer).collect();
    for value in kept {
        headers.append(header::SEC_WEBSOCKET_PROTOCOL, value);
    }
}

fn without_bearer(value: HeaderValue) -> Option<HeaderValue> {
    let Ok(text) = value.to_str() else {
        return None;
    };
    let kept: Vec<&str> =
        text.split(',').map(str::trim).filter(|entry| !entry.starts_with(BEARER_SUBPROTOCOL)).collect();
    HeaderValue::from_str(&kept.join(", ")).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests;
