//! The version of an agent's software, as its greeting claims it: shown and counted, never trusted.

use std::sync::Arc;

/// Longest version that counts as one, in bytes: `1.22.333-beta.4+0123abcd`, and some more.
const VERSION_BYTES_MAX: usize = 32;

/// The version in a greeting's `NAME/VERSION`. Empty if that is no version: it begins with a digit, and has
/// letters, digits, `.`, `-` and `+` only.
pub(super) fn agent_version(software: &str) -> Arc<str> {
    let version = software.rsplit_once('/').map_or("", |(_, version)| version);
    let is_plain = version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-+".contains(&byte));
    let is_version = is_plain && version.starts_with(|first: char| first.is_ascii_digit());
    if is_version && version.len() <= VERSION_BYTES_MAX { version.into() } else { "".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_version_counts_as_none() {
        for (software, version) in [
            ("tunnel-agent/0.1.0", "0.1.0"),
            ("tunnel-agent/1.22.0-rc.1+0123abcd", "1.22.0-rc.1+0123abcd"),
            ("a/b/2", "2"),
            ("", ""),
            ("0.1.0", ""),
            ("tunnel-agent/", ""),
            ("tunnel-agent/v1", ""),
            ("tunnel-agent/1 2", ""),
            ("tunnel-agent/1\"}", ""),
            ("tunnel-agent/1\u{e9}", ""),
        ] {
            assert_eq!(&*agent_version(software), version, "{software:?}");
        }
        let longest = "1".repeat(VERSION_BYTES_MAX);
        assert_eq!(*agent_version(&format!("a/{longest}")), *longest);
        assert_eq!(&*agent_version(&format!("a/{longest}1")), "");
    }
}
