//! Loads a configuration file in the form of a Kubernetes object.
//!
//! The file is YAML with `apiVersion` and `kind` at its head. A first pass checks both and ignores all other
//! keys. A second pass hides these two keys and reads the rest into the daemon's struct. So the struct can
//! refuse unknown keys (`#[serde(deny_unknown_fields, rename_all = "camelCase")]`) without `flatten`, which
//! would lose line numbers. Duplicate keys are refused everywhere.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_saphyr::{Location, Spanned};

use crate::exit_code::Failure;

mod common;
mod field_names;
mod hidden_keys;
mod keys;
mod parse_error;
mod pem_error;
mod redact;
mod server_id;

pub use common::{
    CommonConfig, CommonDefaults, GRACE_SECONDS_MAX, RawCommon, RawLog, RawLogFormat, RawProbes,
};
pub use keys::{
    HOST_BYTES_MAX, KeyError, RawLayout, RawRuntime, bounded, dns_label, host, host_and_port, readable_file,
    seconds, socket_address,
};
pub use pem_error::describe_pem_error;
pub use redact::redact;
pub use server_id::{SERVER_ID_PLACEHOLDER, with_server_id};

/// The `apiVersion` of every configuration file.
pub const API_VERSION: &str = "tombolo.dev/v1alpha1";

/// The largest configuration file that is read.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The reason why a configuration file was refused.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file does not exist.
    #[error("there is no configuration file {}, create it or name another one with --config", .0.display())]
    Missing(PathBuf),
    /// The file exists, but cannot be read.
    #[error("cannot read {}, check that it is a file and that this user may read it", path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is larger than [`FILE_BYTES_MAX`].
    #[error("{} is larger than {FILE_BYTES_MAX} bytes, which no configuration of ours is", .0.display())]
    TooLarge(PathBuf),
    /// The file has the placeholder of a server's ID, and no ID was given with it.
    #[error("{} has {SERVER_ID_PLACEHOLDER}, and the server's ID is {found}; give it by --server-id or TOMBOLO_SERVER_SERVER_ID, as 1 to 63 lower-case letters, digits and '-'", path.display())]
    NoServerId {
        /// The path of the file.
        path: PathBuf,
        /// The ID that was given, or "nothing".
        found: String,
    },
    /// The key `apiVersion` or `kind` is missing.
    #[error("{}: {key} is missing, add the line `{key}: {allowed}`", path.display())]
    MissingHead {
        /// The path of the file.
        path: PathBuf,
        /// The missing key: `apiVersion` or `kind`.
        key: &'static str,
        /// The value that it must have.
        allowed: String,
    },
    /// The value of `apiVersion` or `kind` belongs to another program or version.
    #[error("{position}: {key}: {found} is not what this program reads, use {allowed}")]
    WrongHead {
        /// The position of the value.
        position: FilePosition,
        /// The key with the wrong value: `apiVersion` or `kind`.
        key: &'static str,
        /// The value in the file, redacted.
        found: String,
        /// The value that it must have.
        allowed: String,
    },
    /// The file is not YAML, or has an unknown or duplicate key, or a value of a wrong type.
    #[error("{position}: {message}")]
    Invalid {
        /// The position of the fault.
        position: FilePosition,
        /// The fault, in one line.
        message: String,
    },
}

/// The reason why a daemon's configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read or parsed.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A value is missing or not allowed.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// A position in a file, displayed as `FILE:LINE:COLUMN`, both from 1; only `FILE` if the line is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePosition {
    file: PathBuf,
    position: Option<(u64, u64)>,
}

/// The raw head of a file: its first two keys.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawHead {
    api_version: Option<Spanned<String>>,
    kind: Option<Spanned<String>>,
}

/// Reads the file at `path` as a `T`, after checking that its `apiVersion` is [`API_VERSION`] and its `kind` is `kind`. `T`
/// does not see these two keys.
///
/// # Errors
///
/// [`LoadError`], which names the file and, if known, the line and the column.
pub fn load<T: DeserializeOwned>(path: &Path, kind: &str) -> Result<T, LoadError> {
    parse(&read(path)?, path, kind)
}

