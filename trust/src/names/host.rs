//! The DNS names and addresses of a server.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use proto::cluster::is_dns_label;

/// The longest DNS name, in bytes and without the final dot (RFC 1035, section 2.3.4).
const DNS_NAME_BYTES_MAX: usize = 253;

/// A DNS name or an IP address, for a server certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerName {
    /// A DNS name in lower case; a wildcard only where a [`HostSuffix`] made it.
    Dns(String),
    /// An IPv4 or IPv6 address.
    Ip(IpAddr),
}

/// A DNS name of at least two labels under which every cluster has a name of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSuffix(String);

/// The reason why a text is not a server's name or a suffix of names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAHost {
    /// The text begins with `*.`.
    #[error("a wildcard is asked for by --suffix: write --suffix example.org for *.example.org")]
    Wildcard,
    /// The text is neither a DNS name nor an address.
    #[error("use a DNS name (labels of letters, digits and '-', at most {max} bytes) or an IP address, without scheme or port", max = DNS_NAME_BYTES_MAX)]
    Malformed,
    /// The suffix is an IP address.
    #[error("use a DNS name, not an IP address: an address has no names under it")]
    AddressAsSuffix,
    /// The suffix has only one label.
    #[error(
        "use a DNS name of at least two labels, such as clusters.example: TLS libraries refuse a wildcard under one label"
    )]
    ShortSuffix,
}

impl FromStr for ServerName {
    type Err = NotAHost;

    fn from_str(text: &str) -> Result<Self, NotAHost> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Ip(address));
        }
        if text.starts_with("*.") {
            return Err(NotAHost::Wildcard);
        }
        dns_name(text).map(Self::Dns)
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Ip(address) => address.fmt(f),
        }
    }
}

impl HostSuffix {
    /// The suffix itself, and every name of one more label.
    #[must_use]
    pub fn names(&self) -> [ServerName; 2] {
        [ServerName::Dns(self.0.clone()), ServerName::Dns(format!("*.{}", self.0))]
    }
}

impl FromStr for HostSuffix {
    type Err = NotAHost;

    fn from_str(text: &str) -> Result<Self, NotAHost> {
        if text.parse::<IpAddr>().is_ok() {
            return Err(NotAHost::AddressAsSuffix);
        }
        // `*.S` and `.S` mean the same as `S`.
        let name = dns_name(text.strip_prefix("*.").or_else(|| text.strip_prefix('.')).unwrap_or(text))?;
        if name.contains('.') { Ok(Self(name)) } else { Err(NotAHost::ShortSuffix) }
    }
}

impl fmt::Display for HostSuffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `text` in lower case, if it is a DNS name that cannot be mistaken for an address.
fn dns_name(text: &str) -> Result<String, NotAHost> {
    let name = text.to_ascii_lowercase();
    // URL parsers read a name whose last label is a number as an IPv4 address.
    let numeric_end =
        name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    if name.len() > DNS_NAME_BYTES_MAX || numeric_end || !name.split('.').all(is_dns_label) {
        return Err(NotAHost::Malformed);
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_name_is_an_address_or_a_dns_name_in_lower_case() {
        for (written, name) in [
            ("Gateway.Example", ServerName::Dns("gateway.example".to_owned())),
            ("gateway", ServerName::Dns("gateway".to_owned())),
            ("1.example", ServerName::Dns("1.example".to_owned())),
            ("a.1b", ServerName::Dns("a.1b".to_owned())),
            ("192.0.2.1", ServerName::Ip([192, 0, 2, 1].into())),
            ("::1", ServerName::Ip(std::net::Ipv6Addr::LOCALHOST.into())),
        ] {
            assert_eq!(written.parse(), Ok(name.clone()), "{written}");
            assert_eq!(name.to_string(), written.to_ascii_lowercase());
        }
    }

    #[test]
    fn a_text_that_could_be_read_as_an_address_is_refused() {
        for text in [
            "",
            ".",
            "gateway.",
            "a..b",
            "-a.example",
            "a_b.example",
            "https://gateway.example",
            "gateway.example:443",
            "[::1]",
            "gatewäy.example",
            "a.*.example",
            "*",
            // The URL standard takes these for IPv4 addresses.
            "1",
            "192.0.2",
            "192.0.2.256",
            "gateway.1",
        ] {
            assert_eq!(text.parse::<ServerName>(), Err(NotAHost::Malformed), "{text:?}");
        }
        assert_eq!("*.example.org".parse::<ServerName>(), Err(NotAHost::Wildcard));
    }

    #[test]
    fn a_name_has_253_bytes_at_the_most() {
        let label = "x".repeat(63);
        let longest = format!("{label}.{label}.{label}.{}", "x".repeat(61));
        assert_eq!(longest.len(), DNS_NAME_BYTES_MAX);
        assert_eq!(longest.parse(), Ok(ServerName::Dns(longest.clone())));
        for beyond in [format!("{longest}x"), format!("a.{longest}")] {
            assert_eq!(beyond.parse::<ServerName>(), Err(NotAHost::Malformed), "{}", beyond.len());
        }
        assert_eq!("x".repeat(64).parse::<ServerName>(), Err(NotAHost::Malformed));
    }

    #[test]
    fn a_suffix_stands_for_itself_and_for_every_name_of_one_more_label() {
        for written in ["clusters.example", ".clusters.example", "*.Clusters.Example"] {
            let suffix: HostSuffix = written.parse().unwrap();
            assert_eq!(suffix.to_string(), "clusters.example");
            assert_eq!(
                suffix.names().map(|name| name.to_string()),
                ["clusters.example", "*.clusters.example"]
            );
        }
        for (text, error) in [
            ("example", NotAHost::ShortSuffix),
            ("*.example", NotAHost::ShortSuffix),
            ("192.0.2.1", NotAHost::AddressAsSuffix),
            ("*.192.0.2.1", NotAHost::Malformed),
            ("*.*.example", NotAHost::Malformed),
            ("..example", NotAHost::Malformed),
            ("", NotAHost::Malformed),
        ] {
            assert_eq!(text.parse::<HostSuffix>(), Err(error), "{text:?}");
        }
    }
}
