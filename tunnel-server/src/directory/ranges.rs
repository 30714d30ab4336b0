//! The ranges of addresses of all servers that share their records. No two servers have an address in common: packets to it
//! would reach one host or the other.

use std::collections::{BTreeMap, BTreeSet};

use policy::Network;
use proto::ClusterId;
use serde::{Deserialize, Serialize};

use super::Directory;
use super::records::RegisteredServer;
use super::store::{RecordStore, StoreError, StoreTable, StoredRecord, Transaction};

/// A network that gives clusters addresses.
#[derive(Debug, Clone)]
pub struct AddressRange {
    /// The network of the range.
    pub network: Network,
    /// The clusters that get an address. No cluster is in two ranges, and no two ranges overlap.
    pub clusters: BTreeSet<ClusterId>,
}

/// The ranges of a server. The record outlives the server's process, so that a restart changes nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerRanges {
    /// All ranges of the server.
    pub ranges: Vec<ServerRange>,
    /// A mark of the host cluster and the namespace in which the clusters become Services; `None` if they do not.
    #[serde(default)]
    pub published_at: Option<String>,
}

/// A range of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerRange {
    /// The key of the network in the server's configuration.
    pub key: String,
    /// The network of the addresses, as CIDR.
    pub network: String,
    /// The port at which each address listens.
    pub port: u16,
    /// The clusters that have an address of the range.
    pub clusters: Vec<String>,
}

/// The reason why a server cannot have its ranges.
#[derive(Debug, thiserror::Error)]
pub enum RangeError {
    /// Another server that runs has some of the addresses.
    #[error(transparent)]
    Overlap(Box<RangeOverlap>),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Ranges of two servers that have addresses in common.
#[derive(Debug, thiserror::Error)]
#[error(
    "the range {own_network} ({own_key} of this server, {own}) and the range {other_network} ({other_key} of the server \
     {other}) have addresses in common: give each server a range of its own, because an address leads to one host"
)]
pub struct RangeOverlap {
    own: String,
    own_key: String,
    own_network: Network,
    other: String,
    other_key: String,
    other_network: Network,
}

impl StoredRecord for ServerRanges {
    const TABLE: StoreTable = StoreTable::Ranges;
}

impl Directory {
    /// Records the ranges of a server that is registered already. The record of a server that runs no more gives way.
    /// Nothing is done if nobody shares the directory.
    ///
    /// # Errors
    /// [`RangeError`].
    pub async fn claim_ranges(&self, server_id: &str, own: ServerRanges) -> Result<(), RangeError> {
        if !self.is_shared() {
            return Ok(());
        }
        let (this, server_id) = (self.clone(), server_id.to_owned());
        self.change(move |transaction| this.claim(transaction, &server_id, &own)).await
    }

    /// The ranges of every server, also of those that do not run now, by server.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn server_ranges(&self) -> Result<BTreeMap<String, ServerRanges>, StoreError> {
        Ok(self.with_store(|store| store.list::<ServerRanges>("")).await?.into_iter().collect())
    }

    fn claim(
        &self,
        transaction: &mut Transaction<'_>,
        server_id: &str,
        own: &ServerRanges,
    ) -> Result<(), RangeError> {
        let mut is_written = false;
        for (other_id, other) in transaction.list::<ServerRanges>("")? {
            if other_id == server_id {
                is_written = other == *own;
                continue;
            }
            let Some((mine, others)) = self.overlap(server_id, own, (&other_id, &other))? else { continue };
            if transaction.get::<RegisteredServer>(&other_id)?.is_none() {
                transaction.remove::<ServerRanges>(&other_id)?;
                continue;
            }
            return Err(RangeError::Overlap(Box::new(RangeOverlap {
                own: server_id.to_owned(),
                own_key: mine.0.key.clone(),
                own_network: mine.1,
                other: other_id,
                other_key: others.0.key.clone(),
                other_network: others.1,
            })));
        }
        if own.ranges.is_empty() {
            transaction.remove::<ServerRanges>(server_id)?;
        } else if !is_written {
            // A field of a newer server describes other ranges.
            transaction.remove::<ServerRanges>(server_id)?;
            transaction.put(server_id, own)?;
        }
        Ok(())
    }

    /// The first two ranges of both servers that have an address in common.
    fn overlap<'r>(
        &self,
        own_id: &str,
        own: &'r ServerRanges,
        (other_id, other): (&str, &'r ServerRanges),
    ) -> Result<Option<(NamedRange<'r>, NamedRange<'r>)>, StoreError> {
        let own = networks(&self.0.store, own_id, own)?;
        for other in networks(&self.0.store, other_id, other)? {
            if let Some(own) = own.iter().find(|own| have_common(&own.1, &other.1)) {
                return Ok(Some((*own, other)));
            }
        }
        Ok(None)
    }
}

type NamedRange<'r> = (&'r ServerRange, Network);

/// Networks of recorded ranges that have nothing in common with `own`: those of other servers.
pub(super) fn of_others(store: &RecordStore, own: &[AddressRange]) -> Result<Vec<Network>, StoreError> {
    let mut others = Vec::new();
    for (server_id, ranges) in store.list::<ServerRanges>("")? {
        let networks = networks(store, &server_id, &ranges)?.into_iter().map(|(_, network)| network);
        others.extend(networks.filter(|network| !own.iter().any(|own| have_common(&own.network, network))));
    }
    Ok(others)
}

fn networks<'r>(
    store: &RecordStore,
    server_id: &str,
    ranges: &'r ServerRanges,
) -> Result<Vec<NamedRange<'r>>, StoreError> {
    let parse = |range: &'r ServerRange| {
        let network = range.network.parse();
        let network = network.map_err(|error| store.damaged_at(StoreTable::Ranges, server_id, error))?;
        Ok((range, network))
    };
    ranges.ranges.iter().map(parse).collect()
}

/// Two networks have an address in common only if one of them is a part of the other.
fn have_common(one: &Network, other: &Network) -> bool {
    one.includes(other) || other.includes(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_an_address_in_common_if_one_is_a_part_of_the_other() {
        for (one, other, expected) in [
            ("100.100.0.0/24", "100.100.0.0/24", true),
            ("100.100.0.0/16", "100.100.7.0/24", true),
            ("100.100.7.0/24", "100.100.0.0/16", true),
            ("100.100.0.0/24", "100.100.1.0/24", false),
            ("fd00:7::/64", "fd00:7:0:1::/64", false),
            ("fd00:7::/64", "fd00:7::/112", true),
            ("0.0.0.0/1", "fd00:7::/64", false),
        ] {
            let (one, other): (Network, Network) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(have_common(&one, &other), expected, "{one} {other}");
        }
    }
}
