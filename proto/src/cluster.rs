//! The name of a cluster: a DNS-1123 label.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Longest DNS-1123 label, in bytes (RFC 1123, section 2.1).
pub const LABEL_BYTES_MAX: usize = 63;

/// A cluster's name: a DNS-1123 label, made only by parsing.
///
/// Cheap to clone; compared as bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterId(Arc<str>);

/// A text that is not the name of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a cluster name: use 1 to {max} lower-case letters, digits and '-', with a letter or digit at both ends",
    max = LABEL_BYTES_MAX
)]
pub struct NotAClusterId(String);

impl ClusterId {
    /// The cluster's name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClusterId {
    type Err = NotAClusterId;

    fn from_str(text: &str) -> Result<Self, NotAClusterId> {
        if is_dns_label(text) {
            return Ok(Self(text.into()));
        }
        // Quotes at most one label's length, so that nobody can fill a log with it.
        Err(NotAClusterId(text.chars().take(LABEL_BYTES_MAX).collect()))
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Returns true if `text` is a label as Kubernetes names things (RFC 1123): `[a-z0-9]([-a-z0-9]*[a-z0-9])?`,
/// at most 63 bytes.
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.len() <= LABEL_BYTES_MAX
        && bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_kubernetes_are_cluster_names() {
        let longest = "x".repeat(63);
        for name in ["a", "edge-1", "0", "9-to-5", longest.as_str()] {
            assert_eq!(name.parse::<ClusterId>().map(|id| id.to_string()), Ok(name.to_owned()));
        }
    }

    #[test]
    fn a_clusters_name_is_shown_to_developers_in_quotes() {
        assert_eq!(format!("{:?}", "edge-a".parse::<ClusterId>().unwrap()), "\"edge-a\"");
    }

    #[test]
    fn nothing_else_is_a_cluster_name() {
        let too_long = "x".repeat(64);
        for name in ["", "-a", "a-", "A", "a.b", "a_b", "a/b", "ä", "a\0", " a", "%61", too_long.as_str()] {
            assert!(name.parse::<ClusterId>().is_err(), "{name:?}");
        }
    }
}
