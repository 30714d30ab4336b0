//! Assigns addresses of ranges to clusters. Each address belongs to one cluster until that cluster is deleted
//! and its name is free.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::SystemTime;

use policy::Network;
use proto::ClusterId;

use super::Directory;
use super::ranges::{self, AddressRange};
use super::records::{AddressRecord, Cluster, UnixSeconds};
use super::store::{RECORDS_AT_ONCE, RecordStore, StoreError, StoreTable};

/// Most addresses that are kept, including those that clusters had from other ranges.
pub const ADDRESSES_KEPT_MAX: usize = 20_000;

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

/// Most times that addresses are planned, where other servers assign some meanwhile.
const PLANS_MAX: usize = 16;

impl Directory {
    /// The address of each cluster in these ranges: the one that it already has there, or the lowest free
    /// one. A cluster keeps its address until it is deleted and its name is no longer reserved.
    ///
    /// # Errors
    /// [`AddressError`]; a full range is noticed before any address is assigned.
    pub async fn assign_addresses(
        &self,
        ranges: Vec<AddressRange>,
        now: SystemTime,
    ) -> Result<BTreeMap<ClusterId, AssignedAddress>, AddressError> {
        let assigned = self.with_store(move |store| assign_addresses(store, &ranges, now.into())).await?;
        self.cache().given =
            assigned.iter().map(|(cluster, given)| (cluster.clone(), given.address)).collect();
        Ok(assigned)
    }

    /// Does the same as [`Directory::assign_addresses`] on a thread that can block.
    ///
    /// # Errors
    /// As there.
    pub fn assign_addresses_blocking(
        &self,
        ranges: &[AddressRange],
        now: SystemTime,
    ) -> Result<BTreeMap<ClusterId, AssignedAddress>, AddressError> {
        assign_addresses(&self.0.store, ranges, now.into())
    }
}

/// Plans on the addresses that are assigned, and plans again where another server was faster. All servers plan alike, so
/// they end with the same addresses.
fn assign_addresses(
    store: &RecordStore,
    ranges: &[AddressRange],
    now: UnixSeconds,
) -> Result<BTreeMap<ClusterId, AssignedAddress>, AddressError> {
    let mut own = BTreeSet::new();
    for _ in 0..PLANS_MAX {
        let kept = kept(store, ranges, now)?;
        let mut plan = plan(&kept, ranges)?;
        let missing: Vec<(IpAddr, ClusterId)> = plan
            .iter()
            .filter(|(_, assigned)| assigned.is_new)
            .map(|(cluster, assigned)| (assigned.address, cluster.clone()))
            .collect();
        if missing.is_empty() {
            for assigned in plan.values_mut() {
                assigned.is_new = own.contains(&assigned.address);
            }
            return Ok(plan);
        }
        for some in missing.chunks(RECORDS_AT_ONCE) {
            if !take(store, some, now)? {
                break;
            }
            own.extend(some.iter().map(|(address, _)| *address));
        }
    }
    Err(StoreError::Contended.into())
}

/// Assigns all of these addresses, or none and returns false if one is taken.
fn take(store: &RecordStore, some: &[(IpAddr, ClusterId)], now: UnixSeconds) -> Result<bool, StoreError> {
    store.update(|transaction| {
        for (address, _) in some {
            if transaction.get::<AddressRecord>(&address.to_string())?.is_some() {
                return Ok(false);
            }
        }
        for (address, cluster) in some {
            let record = AddressRecord { cluster: cluster.to_string(), given: now };
            transaction.put(&address.to_string(), &record)?;
        }
        Ok(true)
    })
}

/// The address of each cluster in the ranges if nobody else assigns any. Those that are not kept yet are new.
fn plan(
    kept: &BTreeMap<IpAddr, ClusterId>,
    ranges: &[AddressRange],
) -> Result<BTreeMap<ClusterId, AssignedAddress>, AddressError> {
    let mut taken: BTreeSet<IpAddr> = kept.keys().copied().collect();
    let mut assigned = BTreeMap::new();
    for AddressRange { network, clusters } in ranges {
        for (address, cluster) in kept {
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
            let Some(address) = hosts.find(|address| !taken.contains(address)) else {
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
            if taken.len() >= ADDRESSES_KEPT_MAX {
                return Err(AddressError::TooMany);
            }
            taken.insert(address);
            assigned.insert(cluster.clone(), AssignedAddress { address, is_new: true });
        }
    }
    Ok(assigned)
}

/// The cluster of each kept address. Addresses of unknown clusters are freed, unless they are of another server's range: it may
/// list the cluster.
fn kept(
    store: &RecordStore,
    ranges: &[AddressRange],
    now: UnixSeconds,
) -> Result<BTreeMap<IpAddr, ClusterId>, StoreError> {
    let listed: BTreeSet<&ClusterId> = ranges.iter().flat_map(|range| &range.clusters).collect();
    let others = ranges::of_others(store, ranges)?;
    let (mut kept, mut to_free) = (BTreeMap::new(), Vec::new());
    for (key, AddressRecord { cluster, .. }) in store.list::<AddressRecord>("")? {
        let (Ok(address), Ok(cluster)) = (key.parse::<IpAddr>(), cluster.parse::<ClusterId>()) else {
            return Err(store.damaged_at(StoreTable::Addresses, &key, "no address of a cluster"));
        };
        let is_others = others.iter().any(|network| network.has(address));
        if is_others || listed.contains(&cluster) || is_named(store.get::<Cluster>(cluster.as_str())?, now) {
            kept.insert(address, cluster);
        } else {
            to_free.push((key, cluster));
        }
    }
    for some in to_free.chunks(RECORDS_AT_ONCE) {
        free(store, some, now)?;
    }
    Ok(kept)
}

/// Frees addresses whose clusters are still unknown.
fn free(store: &RecordStore, some: &[(String, ClusterId)], now: UnixSeconds) -> Result<(), StoreError> {
    store.update(|transaction| {
        for (key, cluster) in some {
            let found = transaction.get::<AddressRecord>(key)?;
            let is_theirs = found.is_some_and(|found| found.cluster == cluster.as_str());
            if is_theirs && !is_named(transaction.get::<Cluster>(cluster.as_str())?, now) {
                transaction.remove::<AddressRecord>(key)?;
            }
        }
        Ok(())
    })
}

/// Returns true if a cluster exists, or its name is reserved.
fn is_named(found: Option<Cluster>, now: UnixSeconds) -> bool {
    found.is_some_and(|found| found.tombstone.is_none_or(|tombstone| now < tombstone.reserved_until))
}
