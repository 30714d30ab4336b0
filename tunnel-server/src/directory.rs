//! Which clusters there are, what people say of them, and whose credentials are refused: what outlives a restart.

mod addresses;
mod agents;
mod attestations;
mod bearer_token;
mod cache;
mod callers;
mod cluster_spec;
mod clusters;
mod dial_tokens;
mod networks;
mod records;
mod revocations;
mod store;
mod tokens;
mod tombstones;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use daemon::StateDir;
use policy::{Target, TargetEntry, may_advertise};
use proto::ClusterId;
use tokio::sync::watch;

pub use addresses::{ADDRESSES_KEPT_MAX, AddressError, AddressRange, AssignedAddress};
pub use agents::{
    AGENTS_PER_CLUSTER_MAX, AgentEntry, GRACE_MAX, RenewError, RenewalClaim, RenewalOutcome, RenewalRefused,
};
pub use attestations::{AttestError, AttestationUpdateError};
pub use bearer_token::{BearerToken, NotAToken};
pub use callers::{CALLER_REVOCATIONS_MAX, CallerCredential, CallerRevoked, CallersError};
pub use cluster_spec::{ADDRESSES_MAX, ClusterSpecError, LABELS_MAX, NETWORKS_MAX};
pub use clusters::{ClusterSpecUpdate, NAME_RESERVED};
pub use dial_tokens::{
    DIAL_TOKEN_CLUSTERS_MAX, DIAL_TOKENS_MAX, DIAL_TTL_MAX, DialBearer, DialScope, DialTokenEntry,
    DialTokenError, DialTokenRefused,
};
pub use networks::{NETWORK_CLUSTERS_MAX, NetworkName, NotANetworkName};
pub use records::{
    Agent, Attestation, CallerRevocation, Callers, Cluster, DialToken, IssuedChain, Previous, Revocation,
    Revoked, Token, TokenUse, Tombstone, UnixSeconds, Workload,
};
pub use revocations::{AgentCredential, NotAdmitted, REVOCATIONS_MAX, RevokeError};
pub use store::StoreError;
pub use tokens::{TOKENS_MAX, TTL_MAX, TokenEntry, TokenError, TokenGrant, TokenRefused};
pub use tombstones::ClusterError;

use cache::{CachedCluster, DirectoryCache};
use records::Seen;
use store::{RecordStore, Transaction};

/// Most clusters that are remembered, deleted ones whose names are still reserved included.
pub const CLUSTERS_MAX: usize = 10_000;

/// The directory. Clones are the same one. What is not async does not block, but for [`Directory::open`]; what changes
/// something is on disk when it returns.
#[derive(Debug, Clone)]
pub struct Directory(Arc<SharedDirectory>);

#[derive(Debug)]
struct SharedDirectory {
    store: RecordStore,
    cache: Mutex<DirectoryCache>,
    /// Held from a change in the store to the same in memory, so that both see changes in one order. Taken on blocking
    /// threads alone.
    changing: Mutex<()>,
    /// Is told behind each change of what [`Directory::changes`] is about.
    changes: watch::Sender<()>,
}

/// What a meeting was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "after a first meeting the directory must be saved"]
pub enum SeenOutcome {
    /// With a new cluster: save.
    First,
    /// With a known one.
    Again,
    /// With one that cannot be remembered, because [`CLUSTERS_MAX`] are known.
    Full,
}

/// A cluster, as it is listed.
#[derive(Debug, Clone)]
pub struct ClusterEntry {
    /// Its name.
    pub cluster: ClusterId,
    /// When it was last seen, if ever.
    pub last_seen: Option<SystemTime>,
    /// What people say of it.
    pub record: Arc<Cluster>,
    /// The address that it was given from a range, if it is in one of those of this process.
    pub given: Option<IpAddr>,
}

impl Directory {
    /// The directory that is kept in `state_dir`; empty if there is none yet. Blocks.
    ///
    /// # Errors
    /// It cannot be read, or is damaged; it is never emptied silently.
    pub fn open(state_dir: &StateDir) -> Result<Self, StoreError> {
        Self::of(RecordStore::open(state_dir)?)
    }

    /// A copy of the directory in the folder `state_dir`, whoever has that open: what is changed here is written nowhere. Blocks.
    ///
    /// # Errors
    /// As [`Directory::open`], and where it is in the midst of a change.
    pub fn copy(state_dir: &Path) -> Result<Self, StoreError> {
        Self::of(RecordStore::copy(state_dir)?)
    }

    fn of(store: RecordStore) -> Result<Self, StoreError> {
        let mut cache = DirectoryCache::default();
        for record in store.load()? {
            cache.apply(&store, &record)?;
        }
        Ok(Self(Arc::new(SharedDirectory {
            store,
            cache: Mutex::new(cache),
            changing: Mutex::default(),
            changes: watch::Sender::new(()),
        })))
    }

    /// Whether `cluster` was ever was_seen, and was not deleted since.
    #[must_use]
    pub fn was_seen(&self, cluster: &ClusterId) -> bool {
        self.last_seen(cluster).is_some()
    }

    /// When `cluster` was last seen, if it was ever was_seen and was not deleted since.
    #[must_use]
    pub fn last_seen(&self, cluster: &ClusterId) -> Option<SystemTime> {
        let cache = self.cache();
        cache.clusters.get(cluster).filter(|member| member.record.tombstone.is_none())?.last_seen
    }

