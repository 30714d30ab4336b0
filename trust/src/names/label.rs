//! Instance ids and trust domains: the parts of a SPIFFE URI.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::rand;
use proto::cluster::is_dns_label;
use proto::spiffe::{TRUST_DOMAIN_BYTES_MAX, is_trust_domain};

/// A DNS-1123 label that names one server or one agent of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label(String);

/// The first part of every SPIFFE URI that this authority issues.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TrustDomain(String);

/// The text is not a DNS label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("use 1 to 63 lower-case letters, digits and '-', with a letter or digit at both ends")]
pub struct NotALabel;

/// The text is not a trust domain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("use 1 to {max} lower-case letters, digits, '.', '-' and '_'", max = TRUST_DOMAIN_BYTES_MAX)]
pub struct NotATrustDomain;

/// The system gave no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("no random bytes for an id; give one with --id")]
pub struct NoRandomness;

impl Label {
    /// Draws a label of eight hexadecimal digits.
    ///
    /// # Errors
    /// [`NoRandomness`].
    pub fn random() -> Result<Self, NoRandomness> {
        let mut bytes = [0; 4];
        rand::fill(&mut bytes).map_err(|_| NoRandomness)?;
        Ok(Self(format!("{:08x}", u32::from_be_bytes(bytes))))
    }

    /// The label closest to `text`: `gateway.example` becomes `gateway-example`, `::1` becomes `1`.
    #[must_use]
    pub fn like(text: &str) -> Option<Self> {
        let hyphened: String = text
            .to_ascii_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let start: String = hyphened.trim_start_matches('-').chars().take(63).collect();
        start.trim_end_matches('-').parse().ok()
    }

    /// The text of the label.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TrustDomain {
    /// The text of the domain.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Label {
    type Err = NotALabel;

    fn from_str(text: &str) -> Result<Self, NotALabel> {
        if is_dns_label(text) { Ok(Self(text.to_owned())) } else { Err(NotALabel) }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TrustDomain {
    type Err = NotATrustDomain;

    fn from_str(text: &str) -> Result<Self, NotATrustDomain> {
        if is_trust_domain(text) { Ok(Self(text.to_owned())) } else { Err(NotATrustDomain) }
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_and_a_trust_domain_are_read_as_they_are_written() {
        let label: Label = "edge-a".parse().unwrap();
        assert_eq!((label.as_str(), label.to_string().as_str()), ("edge-a", "edge-a"));
        let domain: TrustDomain = "tombolo.example".parse().unwrap();
        assert_eq!((domain.as_str(), domain.to_string().as_str()), ("tombolo.example", "tombolo.example"));
        for text in ["", "Edge", "-a", "a-", "a.b", &"x".repeat(64)] {
            assert_eq!(text.parse::<Label>(), Err(NotALabel), "{text:?}");
        }
        for text in ["", "Tombolo", "a/b"] {
            assert_eq!(text.parse::<TrustDomain>(), Err(NotATrustDomain), "{text:?}");
        }
    }

    #[test]
    fn the_label_most_like_a_text_has_hyphens_where_a_label_has_no_letters() {
        let cut = format!("{}-more", "x".repeat(62));
        for (text, expected) in [
            ("gateway.example", Some("gateway-example")),
            ("Gateway", Some("gateway")),
            ("::1", Some("1")),
            ("_a_", Some("a")),
            ("bär", Some("b-r")),
            (&"x".repeat(70), Some(&"x".repeat(63))),
            (&cut, Some(&cut[..62])),
            ("", None),
            ("::", None),
        ] {
            assert_eq!(Label::like(text).as_ref().map(Label::as_str), expected, "{text:?}");
        }
    }

    #[test]
    fn a_drawn_label_has_eight_hexadecimal_digits() {
        let drawn = Label::random().unwrap();
        assert_eq!(drawn.as_str().len(), 8);
        assert!(drawn.as_str().bytes().all(|byte| byte.is_ascii_hexdigit()), "{drawn}");
        assert_eq!(drawn.as_str().parse(), Ok(drawn));
    }
}
