//! The store of clusters, agents, tokens and revocations, which survives a restart.

mod addresses;
mod agents;
mod attestations;
mod bearer_token;
mod cache;
mod callers;
mod cluster_spec;
mod clusters;
mod departed_servers;
mod dial_tokens;
mod elections;
mod expired;
mod export;
mod freshness;
mod in_force;
mod leader;
mod networks;
mod ranges;
mod records;
mod revocations;
mod servers;
mod store;
mod tokens;
mod tombstones;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use daemon::{Scope, StateDir};
use policy::{Target, TargetEntry, may_advertise};
use proto::ClusterId;
use proto::server_list::ServerList;
use tokio::runtime::Handle;
use tokio::sync::watch;

pub use self::records::{
    Agent, Attestation, CallerRevocation, Callers, Cluster, DialToken, IssuedChain, Previous,
    RegisteredServer, Revocation, Revoked, Token, TokenUse, Tombstone, UnixSeconds, Workload,
};
pub use addresses::{ADDRESSES_KEPT_MAX, AddressError, AssignedAddress};
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
pub use elections::Election;
pub use export::RecordExport;
pub use freshness::{BEHIND_AFTER, ENDED_AFTER_STALE, Freshness};
pub use in_force::{CONFIRMED_WITHIN, Change, ServerConfirmation};
pub use networks::{NETWORK_CLUSTERS_MAX, NetworkName, NotANetworkName};
pub use ranges::{AddressRange, RangeError, ServerRange, ServerRanges};
pub use revocations::{AgentCredential, NotAdmitted, REVOCATIONS_MAX, RevokeError};
pub use servers::{RemoveServerError, SERVER_NUMBERS_MAX, ServerNumberError};
pub use store::{
    LEASE_MARGIN, REGISTRATION_TTL, RegistrationOutcome, ServerEntry, ServerRegistration, StoreError,
};
pub use tokens::{TOKENS_MAX, TTL_MAX, TokenEntry, TokenError, TokenGrant, TokenRefused};
pub use tombstones::ClusterError;

pub(crate) use self::records::hexadecimal;

use self::records::Seen;
use cache::{CachedCluster, DirectoryCache};
use freshness::MemoryAge;
use in_force::{Confirmations, changed_at};
use store::{Follower, RECORDS_AT_ONCE, RecordChange, RecordDamage, RecordStore, StoreTable, Transaction};

/// Most clusters that are remembered where nothing is configured, including deleted ones whose names are still reserved.
const CLUSTERS_MAX_DEFAULT: usize = 10_000;

/// The directory. Clones share one state. Functions that are not async do not block, except
/// [`Directory::open`] and [`Directory::copy`]. A change is on disk when its function returns.
#[derive(Debug, Clone)]
pub struct Directory(Arc<SharedDirectory>);

#[derive(Debug)]
struct SharedDirectory {
    store: RecordStore,
    memory: Arc<DirectoryMemory>,
    /// The age of the memory, if others change the records, too.
    age: Option<Arc<MemoryAge>>,
    /// The revisions that other servers have told.
    confirmations: Confirmations,
    /// Held while clusters that were seen are written, so that none is written twice.
    saving: tokio::sync::Mutex<()>,
    /// Most clusters that are remembered, including deleted ones whose names are still reserved.
    clusters_max: AtomicUsize,
}

/// The cache and its receivers, as of the last change of the store.
#[derive(Debug, Default)]
struct DirectoryMemory {
    cache: Mutex<DirectoryCache>,
    /// Notifies the receivers of [`Directory::changes`].
    changes: watch::Sender<()>,
    /// The servers that run, as agents are told of them.
    server_list: watch::Sender<Arc<ServerList>>,
}

/// A cluster whose record or last time is not in the store yet.
#[derive(Debug, Clone)]
struct Unsaved {
    key: String,
    record: Arc<Cluster>,
    last_seen: Option<UnixSeconds>,
}

/// The result of marking a cluster as seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "after a first meeting the directory must be saved"]
pub enum SeenOutcome {
    /// A new cluster, which must be saved.
    First,
    /// A cluster that is already known.
    Again,
    /// A cluster that cannot be remembered, because as many are known as may be.
    Full,
}

/// A cluster in a listing.
#[derive(Debug, Clone)]
pub struct ClusterEntry {
    /// The name of the cluster.
    pub cluster: ClusterId,
    /// The time at which it was last seen, if ever.
    pub last_seen: Option<SystemTime>,
    /// The description of the cluster.
    pub record: Arc<Cluster>,
    /// The address that this process has assigned to it from a range, if any.
    pub given: Option<IpAddr>,
}

impl Directory {
    /// Opens the directory in `state_dir`, which is empty if there is none yet. Blocks.
    ///
    /// # Errors
    /// It cannot be read, or is damaged; it is never emptied silently.
    pub fn open(state_dir: &StateDir) -> Result<Self, StoreError> {
        Self::of(RecordStore::open(state_dir)?, None)
    }

