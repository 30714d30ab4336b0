//! Values that parse and are not allowed, in words that name the key, the value and what is allowed.

use std::{
    fmt::Display, net::SocketAddr, ops::RangeInclusive, path::Path, thread::available_parallelism,
    time::Duration,
};

use serde::Deserialize;

use super::shown::shown;
use crate::outcome::Failure;
use crate::runtime::{Layout, THREADS_MAX};
use crate::whole_file::whole_file;

/// A value that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {value} is not allowed, use {allowed}")]
pub struct KeyError {
    /// The key as the person wrote it, with dots: `apiServer.kubeconfig`.
    pub key: String,
    /// The value as the person wrote it, but for what looks like a secret.
    pub value: String,
    /// What would be allowed: `1 to 600`.
    pub allowed: String,
}

/// The key `runtime` of every daemon: `runtime: {layout: shared | perCore, threads: N}`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RuntimeKeys {
    /// How runtimes are laid over threads; `perCore` unless said.
    pub layout: Option<LayoutKey>,
    /// How many threads; one per core unless the daemon or its file says otherwise.
    pub threads: Option<usize>,
}

/// The values of `runtime.layout`. Measured: docs/decisions/0001-runtime-layout.md.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LayoutKey {
    /// [`Layout::Shared`].
    Shared,
    /// [`Layout::PerCore`].
    #[default]
    PerCore,
}

impl KeyError {
    /// `key: value is not allowed, use allowed`.
    pub fn new(key: impl Into<String>, value: impl Display, allowed: impl Into<String>) -> Self {
        Self { key: key.into(), value: shown(&value.to_string()), allowed: allowed.into() }
    }
}

impl RuntimeKeys {
    /// The layout they ask for.
    ///
    /// # Errors
    ///
    /// `runtime.threads` is not 1 to [`THREADS_MAX`].
    pub fn layout(&self) -> Result<Layout, KeyError> {
        let cores = || available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let threads = bounded("runtime.threads", self.threads.unwrap_or_else(cores), 1..=THREADS_MAX)?;
        Ok(match self.layout.unwrap_or_default() {
            LayoutKey::Shared => Layout::Shared { workers: threads },
            LayoutKey::PerCore => Layout::PerCore { homes: threads },
        })
    }
}

/// `value`, if it lies in `range`.
///
/// # Errors
///
/// It does not.
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

/// `value` seconds as a duration, if they lie in `range`.
///
/// # Errors
///
/// They do not.
pub fn seconds(key: &str, value: u64, range: RangeInclusive<u64>) -> Result<Duration, KeyError> {
    bounded(key, value, range).map(Duration::from_secs)
}

/// `value` as an IP address with a port.
///
/// # Errors
///
/// It is something else, a host name for instance.
pub fn socket_address(key: &str, value: &str) -> Result<SocketAddr, KeyError> {
    let allowed = "an IP address and a port such as 127.0.0.1:9090 or [::1]:9090";
    value.parse().map_err(|_| KeyError::new(key, value, allowed))
}

/// The bytes of the file at `path`, at most `bytes_max`.
///
/// # Errors
///
/// It cannot be read, or is larger.
pub fn readable_file(key: &str, path: &Path, bytes_max: u64) -> Result<Vec<u8>, KeyError> {
    let not_allowed = |allowed: String| KeyError::new(key, path.display(), allowed);
    let unreadable = |error| not_allowed(format!("a file that this user may read ({error})"));
    let bytes = whole_file(path, bytes_max).map_err(unreadable)?;
    bytes.ok_or_else(|| not_allowed(format!("a file of at most {bytes_max} bytes")))
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        Self::misconfigured(error)
    }
}

#[cfg(test)]
mod tests;
