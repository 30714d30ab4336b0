//! The places of records: the path of each one, and the keys in etcd around it.

use std::fmt;

/// The version of the records' form. A server refuses a newer one than its own.
pub const SCHEMA: u64 = 1;

/// The key of the version of the records' form, behind the beginning of all keys in etcd.
pub const SCHEMA_KEY: &str = "schema";

/// The key that is in etcd while an import goes on, behind the beginning of all keys. A server waits until it is gone.
pub const IMPORT_KEY: &str = "import";

/// The beginning of all keys in etcd, unless another is configured. The trust domain follows it.
pub const PREFIX_DEFAULT: &str = "/tombolo";

/// Longest configured beginning of keys, in bytes.
pub const PREFIX_BYTES_MAX: usize = 128;

/// The name of the table of enrollment tokens.
const TOKENS: &str = "tokens";

/// The part of the records that a table belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Tables that are read when they are needed.
    Read,
    /// Tables that every server has in memory.
    Watched,
}

/// The place of a record, written `PART/TABLE/KEY`. It is the record's key in etcd behind the beginning of all keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// The part that the table belongs to.
    pub part: Part,
    /// The name of the table.
    pub table: &'a str,
    /// The key within the table.
    pub key: &'a str,
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::Read => "r",
            Self::Watched => "w",
        }
    }

    /// The beginning of the paths of all its tables.
    #[must_use]
    pub fn path(self) -> String {
        format!("{}/", self.name())
    }
}

impl<'a> Place<'a> {
    /// Parses a path; `None` if it is not the path of a record.
    #[must_use]
    pub fn parse(path: &'a str) -> Option<Self> {
        let (part, rest) = path.split_once('/')?;
        let part = [Part::Read, Part::Watched].into_iter().find(|known| known.name() == part)?;
        let (table, key) =
            rest.split_once('/').filter(|(table, key)| !table.is_empty() && !key.is_empty())?;
        Some(Self { part, table, key })
    }

    /// Returns true if `record` is an enrollment token that enrolled nobody yet.
    #[must_use]
    pub fn is_unused_token(&self, record: &[u8]) -> bool {
        let used = |record| serde_json::from_slice::<serde_json::Value>(record).ok()?.get("used").cloned();
        self.table == TOKENS && used(record).is_none_or(|used| used.is_null())
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.part.name(), self.table, self.key)
    }
}

/// The beginning of all keys of a trust domain in etcd; `None` if `prefix` is no path such as `/tombolo`, of at most
/// [`PREFIX_BYTES_MAX`] visible ASCII characters, without a `/` at its end.
#[must_use]
pub fn keys_below(prefix: &str, trust_domain: &str) -> Option<String> {
    let fits = prefix.bytes().all(|byte| byte.is_ascii_graphic())
        && prefix.starts_with('/')
        && !prefix.ends_with('/')
        && !prefix.contains("//")
        && prefix.len() <= PREFIX_BYTES_MAX;
    fits.then(|| format!("{prefix}/{trust_domain}/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_parsed_is_written_alike() {
        for path in ["w/clusters/edge-a", "r/agents/edge-a/one", "w/callers/name/a/b"] {
            assert_eq!(Place::parse(path).map(|place| place.to_string()).as_deref(), Some(path));
        }
        for other in ["schema", "import", "w/clusters", "w/clusters/", "x/clusters/edge-a", "w//edge-a", ""] {
            assert_eq!(Place::parse(other), None, "{other}");
        }
    }

    #[test]
    fn only_a_token_that_enrolled_nobody_is_unused() {
        let is_unused = |path, record: &str| Place::parse(path).unwrap().is_unused_token(record.as_bytes());

        assert!(is_unused("r/tokens/one", r#"{"cluster":"edge-a","used":null}"#));
        assert!(is_unused("r/tokens/one", r#"{"cluster":"edge-a"}"#));
        assert!(!is_unused("r/tokens/one", r#"{"used":{"pin":"x"}}"#));
        assert!(!is_unused("r/agents/edge-a/one", r#"{"used":null}"#));
    }

    #[test]
    fn keys_lie_below_the_prefix_and_the_trust_domain() {
        assert_eq!(keys_below(PREFIX_DEFAULT, "example.org").as_deref(), Some("/tombolo/example.org/"));
        for bad in ["", "tombolo", "/tombolo/", "/a//b", "/a b", &"/a".repeat(PREFIX_BYTES_MAX)] {
            assert_eq!(keys_below(bad, "example.org"), None, "{bad}");
        }
    }
}