    /// Opens the directory that many servers share in etcd, below `prefix`. It follows the changes of all of them by a task
    /// of `scope`. Without news from etcd for `stale_limit` it is [`Freshness::Stale`].
    ///
    /// # Errors
    /// etcd cannot be used, or a record cannot be read.
    pub async fn open_shared(
        client: etcd::Client,
        prefix: String,
        stale_limit: Duration,
        scope: Scope,
    ) -> Result<Self, StoreError> {
        let runtime = Handle::current();
        let open = move || {
            let age = Arc::new(MemoryAge::new(stale_limit));
            let store = RecordStore::open_shared(client, prefix, Arc::clone(&age), runtime, scope)?;
            Self::of(store, Some(age))
        };
        // Such a task is cancelled only when its runtime ends.
        tokio::task::spawn_blocking(open).await.unwrap_or(Err(StoreError::Stopping))
    }

    /// Copies the directory in the folder `state_dir`, even if another process has it open. Changes of the
    /// copy are written nowhere. Blocks.
    ///
    /// # Errors
    /// As [`Directory::open`], and if another process is in the middle of a change.
    pub fn copy(state_dir: &Path) -> Result<Self, StoreError> {
        Self::of(RecordStore::copy(state_dir)?, None)
    }

    fn of(store: RecordStore, age: Option<Arc<MemoryAge>>) -> Result<Self, StoreError> {
        let memory = Arc::new(DirectoryMemory::default());
        store.follow(Arc::<DirectoryMemory>::clone(&memory))?;
        let (confirmations, clusters_max) =
            (Confirmations::default(), AtomicUsize::new(CLUSTERS_MAX_DEFAULT));
        let saving = tokio::sync::Mutex::default();
        Ok(Self(Arc::new(SharedDirectory { store, memory, age, confirmations, saving, clusters_max })))
    }

    /// Remembers at most `max` clusters from now on. More that are known already stay.
    pub fn set_clusters_max(&self, max: usize) {
        self.0.clusters_max.store(max, Ordering::Relaxed);
    }

    /// Most clusters that are remembered, including deleted ones whose names are still reserved.
    #[must_use]
    pub fn clusters_max(&self) -> usize {
        self.0.clusters_max.load(Ordering::Relaxed)
    }

