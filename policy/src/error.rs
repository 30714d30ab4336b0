//! Errors in a policy, with their position and key.

use std::fmt::Display;

use serde_saphyr::{Location, Spanned};

/// A value in a policy that is not allowed. The message begins with `LINE:COLUMN:`, so that a caller can prepend the
/// file's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {key}: {value} is not allowed, use {allowed}")]
pub struct DocumentError {
    /// The line in the file, from 1.
    pub line: u64,
    /// The column in the line, from 1.
    pub column: u64,
    /// The key with dots: `rules[2].clusters.names`.
    pub key: String,
    /// The value as the author wrote it.
    pub value: String,
    /// The values that would be allowed.
    pub allowed: String,
}

/// The path of a field in the document, and its position in the file. The methods follow Kubernetes'
/// `field.Path`.
#[derive(Debug, Clone)]
pub(crate) struct FieldPath {
    key: String,
    position: Location,
}

impl FieldPath {
    /// The path of a top-level field.
    pub(crate) fn new<T>(key: impl Into<String>, raw: &Spanned<T>) -> Self {
        Self { key: key.into(), position: raw.referenced }
    }

    /// The path of the field `key` below this one.
    pub(crate) fn child<T>(&self, key: &str, raw: &Spanned<T>) -> Self {
        Self::new(format!("{}.{key}", self.key), raw)
    }

    /// The path of an entry in the list at this path.
    pub(crate) fn index<T>(&self, index: usize, raw: &Spanned<T>) -> Self {
        Self::new(format!("{}[{index}]", self.key), raw)
    }

    /// An error: `value` is not allowed here.
    pub(crate) fn invalid(&self, value: impl Display, allowed: impl Into<String>) -> DocumentError {
        DocumentError {
            line: self.position.line(),
            column: self.position.column(),
            key: self.key.clone(),
            value: value.to_string(),
            allowed: allowed.into(),
        }
    }

    /// An error: the field `key` below this one is missing.
    pub(crate) fn required(&self, key: &str, allowed: impl Into<String>) -> DocumentError {
        let error = self.invalid("nothing", allowed);
        DocumentError { key: format!("{}.{key}", self.key), ..error }
    }
}
