//! Entries of a list of targets: one target, or a network with a port.

use std::fmt;
use std::str::FromStr;

use super::{Host, Target};
use crate::network::Network;

/// One entry of a list of targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetEntry {
    /// This address or this DNS name.
    Exactly(Target),
    /// All addresses of a network, on this port.
    Within(Network, u16),
}

/// The text is not an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an entry, use HOST:PORT with a DNS name or an address in full, or NETWORK/BITS:PORT such as 10.0.0.0/8:5432 or \
     [2001:db8::/32]:443"
)]
pub struct NotATargetEntry;

impl TargetEntry {
    /// Returns true if the entry contains `target`. A name is compared, not resolved.
    #[must_use]
    pub fn has(&self, target: &Target) -> bool {
        match (self, target.host()) {
            (Self::Exactly(one), _) => one == target,
            (Self::Within(network, port), Host::Address(address)) => {
                network.has(*address) && *port == target.port()
            }
            (Self::Within(..), Host::Name(_)) => false,
        }
    }

    /// An entry for `target` that does not name its address explicitly, so an agent refuses special addresses.
    #[must_use]
    pub fn ordinary(target: Target) -> Self {
        match target.host() {
            Host::Address(address) => Self::Within(Network::only(*address), target.port()),
            Host::Name(_) => Self::Exactly(target),
        }
    }
}

/// Returns true if `allowed` covers all of `advertised`. An administrator writes it as a complete target, or as a network for all
/// ports.
#[must_use]
pub fn may_advertise(allowed: &str, advertised: &TargetEntry) -> bool {
    match (allowed.parse::<Network>(), advertised) {
        (Ok(network), TargetEntry::Exactly(target)) => match target.host() {
            Host::Address(address) => network.has(*address),
            Host::Name(_) => false,
        },
        (Ok(network), TargetEntry::Within(inner, _)) => network.includes(inner),
        (Err(_), TargetEntry::Exactly(target)) => allowed.parse().is_ok_and(|one: Target| one == *target),
        (Err(_), TargetEntry::Within(..)) => false,
    }
}

impl fmt::Display for TargetEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(target) => target.fmt(f),
            Self::Within(network, port) if network.is_ipv4() => write!(f, "{network}:{port}"),
            Self::Within(network, port) => write!(f, "[{network}]:{port}"),
        }
    }
}

impl FromStr for TargetEntry {
    type Err = NotATargetEntry;

    fn from_str(text: &str) -> Result<Self, NotATargetEntry> {
        let Some((network, rest)) = text.split_once('/') else {
            return text.parse().map(Self::Exactly).map_err(|_| NotATargetEntry);
        };
        let (network, end) = network.strip_prefix('[').map_or((network, ":"), |bracketed| (bracketed, "]:"));
        let (bits, port) = rest.split_once(end).ok_or(NotATargetEntry)?;
        // Brackets are required around colons and allowed nowhere else; `parse` would accept a sign.
        if network.contains(':') != (end == "]:") || !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(NotATargetEntry);
        }
        let port = port.parse().ok().filter(|port| *port > 0).ok_or(NotATargetEntry)?;
        Ok(Self::Within(format!("{network}/{bits}").parse().map_err(|_| NotATargetEntry)?, port))
    }
}
