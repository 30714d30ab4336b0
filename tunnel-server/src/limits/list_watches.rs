//! Limits the watches of the list of clusters, which no cluster's limit counts.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::exceeded::LimitExceeded;
use super::{CallerKey, Limiter, count_exceeded, enter, key, leave};
use crate::identity::Caller;

/// Most watches of the list of clusters that one caller may have.
pub(super) const LIST_WATCHES_PER_CALLER_MAX: usize = 8;

/// Most watches of the list of clusters that all callers may have together.
pub(super) const LIST_WATCHES_MAX: usize = 256;

/// The watches of each caller. No entry is zero.
#[derive(Default)]
pub(super) struct ListWatches(Mutex<HashMap<CallerKey, usize>>);

/// The current use of both limits.
pub(super) struct ListWatchUse {
    /// The watches of the caller that has most.
    pub(super) of_caller: usize,
    /// The watches of all callers.
    pub(super) all: usize,
}

/// Guard of one watch of the list of clusters, which counts until it is dropped.
#[must_use = "the watch is no longer counted when this is dropped"]
pub(crate) struct ListWatchGuard {
    limiter: Limiter,
    key: CallerKey,
}

impl ListWatches {
    fn lock(&self) -> MutexGuard<'_, HashMap<CallerKey, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn most(&self) -> ListWatchUse {
        let watches = self.lock();
        ListWatchUse {
            of_caller: watches.values().copied().max().unwrap_or_default(),
            all: watches.values().sum(),
        }
    }
}

impl Limiter {
    /// Counts one more watch of the list of clusters by `caller`.
    ///
    /// # Errors
    /// [`LimitExceeded::CallerListWatches`] or [`LimitExceeded::ListWatches`] if there are as many as may be.
    pub(crate) fn enter_list_watch(&self, caller: &Caller) -> Result<ListWatchGuard, LimitExceeded> {
        let key = key(caller);
        let mut watches = self.0.list_watches.lock();
        if watches.values().sum::<usize>() >= LIST_WATCHES_MAX {
            return Err(count_exceeded(LimitExceeded::ListWatches(LIST_WATCHES_MAX)));
        }
        if !enter(&mut watches, &key, LIST_WATCHES_PER_CALLER_MAX) {
            return Err(count_exceeded(LimitExceeded::CallerListWatches(LIST_WATCHES_PER_CALLER_MAX)));
        }
        drop(watches);
        Ok(ListWatchGuard { limiter: self.clone(), key })
    }
}

impl Drop for ListWatchGuard {
    fn drop(&mut self) {
        leave(&mut self.limiter.0.list_watches.lock(), &self.key);
    }
}
