//! From where somebody may come who proves nothing: networks, or the word `any`.

use std::fmt;
use std::net::IpAddr;

use daemon::config::{KeyError, bounded};
use policy::Network;

use super::NAMES_MAX;

/// What says that everybody may come.
const ANY: &str = "any";

/// A network with fewer bits is a slip, or means everybody.
const BITS_MIN: u8 = 8;

/// Networks, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceConditions(Vec<Network>);

impl SourceConditions {
    /// The first network that has this address, however it is written.
    #[must_use]
    pub fn of(&self, address: IpAddr) -> Option<Network> {
        let address = address.to_canonical();
        self.0.iter().find(|network| network.has(address)).copied()
    }

    /// A network of this from which somebody may come by `other`, too.
    pub(super) fn common(&self, other: &Self) -> Option<Network> {
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

/// What stands at `key`: without any condition whoever finds the door would come in.
pub(super) fn valid(key: &str, written: Option<Vec<String>>) -> Result<SourceConditions, KeyError> {
    let written = written.unwrap_or_default();
    if written.is_empty() {
        let allowed = "the networks of those who may come, such as [10.0.0.0/8], because nobody has to prove anything here; \
                       [any] says that everybody may";
        return Err(KeyError::new(key, "nothing", allowed));
    }
    bounded(key, written.len(), 0..=NAMES_MAX)?;
    if written.iter().any(|entry| entry == ANY) {
        let everybody = ["0.0.0.0/0", "::/0"].into_iter().filter_map(|all| all.parse().ok());
        return match written.as_slice() {
            [_] => Ok(SourceConditions(everybody.collect())),
            _ => {
                Err(KeyError::new(key, format_args!("{written:?}"), "networks, or any and nothing beside it"))
            }
        };
    }
    written.iter().map(|text| network(key, text)).collect::<Result<_, _>>().map(SourceConditions)
}

fn network(key: &str, text: &str) -> Result<Network, KeyError> {
    let refused = |allowed: String| KeyError::new(key, text, allowed);
    let network: Network = text.parse().map_err(|error| refused(format!("networks ({error})")))?;
    if network.bits() < BITS_MIN {
        return Err(refused(format!(
            "networks of {BITS_MIN} bits and more; [{ANY}] says that everybody may come"
        )));
    }
    Ok(network)
}
