//! How many exchanges one caller may have at once, so that nobody takes all places.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::EXCHANGES_MAX;
use crate::identity::{Caller, Method};

/// Exchanges that one caller may have at once, over all its connections: a quarter of all, so that it takes four to
/// fill the gateway. A program with a watch for each of 2,000 kinds of objects stays below.
pub const EXCHANGES_PER_CALLER_MAX: usize = EXCHANGES_MAX / 4;

/// Who has how many. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Shares(Arc<Mutex<Ledger>>);

/// One exchange of a caller, until it is dropped.
#[must_use = "the exchange is no longer counted when this is dropped"]
pub(super) struct Share {
    shares: Shares,
    holder: Holder,
}

/// A name is a caller's only together with the way in which it was proved.
type Holder = (Method, String);

/// Who has how many exchanges; nobody has none. Pure.
#[derive(Debug, Default)]
struct Ledger(HashMap<Holder, usize>);

impl Shares {
    /// One more exchange for `caller`; `None` where it has as many as it may.
    pub(super) fn take(&self, caller: &Caller) -> Option<Share> {
        let holder = (caller.method().clone(), caller.user().to_owned());
        self.lock().enter(&holder).then(|| Share { shares: self.clone(), holder })
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shares.lock().leave(&self.holder);
    }
}

impl Ledger {
    /// Whether `holder` may begin one more, which is then counted.
    fn enter(&mut self, holder: &Holder) -> bool {
        match self.0.get_mut(holder) {
            Some(count) if *count >= EXCHANGES_PER_CALLER_MAX => false,
            Some(count) => {
                *count += 1;
                true
            }
            None => {
                self.0.insert(holder.clone(), 1);
                true
            }
        }
    }

    fn leave(&mut self, holder: &Holder) {
        if let Some(count) = self.0.get_mut(holder) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_its_share_and_not_one_more_and_others_have_theirs() {
        let shares = Shares::default();
        let (ann, ben) = (Caller::pretended("ann", &[]), Caller::pretended("ben", &["x"]));

        let mut of_ann: Vec<Share> =
            (0..EXCHANGES_PER_CALLER_MAX).filter_map(|_| shares.take(&ann)).collect();

        assert_eq!(of_ann.len(), EXCHANGES_PER_CALLER_MAX);
        assert!(shares.take(&ann).is_none(), "one beyond");
        assert!(shares.take(&ann).is_none(), "and it is not counted");
        assert!(shares.take(&ben).is_some());
        of_ann.pop();
        let again = shares.take(&ann);
        assert!(again.is_some() && shares.take(&ann).is_none());
    }

    #[test]
    fn who_has_no_exchange_is_forgotten() {
        let shares = Shares::default();
        let held: Vec<Share> = ["ann", "ben", "ann"]
            .iter()
            .filter_map(|user| shares.take(&Caller::pretended(user, &[])))
            .collect();
        assert_eq!(shares.lock().0.len(), 2);

        drop(held);

        assert!(shares.lock().0.is_empty());
    }
}
