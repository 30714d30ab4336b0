//! The keys `sources`: the networks from which clients are admitted without authentication, or the word `any`.

use std::fmt;
use std::net::IpAddr;

use daemon::config::{KeyError, bounded};
use policy::Network;

use super::value::NAMES_MAX;

/// The word that admits every address.
const ANY: &str = "any";

/// Least prefix length: a larger network is a typing mistake, or means everybody.
const BITS_MIN: u8 = 8;

/// The admitted networks, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceConditions(Vec<Network>);

impl SourceConditions {
    /// The first network that contains this address; an IPv4-mapped IPv6 address counts as IPv4.
    #[must_use]
    pub fn network_of(&self, address: IpAddr) -> Option<Network> {
        let address = address.to_canonical();
        self.0.iter().find(|network| network.has(address)).copied()
    }

    /// A network of this list that overlaps one of `other`.
    pub(super) fn overlap(&self, other: &Self) -> Option<Network> {
        let of_both = |network: &&Network| {
            other.0.iter().any(|other| other.includes(network) || network.includes(other))
        };
        self.0.iter().find(of_both).copied()
    }
}

impl fmt::Display for SourceConditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, network) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{network}")?;
        }
        Ok(())
    }
}

/// The sources at `key`, which must not be empty: otherwise anyone who finds the listener would be admitted.
pub(super) fn sources(key: &str, raw: Option<Vec<String>>) -> Result<SourceConditions, KeyError> {
    let raw = raw.unwrap_or_default();
    if raw.is_empty() {
        let allowed = "the networks whose clients are admitted, such as [10.0.0.0/8], because they do not authenticate here; \
                       [any] admits every address";
        return Err(KeyError::new(key, "nothing", allowed));
    }
    bounded(key, raw.len(), 0..=NAMES_MAX)?;
    if raw.iter().any(|entry| entry == ANY) {
        let everybody = ["0.0.0.0/0", "::/0"].into_iter().filter_map(|all| all.parse().ok());
        return match raw.as_slice() {
            [_] => Ok(SourceConditions(everybody.collect())),
            _ => Err(KeyError::new(key, format_args!("{raw:?}"), "networks, or any and nothing beside it")),
        };
    }
    raw.iter().map(|text| network(key, text)).collect::<Result<_, _>>().map(SourceConditions)
}

fn network(key: &str, text: &str) -> Result<Network, KeyError> {
    let refused = |allowed: String| KeyError::new(key, text, allowed);
    let network: Network = text.parse().map_err(|error| refused(format!("networks ({error})")))?;
    if network.bits() < BITS_MIN {
        return Err(refused(format!("networks of {BITS_MIN} bits and more; [{ANY}] admits every address")));
    }
    Ok(network)
}
