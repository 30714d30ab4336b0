//! Assigns addresses of ranges to clusters. Each address belongs to one cluster until that cluster is deleted
//! and its name is free.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::SystemTime;

use policy::Network;
use proto::ClusterId;

use super::Directory;
use super::records::{AddressRecord, Cluster, UnixSeconds};
use super::store::{StoreError, StoreTable, Transaction};

/// Most addresses that are kept, including those that clusters had from other ranges.
pub const ADDRESSES_KEPT_MAX: usize = 20_000;

/// A network that gives clusters addresses.
#[derive(Debug, Clone)]
pub struct AddressRange {
    /// The network of the range.
    pub network: Network,
    /// The clusters that get an address. No cluster is in two ranges, and no two ranges overlap.
    pub clusters: BTreeSet<ClusterId>,
}

/// The address that a cluster has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssignedAddress {
    /// The address, which no other cluster has.
    pub address: IpAddr,
    /// True if the cluster did not have the address before.
    pub is_new: bool,
}

/// The reason why no addresses were assigned.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// A range has no address left.
    #[error(
        "the range {range} has no address for {cluster}: {kept} of its {all} are kept for clusters that it does not list, and for \
         deleted ones whose names are reserved. Delete what is gone (`tombolo cluster delete`), or take a larger range"
    )]
    Full {
        /// The range without an address.
        range: Network,
        /// The cluster that gets none.
        cluster: ClusterId,
        /// Addresses that clusters outside of the list keep.
        kept: usize,
        /// All addresses that hosts can have.
        all: u128,
    },
    /// The limit of kept addresses is reached.
    #[error(
        "{max} addresses of ranges are kept, which is the most: delete clusters that are gone (`tombolo cluster delete`)",
        max = ADDRESSES_KEPT_MAX
    )]
    TooMany,
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Directory {
    /// The address of each cluster in these ranges: the one that it already has there, or the lowest free
    /// one. A cluster keeps its address until it is deleted and its name is no longer reserved.
    ///
    /// # Errors
    /// [`AddressError`]; then nothing was changed.
    pub async fn assign_addresses(
        &self,
        ranges: Vec<AddressRange>,
        now: SystemTime,
    ) -> Result<BTreeMap<ClusterId, AssignedAddress>, AddressError> {
        let assigned =
            self.change(move |transaction| assign_addresses(transaction, &ranges, now.into())).await?;
        self.cache().given =
            assigned.iter().map(|(cluster, given)| (cluster.clone(), given.address)).collect();
        Ok(assigned)
    }

    /// Does the same as [`Directory::assign_addresses`] on a thread that can block.
    ///
    /// # Errors
    /// [`AddressError`]; then nothing was changed.
    pub fn assign_addresses_blocking(
        &self,
        ranges: &[AddressRange],
        now: SystemTime,
    ) -> Result<BTreeMap<ClusterId, AssignedAddress>, AddressError> {
        self.0.change(|transaction| assign_addresses(transaction, ranges, now.into()))
    }
}

fn assign_addresses(
    transaction: &mut Transaction<'_>,
    ranges: &[AddressRange],
    now: UnixSeconds,
) -> Result<BTreeMap<ClusterId, AssignedAddress>, AddressError> {
    let listed: BTreeSet<&ClusterId> = ranges.iter().flat_map(|range| &range.clusters).collect();
    let mut kept = kept(transaction, &listed, now)?;
    let mut assigned = BTreeMap::new();
    for AddressRange { network, clusters } in ranges {
        for (address, cluster) in &kept {
            if network.has_host(*address) && clusters.contains(cluster) {
                // The lowest one, if it has several because the range was enlarged.
                let found = AssignedAddress { address: *address, is_new: false };
                assigned.entry(cluster.clone()).or_insert(found);
            }
        }
    }
    for AddressRange { network, clusters } in ranges {
        let mut hosts = network.hosts();
        for cluster in clusters {
            if assigned.contains_key(cluster) {
                continue;
            }
            let Some(address) = hosts.find(|address| !kept.contains_key(address)) else {
                let others = kept.iter().filter(|(address, other)| {
                    network.has_host(**address)
                        && assigned.get(*other).is_none_or(|given| given.address != **address)
                });
                let (range, cluster) = (*network, cluster.clone());
                return Err(AddressError::Full {
                    range,
                    cluster,
                    kept: others.count(),
                    all: network.host_count(),
                });
            };
            if kept.len() >= ADDRESSES_KEPT_MAX {
                return Err(AddressError::TooMany);
            }
            transaction
                .put(&address.to_string(), &AddressRecord { cluster: cluster.to_string(), given: now })?;
            kept.insert(address, cluster.clone());
            assigned.insert(cluster.clone(), AssignedAddress { address, is_new: true });
        }
    }
    Ok(assigned)
}

/// The cluster of each kept address. Addresses of unknown clusters are freed.
fn kept(
    transaction: &mut Transaction<'_>,
    listed: &BTreeSet<&ClusterId>,
    now: UnixSeconds,
) -> Result<BTreeMap<IpAddr, ClusterId>, StoreError> {
    let mut kept = BTreeMap::new();
    for (key, AddressRecord { cluster, .. }) in transaction.list::<AddressRecord>("")? {
        let (Ok(address), Ok(cluster)) = (key.parse::<IpAddr>(), cluster.parse::<ClusterId>()) else {
            return Err(transaction.damaged_at(StoreTable::Addresses, &key, "no address of a cluster"));
        };
        let is_named = transaction
            .get::<Cluster>(cluster.as_str())?
            .is_some_and(|found| found.tombstone.is_none_or(|tombstone| now < tombstone.reserved_until));
        if is_named || listed.contains(&cluster) {
            kept.insert(address, cluster);
        } else {
            transaction.remove::<AddressRecord>(&key)?;
        }
    }
    Ok(kept)
}
