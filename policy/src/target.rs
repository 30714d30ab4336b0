//! A target that an agent dials: a host and a port.

pub(crate) mod entry;
pub(crate) mod service;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Longest DNS name (RFC 1035, section 2.3.4), in bytes.
const HOST_BYTES_MAX: usize = 253;

/// A host and a port for an agent to dial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub(crate) host: Host,
    pub(crate) port: u16,
}

/// An address, never one of IPv4 mapped into IPv6, or a DNS name in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// An IPv4 or IPv6 address.
    Address(IpAddr),
    /// A DNS name, without a final dot.
    Name(String),
}

/// The text is not a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a target, use HOST:PORT with a DNS name, an IPv4 address or [an IPv6 address], and a port of 1 to 65535"
)]
pub struct NotATarget;

impl Target {
    /// The host that the agent dials.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port to dial, 1 to 65,535.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for Target {
    type Err = NotATarget;

    fn from_str(text: &str) -> Result<Self, NotATarget> {
        let (host, port) = text.rsplit_once(':').ok_or(NotATarget)?;
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let inner = bracketed.unwrap_or(host);
        // Brackets are required around colons, and allowed nowhere else.
        if bracketed.is_some() != inner.contains(':') {
            return Err(NotATarget);
        }
        Ok(Self { host: Host::parse(inner).ok_or(NotATarget)?, port: self::port(port).ok_or(NotATarget)? })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            Host::Address(IpAddr::V4(address)) => write!(f, "{address}:{}", self.port),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

impl Host {
    /// Parses an address or a name. Refuses texts that some resolvers read as an address and others as a name: `127.1`,
    /// `0x7f.1`, `2130706433`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Address(address.to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let label = |label: &str| !label.is_empty() && label.bytes().all(fits);
        let last = name.rsplit('.').next().unwrap_or_default();
        let numeric =
            last.bytes().all(|byte| byte.is_ascii_digit()) || last.to_ascii_lowercase().starts_with("0x");
        let is_name = name.len() <= HOST_BYTES_MAX && name.split('.').all(label) && !numeric;
        is_name.then(|| Self::Name(name.to_ascii_lowercase()))
    }
}

/// A number of 1 to 65,535 without a sign.
pub(crate) fn port(text: &str) -> Option<u16> {
    // `parse` would accept a sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port > 0)
}

#[cfg(test)]
mod tests;
