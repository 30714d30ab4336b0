//! The text of an endpoint `HOST:PORT`, as a peer tells it.

/// Longest endpoint, in bytes: a DNS name of 253, a colon and a port, rounded up.
const ENDPOINT_BYTES_MAX: usize = 260;

/// Returns true if a text has no spaces and is no longer than an endpoint.
pub(crate) fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.len() <= ENDPOINT_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic())
}
