//! Loading a Kubernetes-shaped configuration file.
//!
//! The file is YAML with `apiVersion` and `kind` at its head. Both are checked first, by a pass that ignores all
//! other keys; a second pass reads the rest into the daemon's struct and does not show it those two keys, so that the
//! struct can refuse unknown keys (`#[serde(deny_unknown_fields, rename_all = "camelCase")]`) without `flatten`,
//! which would lose line numbers. Duplicate keys are refused everywhere.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_saphyr::{Location, Spanned};

use crate::outcome::Failure;

mod damage;
mod every;
mod head;
mod invalid;
mod keys;
mod shown;

pub use damage::pem_damage;
pub use every::{Every, EveryDefault, EveryKeys, GRACE_SECONDS_MAX, LogFormatKey, LogKeys, ProbesKeys};
pub use keys::{KeyError, LayoutKey, RuntimeKeys, bounded, readable_file, seconds, socket_address};
pub use shown::shown;

/// The `apiVersion` of every configuration file.
pub const API_VERSION: &str = "tombolo.dev/v1alpha1";

/// The largest configuration file that is read.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Why a configuration file was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It is not there.
    #[error("there is no configuration file {}, create it or name another one with --config", .0.display())]
    Missing(PathBuf),
    /// It is there, and the system does not give it to us.
    #[error("cannot read {}, check that it is a file and that this user may read it", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is larger than [`FILE_BYTES_MAX`].
    #[error("{} is larger than {FILE_BYTES_MAX} bytes, which no configuration of ours is", .0.display())]
    TooLarge(PathBuf),
    /// `apiVersion` or `kind` is not there.
    #[error("{}: {key} is missing, add the line `{key}: {allowed}`", path.display())]
    Headless {
        /// The file.
        path: PathBuf,
        /// `apiVersion` or `kind`.
        key: &'static str,
        /// The value it must have.
        allowed: String,
    },
    /// `apiVersion` or `kind` says that the file is meant for something else.
    #[error("{place}: {key}: {found} is not what this program reads, use {allowed}")]
    Foreign {
        /// Where the value stands.
        place: Place,
        /// `apiVersion` or `kind`.
        key: &'static str,
        /// What stands there.
        found: String,
        /// The value it must have.
        allowed: String,
    },
    /// Not YAML, an unknown or duplicate key, or a value of a wrong type.
    #[error("{place}: {what}")]
    Invalid {
        /// Where.
        place: Place,
        /// What is wrong, in one line.
        what: String,
    },
}

/// A place in a file, as `FILE:LINE:COLUMN`, both from 1; only `FILE` where no better is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    file: PathBuf,
    position: Option<(u64, u64)>,
}

/// The first two keys of a file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    api_version: Option<Spanned<String>>,
    kind: Option<Spanned<String>>,
}

/// Reads the file at `path` as a `T`, after its `apiVersion` was found to be [`API_VERSION`] and its `kind` to be
/// `kind`. `T` does not see these two keys.
///
/// # Errors
///
/// [`LoadError`], which names the file and, where one is at fault, the line and the column.
pub fn load<T: DeserializeOwned>(path: &Path, kind: &str) -> Result<T, LoadError> {
    parse(&read(path)?, path, kind)
}

/// Reads `text` as [`load`] reads a file; `path` is only named in errors.
///
/// # Errors
///
/// [`LoadError`].
pub fn parse<T: DeserializeOwned>(text: &str, path: &Path, kind: &str) -> Result<T, LoadError> {
    let invalid = |error| invalid(text, path, &error);
    let head: Head = serde_saphyr::from_str(text).map_err(invalid)?;
    expect(path, "apiVersion", head.api_version, API_VERSION)?;
    expect(path, "kind", head.kind, kind)?;
    let head::Beheaded(rest) = serde_saphyr::from_str(text).map_err(invalid)?;
    Ok(rest)
}

/// Reads `text`, which has no head, such as a person's own settings.
///
/// # Errors
///
/// [`LoadError::Invalid`].
pub fn parse_headless<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T, LoadError> {
    serde_saphyr::from_str(text).map_err(|error| invalid(text, path, &error))
}

fn invalid(text: &str, path: &Path, error: &serde_saphyr::Error) -> LoadError {
    LoadError::Invalid { place: Place::new(path, error.location()), what: invalid::describe(text, error) }
}

impl Place {
    fn new(file: &Path, location: Option<Location>) -> Self {
        let position = location.map(|at| (at.line(), at.column())).filter(|&(line, _)| line > 0);
        Self { file: file.to_owned(), position }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.file.display())?;
        match self.position {
            Some((line, column)) => write!(f, ":{line}:{column}"),
            None => Ok(()),
        }
    }
}

/// The text of the file at `path`.
///
/// # Errors
///
/// [`LoadError`]: it is not there, cannot be read, or is larger than [`FILE_BYTES_MAX`].
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
    // One byte more than allowed, so that a file that is too large shows.
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(LoadError::TooLarge(path.to_owned()));
    }
    Ok(text)
}

fn expect(
    path: &Path,
    key: &'static str,
    found: Option<Spanned<String>>,
    allowed: &str,
) -> Result<(), LoadError> {
    let allowed = allowed.to_owned();
    let Some(found) = found else {
        return Err(LoadError::Headless { path: path.to_owned(), key, allowed });
    };
    if found.value == allowed {
        return Ok(());
    }
    let place = Place::new(path, Some(found.referenced));
    Err(LoadError::Foreign { place, key, found: shown(&found.value), allowed })
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self::misconfigured(error)
    }
}

#[cfg(test)]
mod tests;
