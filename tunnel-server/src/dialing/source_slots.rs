//! The connections of a way in at once: in all, and of each source.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::{self, LimitExceeded, LimitUsage};

/// Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Places(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    max: usize,
    max_of_source: usize,
    /// What is passed where there are more, in all and of a source.
    limits: [fn(usize) -> LimitExceeded; 2],
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// None of which is zero, so that there are no more sources than connections.
    of_sources: HashMap<IpAddr, usize>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
#[must_use = "the connection is no longer counted when this is dropped"]
pub(crate) struct Place {
    places: Places,
    source: IpAddr,
}

impl Places {
    pub(super) fn new([max, max_of_source]: [usize; 2], limits: [fn(usize) -> LimitExceeded; 2]) -> Self {
        Self(Arc::new(Inner { max, max_of_source, limits, taken: Mutex::default() }))
    }

    /// One for a connection from `source`.
    ///
    /// # Errors
    /// All are taken, or all of this source.
    pub(super) fn take(&self, source: IpAddr) -> Result<Place, LimitExceeded> {
        let Inner { max, max_of_source, limits: [in_all, of_one], .. } = *self.0;
        let mut taken = self.taken();
        if taken.all >= max {
            return Err(limits::count_exceeded(in_all(max)));
        }
        let of_source = taken.of_sources.get(&source).copied().unwrap_or_default();
        if of_source >= max_of_source {
            return Err(limits::count_exceeded(of_one(max_of_source)));
        }
        taken.all += 1;
        taken.of_sources.insert(source, of_source + 1);
        drop(taken);
        Ok(Place { places: self.clone(), source })
    }

    /// How many there are, and how many are taken.
    pub(super) fn usage(&self) -> [LimitUsage; 2] {
        let taken = self.taken();
        let (all, most) = (taken.all, taken.of_sources.values().copied().max().unwrap_or_default());
        let [in_all, of_one] = self.0.limits;
        let used = |limit: LimitExceeded, max, most| LimitUsage { limit: limit.as_str(), max, most };
        [used(in_all(0), self.0.max, all), used(of_one(0), self.0.max_of_source, most)]
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all -= 1;
        if let Some(of_source) = taken.of_sources.get_mut(&self.source) {
            *of_source -= 1;
            if *of_source == 0 {
                taken.of_sources.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_pass_in_all_and_of_a_source_as_may_and_not_one_more() {
        let places =
            Places::new([3, 2], [LimitExceeded::PassthroughConnections, LimitExceeded::PassthroughSource]);
        let [one, other] = ["10.0.0.1", "10.0.0.2"].map(|source| source.parse().unwrap());
        let (first, second) = (places.take(one).unwrap(), places.take(one).unwrap());
        assert_eq!(places.take(one).unwrap_err(), LimitExceeded::PassthroughSource(2));
        let third = places.take(other).unwrap();
        assert_eq!(places.take(other).unwrap_err(), LimitExceeded::PassthroughConnections(3));
        assert_eq!(places.usage().map(|used| (used.max, used.most)), [(3, 3), (2, 2)]);

        drop(first);

        let again = places.take(one).unwrap();
        assert!(places.take(other).is_err());
        drop((again, second, third));
        assert!(places.taken().of_sources.is_empty() && places.taken().all == 0, "who has none is forgotten");
    }
}
