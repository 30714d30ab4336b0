//! Validates single values. Errors name the key, the value and the allowed values.

use std::{
    fmt::Display,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
    path::Path,
    thread::available_parallelism,
    time::Duration,
};

use proto::cluster::is_dns_label;
use serde::Deserialize;

use super::redact::redact;
use crate::bounded_file::read_bounded;
use crate::exit_code::Failure;
use crate::runtime::{Layout, THREADS_MAX};

/// Longest DNS name (RFC 1035, section 2.3.4).
pub const HOST_BYTES_MAX: usize = 253;

/// A value that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {value} is not allowed, use {allowed}")]
pub struct KeyError {
    /// The key with dots, as in the file: `apiServer.kubeconfig`.
    pub key: String,
    /// The value as in the file, with possible secrets redacted.
    pub value: String,
    /// The allowed values, such as `1 to 600`.
    pub allowed: String,
}

/// The key `runtime` of every daemon: `runtime: {layout: shared | perCore, threads: N}`.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RawRuntime {
    /// perCore has a runtime for each thread, shared has one for all. The default is perCore. If it is set, the default of `threads` is one
    /// for each core.
    pub layout: Option<RawLayout>,
    /// Number of threads that serve exchanges.
    #[cfg_attr(test, schemars(range(min = 1, max = THREADS_MAX)))]
    pub threads: Option<usize>,
}

/// The values of `runtime.layout`. Measured: docs/decisions/0001-runtime-layout.md.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum RawLayout {
    /// One runtime for all threads.
    Shared,
    /// One runtime for each thread.
    #[default]
    PerCore,
}

impl KeyError {
    /// An error that displays as `key: value is not allowed, use allowed`.
    pub fn new(key: impl Into<String>, value: impl Display, allowed: impl Into<String>) -> Self {
        Self { key: key.into(), value: redact(&value.to_string()), allowed: allowed.into() }
    }
}

impl RawRuntime {
    /// The layout that these keys select.
    ///
    /// # Errors
    ///
    /// The value of `runtime.threads` is not 1 to [`THREADS_MAX`].
    pub fn layout(&self) -> Result<Layout, KeyError> {
        let cores = || available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let threads = bounded("runtime.threads", self.threads.unwrap_or_else(cores), 1..=THREADS_MAX)?;
        Ok(match self.layout.unwrap_or_default() {
            RawLayout::Shared => Layout::Shared { workers: threads },
            RawLayout::PerCore => Layout::PerCore { homes: threads },
        })
    }
}

/// Returns `value` if it is in `range`.
///
/// # Errors
///
/// The value is outside of `range`.
pub fn bounded<N: PartialOrd + Display>(
    key: &str,
    value: N,
    range: RangeInclusive<N>,
) -> Result<N, KeyError> {
    if range.contains(&value) {
        return Ok(value);
    }
    Err(KeyError::new(key, value, format!("{} to {}", range.start(), range.end())))
}

/// Returns `value` seconds as a duration, if they are in `range`.
///
/// # Errors
///
/// The value is outside of `range`.
pub fn seconds(key: &str, value: u64, range: RangeInclusive<u64>) -> Result<Duration, KeyError> {
    bounded(key, value, range).map(Duration::from_secs)
}

/// Parses `value` as an IP address with a port.
///
/// # Errors
///
/// The value is something else, such as a host name.
pub fn socket_address(key: &str, value: &str) -> Result<SocketAddr, KeyError> {
    let allowed = "an IP address and a port such as 127.0.0.1:9090 or [::1]:9090";
    value.parse().map_err(|_| KeyError::new(key, value, allowed))
}

/// Accepts a DNS name, or an IP address without brackets.
///
/// # Errors
///
/// The text is neither.
pub fn host(key: &str, text: String) -> Result<String, KeyError> {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let is_name = !text.is_empty() && text.len() <= HOST_BYTES_MAX && text.bytes().all(letters);
    if is_name || text.parse::<IpAddr>().is_ok() {
        return Ok(text);
    }
    Err(KeyError::new(key, text, "a DNS name or an IP address"))
}

/// Parses `host:port`, with an IPv6 address in brackets, which the returned host lacks. The port is not 0.
///
/// # Errors
///
/// The text is something else.
pub fn host_and_port(key: &str, text: &str) -> Result<(String, u16), KeyError> {
    let refused = || KeyError::new(key, text, "host:port, an IPv6 address in brackets");
    let (host_text, port) = text.rsplit_once(':').ok_or_else(refused)?;
    let port: u16 = port.parse().ok().filter(|port| *port > 0).ok_or_else(refused)?;
    if let Some(rest) = host_text.strip_prefix('[') {
        let inner = rest.strip_suffix(']').ok_or_else(refused)?;
        inner.parse::<Ipv6Addr>().map_err(|_| refused())?;
        return Ok((inner.to_owned(), port));
    }
    if host_text.contains(':') {
        return Err(refused());
    }
    Ok((host(key, host_text.to_owned())?, port))
}

/// Accepts a DNS-1123 label, which needs no encoding in a path.
///
/// # Errors
///
/// The text is something else.
pub fn dns_label(key: &str, text: String) -> Result<String, KeyError> {
    if is_dns_label(&text) {
        return Ok(text);
    }
    Err(KeyError::new(key, text, "a name of at most 63 characters of a-z, 0-9 and '-'"))
}

/// Reads the file at `path`, at most `bytes_max`.
///
/// # Errors
///
/// The file cannot be read, or is larger.
pub fn readable_file(key: &str, path: &Path, bytes_max: u64) -> Result<Vec<u8>, KeyError> {
    let not_allowed = |allowed: String| KeyError::new(key, path.display(), allowed);
    let unreadable = |error| not_allowed(format!("a file that this user may read ({error})"));
    let bytes = read_bounded(path, bytes_max).map_err(unreadable)?;
    bytes.ok_or_else(|| not_allowed(format!("a file of at most {bytes_max} bytes")))
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        Self::misconfigured(error)
    }
}

#[cfg(test)]
mod tests;