    /// Every cluster, was_seen or not but not deleted, that `wanted` picks, in the order of their names.
    #[must_use]
    pub fn entries(&self, wanted: impl Fn(&ClusterId, &Cluster) -> bool) -> Vec<ClusterEntry> {
        let cache = self.cache();
        let wanted = cache.clusters.iter().filter(|(cluster, member)| wanted(cluster, &member.record));
        wanted.filter_map(|(cluster, _)| cache.entry(cluster)).collect()
    }

    /// A cluster, was_seen or not but not deleted.
    #[must_use]
    pub fn entry(&self, cluster: &ClusterId) -> Option<ClusterEntry> {
        self.cache().entry(cluster)
    }

    /// Notes that `cluster` was here at `at`. What is known to be later stays, unless it is in the future: the clock was
    /// set back. Whether the cluster may be here is [`Directory::admits`]'s to say.
    pub fn mark_seen(&self, cluster: &ClusterId, at: SystemTime) -> SeenOutcome {
        let mut cache = self.cache();
        if !cache.clusters.contains_key(cluster) && cache.clusters.len() >= CLUSTERS_MAX {
            return SeenOutcome::Full;
        }
        let member = cache
            .clusters
            .entry(cluster.clone())
            .or_insert_with(|| CachedCluster::new(Arc::new(Cluster::new(at.into()))));
        let is_first = member.last_seen.is_none();
        if member.last_seen.is_none_or(|last_seen| last_seen < at || last_seen > SystemTime::now()) {
            member.last_seen = Some(at);
        }
        if is_first { SeenOutcome::First } else { SeenOutcome::Again }
    }

    /// Writes down who was was_seen, and when: after a first meeting, and at the end.
    ///
    /// # Errors
    /// The system refused; the store is then as it was.
    pub async fn save(&self) -> Result<(), StoreError> {
        let this = self.clone();
        self.change(move |transaction| this.write_meetings(transaction)).await
    }

    fn write_meetings(&self, transaction: &mut Transaction<'_>) -> Result<(), StoreError> {
        let unkept: Vec<_> = {
            let cache = self.cache();
            let moved = cache.clusters.iter().filter(|(_, member)| {
                !member.is_stored || member.last_seen.map(UnixSeconds::from) != member.stored_last_seen
            });
            let what = |(cluster, member): (&ClusterId, &CachedCluster)| {
                (cluster.to_string(), Arc::clone(&member.record), member.last_seen)
            };
            moved.map(what).collect()
        };
        for (key, record, last_seen) in unkept {
            if transaction.get::<Cluster>(&key)?.is_none() {
                transaction.put(&key, &*record)?;
            }
            if let Some(at) = last_seen {
                transaction.put(&key, &Seen(at.into()))?;
            }
        }
        Ok(())
    }

    /// Makes changes in the store, on a thread that may block, and then in memory.
    async fn change<T, E>(
        &self,
        act: impl FnOnce(&mut Transaction<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let inner = Arc::clone(&self.0);
        let changed = tokio::task::spawn_blocking(move || inner.change(act)).await;
        // Only a runtime that ends cuts such a task off.
        changed.unwrap_or_else(|_| Err(StoreError::Stopping.into()))
    }

    /// Looks into the store, on a thread that may block.
    async fn read<T, E>(
        &self,
        act: impl FnOnce(&RecordStore) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let inner = Arc::clone(&self.0);
        let looked = tokio::task::spawn_blocking(move || act(&inner.store)).await;
        looked.unwrap_or_else(|_| Err(StoreError::Stopping.into()))
    }

    /// What people say of a cluster, whether it is in the store already or not.
    #[must_use]
    pub fn record(&self, cluster: &ClusterId) -> Option<Arc<Cluster>> {
        self.cache().clusters.get(cluster).map(|member| Arc::clone(&member.record))
    }

    /// The labels of a cluster, by which policy may choose it; none, if nothing is said of it.
    #[must_use]
    pub fn labels(&self, cluster: &ClusterId) -> BTreeMap<String, String> {
        let cache = self.cache();
        cache.clusters.get(cluster).map(|member| member.record.labels.clone()).unwrap_or_default()
    }

    /// Whether people let a cluster advertise `target`: in full, or as an address of a network, whatever its port.
    #[must_use]
    pub fn may_advertise(&self, cluster: &ClusterId, target: &Target) -> bool {
        let record = self.record(cluster).filter(|record| record.tombstone.is_none());
        let target = TargetEntry::Exactly(target.clone());
        record.is_some_and(|record| record.advertise.iter().any(|said| may_advertise(said, &target)))
    }

    /// Is told whenever somebody was revoked or restored, or something else is said of a cluster.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.changes.subscribe()
    }

    fn cache(&self) -> MutexGuard<'_, DirectoryCache> {
        self.0.cache()
    }
}

impl SharedDirectory {
    fn change<T, E: From<StoreError>>(
        &self,
        act: impl FnOnce(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let (done, changes) = self.store.update(act)?;
        let mut cache = self.cache();
        for change in &changes {
            cache.apply(&self.store, change)?;
        }
        drop(cache);
        if changes.iter().any(|change| change.table.affects_authorization()) {
            self.changes.send_replace(());
        }
        Ok(done)
    }

    fn cache(&self) -> MutexGuard<'_, DirectoryCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
