//! The part of the store that requests and handshakes need at once, in memory: clusters, revocations and dial
//! tokens.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use proto::ClusterId;

use super::ClusterEntry;
use super::callers::RevokedCallers;
use super::departed_servers::DepartedServers;
use super::leader::Leader;
use super::networks::NetworkIndex;
use super::records::{
    Callers, Cluster, DialToken, NumberOwner, RegisteredServer, Revocation, Revoked, Seen, UnixSeconds,
};
use super::store::{RecordChange, RecordDamage, StoreTable, parse};

/// The cached records, as of the last change.
#[derive(Debug, Default)]
pub(super) struct DirectoryCache {
    pub(super) clusters: BTreeMap<ClusterId, CachedCluster>,
    pub(super) networks: NetworkIndex,
    pub(super) revocations: BTreeMap<Revoked, Revocation>,
    pub(super) callers: RevokedCallers,
    /// The dial tokens by their IDs.
    pub(super) dial_tokens: HashMap<String, Arc<DialToken>>,
    /// The servers that run, by ID.
    pub(super) servers: BTreeMap<String, Arc<RegisteredServer>>,
    /// The servers whose entries went away without a word, which may still run without news from etcd.
    pub(super) departed: DepartedServers,
    /// The servers' numbers in connection IDs, with the ID of each one's owner.
    pub(super) numbers: BTreeMap<u16, String>,
    /// The leader of each election among the servers.
    pub(super) leaders: BTreeMap<String, Leader>,
    /// The addresses of ranges that this process has assigned.
    pub(super) given: BTreeMap<ClusterId, IpAddr>,
}

/// A cluster in the cache.
#[derive(Debug)]
pub(super) struct CachedCluster {
    pub(super) record: Arc<Cluster>,
    /// True if the record is in the store.
    pub(super) is_stored: bool,
    pub(super) last_seen: Option<SystemTime>,
    /// The time in the store, which can be older than `last_seen`.
    pub(super) stored_last_seen: Option<UnixSeconds>,
}

impl DirectoryCache {
    /// Applies a change of the store.
    pub(super) fn apply(&mut self, change: &RecordChange) -> Result<(), RecordDamage> {
        let RecordChange { table, key, record } = change;
        let damaged = |reason: &dyn ToString| RecordDamage::new(*table, key, reason.to_string());
        let cluster = || key.parse::<ClusterId>().map_err(|error| damaged(&error));
        match (table, record) {
            (StoreTable::Clusters, Some(bytes)) => {
                let record = Arc::new(parse::<Cluster>(key, bytes)?.in_force());
                let cluster = cluster()?;
                let before = self.clusters.get(&cluster).map(|member| &*member.record);
                self.networks.apply(&cluster, before, Some(&record));
                let member =
                    self.clusters.entry(cluster).or_insert_with(|| CachedCluster::new(Arc::clone(&record)));
                (member.record, member.is_stored) = (record, true);
            }
            (StoreTable::Clusters, None) => {
                let cluster = cluster()?;
                let before = self.clusters.remove(&cluster);
                self.networks.apply(&cluster, before.as_ref().map(|member| &*member.record), None);
            }
            (StoreTable::Seen, record) => {
                let seen = record.as_ref().map(|bytes| parse::<Seen>(key, bytes)).transpose()?;
                let seen = seen.map(|Seen(at)| Ok((at, at.time().ok_or_else(|| damaged(&"no time"))?)));
                self.apply_seen(&cluster()?, seen.transpose()?);
            }
            (StoreTable::Callers, record) => {
                let callers = Callers::from_key(key);
                let callers = callers.ok_or_else(|| damaged(&"of no known kind"))?;
                let revocation = record.as_ref().map(|bytes| parse(key, bytes)).transpose()?;
                self.callers.apply(callers, revocation);
            }
            // These are read from the store when they are needed.
            (
                StoreTable::Tokens
                | StoreTable::Agents
                | StoreTable::Attestations
                | StoreTable::Addresses
                | StoreTable::Ranges,
                _,
            ) => {}
            (StoreTable::DialTokens, Some(bytes)) => {
                let token = Arc::new(parse::<DialToken>(key, bytes)?);
                self.dial_tokens.insert(key.clone(), token);
            }
            (StoreTable::DialTokens, None) => {
                self.dial_tokens.remove(key);
            }
            (StoreTable::Servers, record) => self.apply_server(key, record.as_deref())?,
            (StoreTable::Leaders, record) => self.apply_leader(key, record.as_deref())?,
            (StoreTable::Numbers, record) => {
                let number = key.parse::<u16>().map_err(|error| damaged(&error))?;
                match record {
                    Some(bytes) => self.numbers.insert(number, parse::<NumberOwner>(key, bytes)?.server_id),
                    None => self.numbers.remove(&number),
                };
            }
            (StoreTable::Revocations, record) => {
                let revoked = Revoked::from_key(key);
                let revoked = revoked.ok_or_else(|| damaged(&"of no known kind"))?;
                match record {
                    Some(bytes) => self.revocations.insert(revoked, parse(key, bytes)?),
                    None => self.revocations.remove(&revoked),
                };
            }
        }
        Ok(())
    }

    /// Applies the entry of a server that runs, or its removal.
    fn apply_server(&mut self, key: &str, record: Option<&[u8]>) -> Result<(), RecordDamage> {
        match record {
            Some(bytes) => {
                self.departed.remove(key);
                self.servers.insert(key.to_owned(), Arc::new(parse::<RegisteredServer>(key, bytes)?));
            }
            None => {
                if let Some(server) = self.servers.remove(key) {
                    self.departed.insert(key.to_owned(), server, SystemTime::now());
                }
            }
        }
        Ok(())
    }

    /// Applies the record of an election's leader, or its removal.
    fn apply_leader(&mut self, key: &str, record: Option<&[u8]>) -> Result<(), RecordDamage> {
        match record {
            Some(bytes) => self.leaders.insert(key.to_owned(), parse(key, bytes)?),
            None => self.leaders.remove(key),
        };
        Ok(())
    }

    /// Applies the stored time at which a cluster was last seen, or its removal.
    fn apply_seen(&mut self, cluster: &ClusterId, seen: Option<(UnixSeconds, SystemTime)>) {
        let Some(member) = self.clusters.get_mut(cluster) else { return };
        // Another server may have seen it later.
        let later = |(_, time)| member.last_seen.max(Some(time));
        (member.last_seen, member.stored_last_seen) = (seen.and_then(later), seen.map(|(at, _)| at));
    }

    /// A cluster as it is listed; `None` if it was deleted.
    pub(super) fn entry(&self, cluster: &ClusterId) -> Option<ClusterEntry> {
        let (cluster, member) = self.clusters.get_key_value(cluster)?;
        let entry = || ClusterEntry {
            cluster: cluster.clone(),
            last_seen: member.last_seen,
            record: Arc::clone(&member.record),
            given: self.given.get(cluster).copied(),
        };
        member.record.tombstone.is_none().then(entry)
    }
}

impl CachedCluster {
    pub(super) fn new(record: Arc<Cluster>) -> Self {
        Self { record, is_stored: false, last_seen: None, stored_last_seen: None }
    }
}