/// Reads the configuration of a daemon at `path` as [`load`] does: the keys that every daemon has, and the daemon's own keys
/// as a `T`. `T` does not see the common keys.
///
/// ```
/// # #[derive(serde::Deserialize)] #[serde(deny_unknown_fields)] struct RawServerConfig { listen: String }
/// # let (text, path) = ("apiVersion: tombolo.dev/v1alpha1\nkind: ServerConfig\nlisten: a\nstateDir: b", "x".as_ref());
/// let (common, own) = daemon::config::parse_with_common::<RawServerConfig>(text, path, "ServerConfig")?;
/// assert_eq!((common.state_dir, own.listen), (Some("b".into()), "a".to_owned()));
/// # Ok::<(), daemon::config::LoadError>(())
/// ```
///
/// # Errors
///
/// [`LoadError`], which names the file and, if known, the line and the column.
pub fn load_with_common<T: DeserializeOwned>(path: &Path, kind: &str) -> Result<(RawCommon, T), LoadError> {
    parse_with_common(&read(path)?, path, kind)
}

/// Reads `text` as [`load_with_common`] reads a file; `path` is only named in errors.
///
/// # Errors
///
/// [`LoadError`].
pub fn parse_with_common<T: DeserializeOwned>(
    text: &str,
    path: &Path,
    kind: &str,
) -> Result<(RawCommon, T), LoadError> {
    let own_keys = field_names::field_names::<T>();
    let invalid = |error| invalid(text, path, &error, Some(own_keys));
    check_head(text, path, kind)?;
    let common = serde_saphyr::from_str(text).map_err(invalid)?;
    let hidden_keys::OwnKeys(own) = serde_saphyr::from_str(text).map_err(invalid)?;
    Ok((common, own))
}

/// Reads `text` as [`load`] reads a file; `path` is only named in errors.
///
/// # Errors
///
/// [`LoadError`].
pub fn parse<T: DeserializeOwned>(text: &str, path: &Path, kind: &str) -> Result<T, LoadError> {
    check_head(text, path, kind)?;
    let hidden_keys::WithoutHead(rest) =
        serde_saphyr::from_str(text).map_err(|error| invalid(text, path, &error, None))?;
    Ok(rest)
}

/// Reads `text` without a head, such as a user's own settings.
///
/// # Errors
///
/// [`LoadError::Invalid`].
pub fn parse_without_head<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T, LoadError> {
    serde_saphyr::from_str(text).map_err(|error| invalid(text, path, &error, None))
}

/// Checks the two keys at the head of `text`.
fn check_head(text: &str, path: &Path, kind: &str) -> Result<(), LoadError> {
    let head: RawHead = serde_saphyr::from_str(text).map_err(|error| invalid(text, path, &error, None))?;
    check_key(path, "apiVersion", head.api_version, API_VERSION)?;
    check_key(path, "kind", head.kind, kind)
}

fn invalid(text: &str, path: &Path, error: &serde_saphyr::Error, own_keys: Option<&[&str]>) -> LoadError {
    LoadError::Invalid {
        position: FilePosition::new(path, error.location()),
        message: parse_error::describe(text, error, own_keys),
    }
}

impl FilePosition {
    fn new(file: &Path, location: Option<Location>) -> Self {
        let position = location.map(|at| (at.line(), at.column())).filter(|&(line, _)| line > 0);
        Self { file: file.to_owned(), position }
    }
}

impl std::fmt::Display for FilePosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.file.display())?;
        match self.position {
            Some((line, column)) => write!(f, ":{line}:{column}"),
            None => Ok(()),
        }
    }
}

/// Reads the text of the file at `path`.
///
/// # Errors
///
/// [`LoadError`]: the file is missing, cannot be read, or is larger than [`FILE_BYTES_MAX`].
pub fn read(path: &Path) -> Result<String, LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(|source| {
        if source.kind() == io::ErrorKind::NotFound {
            LoadError::Missing(path.to_owned())
        } else {
            unreadable(source)
        }
    })?;
    let mut text = String::new();
    // One byte more than allowed, to detect a file that is too large.
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(LoadError::TooLarge(path.to_owned()));
    }
    Ok(text)
}

fn check_key(
    path: &Path,
    key: &'static str,
    found: Option<Spanned<String>>,
    allowed: &str,
) -> Result<(), LoadError> {
    let allowed = allowed.to_owned();
    let Some(found) = found else {
        return Err(LoadError::MissingHead { path: path.to_owned(), key, allowed });
    };
    if found.value == allowed {
        return Ok(());
    }
    let position = FilePosition::new(path, Some(found.referenced));
    Err(LoadError::WrongHead { position, key, found: redact(&found.value), allowed })
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self::misconfigured(error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::misconfigured(error)
    }
}

#[cfg(test)]
mod tests;
