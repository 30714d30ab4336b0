//! Removal of tokens that nobody can use any more, apart from the transactions that make and use them.

use std::time::{Duration, SystemTime};

use super::Directory;
use super::records::{DialToken, Revocation, Token, UnixSeconds};
use super::store::{RecordStore, StoreError, StoredRecord};

/// The time for which an expired token is still listed.
const KEPT_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Most records that one transaction removes, because an engine may bound what a transaction compares and writes.
const REMOVED_AT_ONCE: usize = 50;

impl Directory {
    /// Removes enrollment tokens and dial tokens that expired a day ago, and enrollment tokens that are void. None of them
    /// becomes valid again, so it does not matter who removes it, or when.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn remove_expired_tokens(&self, now: SystemTime) -> Result<(), StoreError> {
        let now = UnixSeconds::from(now);
        self.read(move |store| {
            let void = |token: &Token| {
                let revocation = store.get::<Revocation>(&token.revocation_key())?;
                Ok(token.is_void(revocation.as_ref()))
            };
            remove::<Token>(store, |token| Ok(token.expires + KEPT_AFTER < now || void(token)?))?;
            remove::<DialToken>(store, |token| Ok(token.expires + KEPT_AFTER < now))
        })
        .await
    }
}

fn remove<R: StoredRecord>(
    store: &RecordStore,
    is_useless: impl Fn(&R) -> Result<bool, StoreError>,
) -> Result<(), StoreError> {
    let mut keys = Vec::new();
    for (key, record) in store.list::<R>("")? {
        if is_useless(&record)? {
            keys.push(key);
        }
    }
    for keys in keys.chunks(REMOVED_AT_ONCE) {
        store.update(|transaction| {
            for key in keys {
                transaction.remove::<R>(key)?;
            }
            Ok::<_, StoreError>(())
        })?;
    }
    Ok(())
}