    /// Returns true if the records are in etcd, where other servers change them, too.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.0.age.is_some()
    }

    /// The freshness of memory at this moment. A directory that nobody shares is always fresh.
    #[must_use]
    pub fn freshness(&self) -> Freshness {
        self.0.age.as_ref().map_or(Freshness::Fresh, |age| age.freshness())
    }

    /// The time since which changes of other servers may be unknown here; 0 for a directory that nobody shares.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.0.age.as_ref().map_or(Duration::ZERO, |age| age.age())
    }

    /// The reason why changes of other servers are followed no more, until a restart; `None` while they are.
    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        self.0.age.as_ref()?.fault()
    }

    /// Returns true if `cluster` was ever seen, and was not deleted since.
    #[must_use]
    pub fn was_seen(&self, cluster: &ClusterId) -> bool {
        self.last_seen(cluster).is_some()
    }

    /// The time at which `cluster` was last seen; `None` if never, or if it was deleted since.
    #[must_use]
    pub fn last_seen(&self, cluster: &ClusterId) -> Option<SystemTime> {
        let cache = self.cache();
        cache.clusters.get(cluster).filter(|member| member.record.tombstone.is_none())?.last_seen
    }

    /// All clusters that `wanted` picks, seen or not, except deleted ones, ordered by name.
    #[must_use]
    pub fn entries(&self, wanted: impl Fn(&ClusterId, &Cluster) -> bool) -> Vec<ClusterEntry> {
        let cache = self.cache();
        let wanted = cache.clusters.iter().filter(|(cluster, member)| wanted(cluster, &member.record));
        wanted.filter_map(|(cluster, _)| cache.entry(cluster)).collect()
    }

    /// A cluster, seen or not; `None` if it was deleted.
    #[must_use]
    pub fn entry(&self, cluster: &ClusterId) -> Option<ClusterEntry> {
        self.cache().entry(cluster)
    }

    /// Marks `cluster` as seen at `at`. A later time that is known stays, unless it is in the future because
    /// the clock was set back. Whether the cluster is admitted is checked by [`Directory::admits`].
    pub fn mark_seen(&self, cluster: &ClusterId, at: SystemTime) -> SeenOutcome {
        let mut cache = self.cache();
        if !cache.clusters.contains_key(cluster) && cache.clusters.len() >= self.clusters_max() {
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

    /// Writes the clusters that were seen for the first time. One call writes for all that wait for it, so that many agents
    /// that come at once cost a change for every 50 of them.
    ///
    /// # Errors
    /// The system refused; the store is then as it was.
    pub async fn save_new(&self) -> Result<(), StoreError> {
        self.save_those(|member| {
            !member.is_stored || (member.stored_last_seen.is_none() && member.last_seen.is_some())
        })
        .await
    }

    /// Writes the times at which clusters were last seen, too: at the end, and before an export.
    ///
    /// # Errors
    /// The system refused; the store is then as it was.
    pub async fn save(&self) -> Result<(), StoreError> {
        self.save_those(|member| {
            !member.is_stored || member.last_seen.map(UnixSeconds::from) != member.stored_last_seen
        })
        .await
    }

    async fn save_those(&self, is_unsaved: impl Fn(&CachedCluster) -> bool) -> Result<(), StoreError> {
        let _saving = self.0.saving.lock().await;
        for some in self.unsaved(is_unsaved).chunks(RECORDS_AT_ONCE).map(<[Unsaved]>::to_vec) {
            self.change(move |transaction| write_meetings(transaction, &some)).await?;
        }
        Ok(())
    }

    fn unsaved(&self, is_unsaved: impl Fn(&CachedCluster) -> bool) -> Vec<Unsaved> {
        let cache = self.cache();
        let changed = cache.clusters.iter().filter(|(_, member)| is_unsaved(member));
        let entry = |(cluster, member): (&ClusterId, &CachedCluster)| Unsaved {
            key: cluster.to_string(),
            record: Arc::clone(&member.record),
            last_seen: member.last_seen.map(UnixSeconds::from),
        };
        changed.map(entry).collect()
    }

    /// Makes the changes on which `act` decides, in the store and in the cache, on a thread that can block. Where others
    /// change the same records meanwhile, `act` decides again.
    async fn change<T, E>(
        &self,
        act: impl Fn(&mut Transaction<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        self.change_at(act).await.map(|(done, _)| done)
    }

    /// The same with the moment of the change, whose way to the other servers can be followed.
    async fn change_at<T, E>(
        &self,
        act: impl Fn(&mut Transaction<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<(T, Change), E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let inner = Arc::clone(&self.0);
        let update = move || inner.store.update_at(act).map(|(done, revision)| (done, changed_at(revision)));
        let changed = tokio::task::spawn_blocking(update).await;
        // Such a task is cancelled only when its runtime ends.
        changed.unwrap_or_else(|_| Err(StoreError::Stopping.into()))
    }

    /// Uses the store, on a thread that can block: to read, or for several changes one after the other.
    async fn with_store<T, E>(
        &self,
        act: impl FnOnce(&RecordStore) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let inner = Arc::clone(&self.0);
        let result = tokio::task::spawn_blocking(move || act(&inner.store)).await;
        result.unwrap_or_else(|_| Err(StoreError::Stopping.into()))
    }

    /// The description of a cluster, whether it is in the store already or not.
    #[must_use]
    pub fn record(&self, cluster: &ClusterId) -> Option<Arc<Cluster>> {
        self.cache().clusters.get(cluster).map(|member| Arc::clone(&member.record))
    }

    /// The tombstone of a cluster, if it was deleted.
    #[must_use]
    pub fn tombstone(&self, cluster: &ClusterId) -> Option<Tombstone> {
        self.record(cluster)?.tombstone
    }

    /// The labels of a cluster, by which policy can select it; empty if it has none.
    #[must_use]
    pub fn labels(&self, cluster: &ClusterId) -> BTreeMap<String, String> {
        let cache = self.cache();
        cache.clusters.get(cluster).map(|member| member.record.labels.clone()).unwrap_or_default()
    }

    /// Returns true if an administrator lets a cluster advertise `target`: exactly, or as an address of a
    /// network with any port.
    #[must_use]
    pub fn may_advertise(&self, cluster: &ClusterId, target: &Target) -> bool {
        let record = self.record(cluster).filter(|record| record.tombstone.is_none());
        let target = TargetEntry::Exactly(target.clone());
        record.is_some_and(|record| record.advertise.iter().any(|entry| may_advertise(entry, &target)))
    }

    /// A receiver that is notified when somebody was revoked or restored, or a cluster's description has
    /// changed.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.memory.changes.subscribe()
    }

    fn cache(&self) -> MutexGuard<'_, DirectoryCache> {
        self.0.memory.cache()
    }
}

fn write_meetings(transaction: &mut Transaction<'_>, some: &[Unsaved]) -> Result<(), StoreError> {
    for Unsaved { key, record, last_seen } in some {
        if transaction.get::<Cluster>(key)?.is_none() {
            transaction.put(key, &**record)?;
        }
        if let Some(at) = last_seen {
            transaction.put(key, &Seen(*at))?;
        }
    }
    Ok(())
}

impl DirectoryMemory {
    fn cache(&self) -> MutexGuard<'_, DirectoryCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Follower for DirectoryMemory {
    fn apply(&self, changes: &[RecordChange], revision: i64) -> Result<(), RecordDamage> {
        let mut cache = self.cache();
        for change in changes {
            cache.apply(change)?;
        }
        if changes.iter().any(|change| change.table == StoreTable::Servers) {
            self.server_list.send_replace(Arc::new(servers::list(revision, &cache.servers)));
        }
        drop(cache);
        if changes.iter().any(|change| change.table.affects_authorization()) {
            self.changes.send_replace(());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
