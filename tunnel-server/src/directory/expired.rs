//! Removal of records that nobody can use any more, apart from the transactions that make and use them.

use std::time::{Duration, SystemTime};

use super::Directory;
use super::records::{Cluster, DialToken, Seen, Token, UnixSeconds};
use super::store::{RECORDS_AT_ONCE, RecordStore, StoreError, StoredRecord};

/// The time for which an expired record is still listed.
const KEPT_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Most records that one transaction removes. Each is one comparison and one write, and etcd takes 128 of each.
pub(super) const SWEPT_AT_ONCE: usize = 100;

impl Directory {
    /// Removes enrollment tokens and dial tokens that expired a day ago, and enrollment tokens that are void. None of them
    /// becomes valid again, so it does not matter who removes it, or when.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn remove_expired_tokens(&self, now: SystemTime) -> Result<(), StoreError> {
        self.sweep_tokens(now, || true).await
    }

    /// Removes everything that expired a day ago: tokens, and deleted clusters whose names are free again. It stops when
    /// `may_go_on` says no.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn remove_expired(
        &self,
        now: SystemTime,
        may_go_on: impl Fn() -> bool + Clone + Send + 'static,
    ) -> Result<(), StoreError> {
        self.sweep_tokens(now, may_go_on.clone()).await?;
        self.sweep_deleted_clusters(now, may_go_on).await
    }

    async fn sweep_tokens(
        &self,
        now: SystemTime,
        may_go_on: impl Fn() -> bool + Send + 'static,
    ) -> Result<(), StoreError> {
        let (this, now) = (self.clone(), UnixSeconds::from(now));
        self.with_store(move |store| {
            let is_useless = |token: &Token| token.expires + KEPT_AFTER < now || this.is_void(token);
            remove::<Token>(store, is_useless, &may_go_on)?;
            remove::<DialToken>(store, |token| token.expires + KEPT_AFTER < now, &may_go_on)
        })
        .await
    }

    /// The records of deleted clusters. The revocation of their agents' certificates stays, because these can last longer.
    async fn sweep_deleted_clusters(
        &self,
        now: SystemTime,
        may_go_on: impl Fn() -> bool + Send + 'static,
    ) -> Result<(), StoreError> {
        let now = UnixSeconds::from(now);
        let is_free = move |cluster: &Cluster| {
            cluster.tombstone.is_some_and(|tombstone| tombstone.reserved_until + KEPT_AFTER < now)
        };
        let free = {
            let cache = self.cache();
            let free = cache.clusters.iter().filter(|(_, member)| is_free(&member.record));
            free.map(|(cluster, _)| cluster.to_string()).collect::<Vec<_>>()
        };
        self.with_store(move |store| {
            // Each is two records.
            for some in free.chunks(RECORDS_AT_ONCE).take_while(|_| may_go_on()) {
                store.update(|transaction| {
                    for cluster in some {
                        // It may be another cluster of the same name by now.
                        if transaction.get::<Cluster>(cluster)?.as_ref().is_some_and(is_free) {
                            transaction.remove::<Cluster>(cluster)?;
                            transaction.remove::<Seen>(cluster)?;
                        }
                    }
                    Ok::<_, StoreError>(())
                })?;
            }
            Ok(())
        })
        .await
    }
}

fn remove<R: StoredRecord>(
    store: &RecordStore,
    is_useless: impl Fn(&R) -> bool,
    may_go_on: impl Fn() -> bool,
) -> Result<(), StoreError> {
    let useless = store.list::<R>("")?.into_iter().filter(|(_, record)| is_useless(record));
    let keys: Vec<String> = useless.map(|(key, _)| key).collect();
    for keys in keys.chunks(SWEPT_AT_ONCE).take_while(|_| may_go_on()) {
        store.update(|transaction| {
            for key in keys {
                transaction.remove::<R>(key)?;
            }
            Ok::<_, StoreError>(())
        })?;
    }
    Ok(())
}
