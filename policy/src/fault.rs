//! What is wrong in a policy, and where.

use std::fmt::Display;

use serde_saphyr::{Location, Spanned};

/// A value of a policy that is not allowed. Its text begins with `LINE:COLUMN:`, both from 1, so that a file's name may
/// stand in front of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {key}: {value} is not allowed, use {allowed}")]
pub struct PolicyFault {
    /// From 1.
    pub line: u64,
    /// From 1.
    pub column: u64,
    /// The key with dots: `rules[2].clusters.names`.
    pub key: String,
    /// As the person wrote it.
    pub value: String,
    /// What would be allowed.
    pub allowed: String,
}

/// Where something of the document stands: its key, and its place in the file.
#[derive(Debug, Clone)]
pub(crate) struct At {
    key: String,
    place: Location,
}

impl At {
    /// The place of `written`, under `key`.
    pub(crate) fn of<T>(key: impl Into<String>, written: &Spanned<T>) -> Self {
        Self { key: key.into(), place: written.referenced }
    }

    /// The place of `written`, under `key` of this one.
    pub(crate) fn below<T>(&self, key: &str, written: &Spanned<T>) -> Self {
        Self::of(format!("{}.{key}", self.key), written)
    }

    /// The place of `written`, one in the list that stands here.
    pub(crate) fn entry<T>(&self, index: usize, written: &Spanned<T>) -> Self {
        Self::of(format!("{}[{index}]", self.key), written)
    }

    /// `value` is not allowed here.
    pub(crate) fn fault(&self, value: impl Display, allowed: impl Into<String>) -> PolicyFault {
        PolicyFault {
            line: self.place.line(),
            column: self.place.column(),
            key: self.key.clone(),
            value: value.to_string(),
            allowed: allowed.into(),
        }
    }

    /// `key` is not there and must be.
    pub(crate) fn missing(&self, key: &str, allowed: impl Into<String>) -> PolicyFault {
        let fault = self.fault("nothing", allowed);
        PolicyFault { key: format!("{}.{key}", self.key), ..fault }
    }
}
