//! Removal of tokens that nobody can use any more, apart from the transactions that make and use them.

use std::time::{Duration, SystemTime};

use super::Directory;
use super::records::{DialToken, Token, UnixSeconds};
use super::store::{RECORDS_AT_ONCE, RecordStore, StoreError, StoredRecord};

/// The time for which an expired token is still listed.
const KEPT_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

impl Directory {
    /// Removes enrollment tokens and dial tokens that expired a day ago, and enrollment tokens that are void. None of them
    /// becomes valid again, so it does not matter who removes it, or when.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn remove_expired_tokens(&self, now: SystemTime) -> Result<(), StoreError> {
        let (this, now) = (self.clone(), UnixSeconds::from(now));
        self.with_store(move |store| {
            remove::<Token>(store, |token| token.expires + KEPT_AFTER < now || this.is_void(token))?;
            remove::<DialToken>(store, |token| token.expires + KEPT_AFTER < now)
        })
        .await
    }
}

fn remove<R: StoredRecord>(store: &RecordStore, is_useless: impl Fn(&R) -> bool) -> Result<(), StoreError> {
    let useless = store.list::<R>("")?.into_iter().filter(|(_, record)| is_useless(record));
    let keys: Vec<String> = useless.map(|(key, _)| key).collect();
    for keys in keys.chunks(RECORDS_AT_ONCE) {
        store.update(|transaction| {
            for key in keys {
                transaction.remove::<R>(key)?;
            }
            Ok::<_, StoreError>(())
        })?;
    }
    Ok(())
}
