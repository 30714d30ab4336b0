//! Resource versions, and where a watch begins. Pure.

/// Longest resource version that is followed, in bytes. Those of etcd have at most 19.
const VERSION_BYTES_MAX: usize = 64;

/// A resource version: a decimal number of any size. Kubernetes promises this format since 1.35 for its own
/// resources and those of CRDs, and has always used it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version(Box<str>);

/// The point at which a watch begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Start {
    /// After this version of the resource.
    At(Version),
    /// With the existing objects, or now.
    Anywhere,
    /// With the existing objects, and a bookmark after them.
    InitialEvents,
    /// The query is ambiguous, and only the API server knows how it reads it.
    Unclear,
}

impl Version {
    /// Parses a version. `None` unless it is a decimal number other than zero.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let fits = (1..=VERSION_BYTES_MAX).contains(&text.len());
        (digits && fits && !text.starts_with('0')).then(|| Self(text.into()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn is_newer_than(&self, other: &Self) -> bool {
        (self.0.len(), &self.0) > (other.0.len(), &other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_a_number_other_than_zero() {
        for text in ["1", "99", &"9".repeat(VERSION_BYTES_MAX)] {
            assert!(Version::parse(text).is_some(), "{text}");
        }
        for text in ["", "0", "01", "-1", "1 ", "a", "1a", &"9".repeat(VERSION_BYTES_MAX + 1)] {
            assert!(Version::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(version("10").is_newer_than(&version("9")));
        assert!(!version("9").is_newer_than(&version("10")));
        assert!(!version("9").is_newer_than(&version("9")));
    }

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }
}
