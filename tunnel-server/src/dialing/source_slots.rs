//! The connection slots of an entry point: a total number, and a number for each source.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::{self, LimitExceeded, LimitUsage};

/// The slots of one entry point. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct SourceSlots(Arc<SharedSlots>);

#[derive(Debug)]
struct SharedSlots {
    max: usize,
    max_of_source: usize,
    /// The limits that are reported when all slots, or all of a source, are taken.
    limits: [fn(usize) -> LimitExceeded; 2],
    counts: Mutex<SlotCounts>,
}

#[derive(Debug, Default)]
struct SlotCounts {
    total: usize,
    /// The connections by source. No entry is zero, so there are never more sources than connections.
    by_source: HashMap<IpAddr, usize>,
}

/// One taken slot, which is free again on drop.
#[derive(Debug)]
#[must_use = "the connection is no longer counted when this is dropped"]
pub(crate) struct SourceSlot {
    slots: SourceSlots,
    source: IpAddr,
}

impl SourceSlots {
    pub(super) fn new([max, max_of_source]: [usize; 2], limits: [fn(usize) -> LimitExceeded; 2]) -> Self {
        Self(Arc::new(SharedSlots { max, max_of_source, limits, counts: Mutex::default() }))
    }

    /// Takes a slot for a connection from `source`.
    ///
    /// # Errors
    /// [`LimitExceeded`] if all slots, or all of this source, are taken.
    pub(super) fn take(&self, source: IpAddr) -> Result<SourceSlot, LimitExceeded> {
        let SharedSlots { max, max_of_source, limits: [total_limit, source_limit], .. } = *self.0;
        let mut counts = self.lock();
        if counts.total >= max {
            return Err(limits::count_exceeded(total_limit(max)));
        }
        let of_source = counts.by_source.get(&source).copied().unwrap_or_default();
        if of_source >= max_of_source {
            return Err(limits::count_exceeded(source_limit(max_of_source)));
        }
        counts.total += 1;
        counts.by_source.insert(source, of_source + 1);
        drop(counts);
        Ok(SourceSlot { slots: self.clone(), source })
    }

    /// The use of both limits: all slots, and those of the source that has most.
    pub(super) fn usage(&self) -> [LimitUsage; 2] {
        let counts = self.lock();
        let (total, most) = (counts.total, counts.by_source.values().copied().max().unwrap_or_default());
        let [total_limit, source_limit] = self.0.limits;
        let used = |limit: LimitExceeded, max, most| LimitUsage { limit: limit.as_str(), max, most };
        [used(total_limit(0), self.0.max, total), used(source_limit(0), self.0.max_of_source, most)]
    }

    fn lock(&self) -> MutexGuard<'_, SlotCounts> {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SourceSlot {
    fn drop(&mut self) {
        let mut counts = self.slots.lock();
        counts.total -= 1;
        if let Some(of_source) = counts.by_source.get_mut(&self.source) {
            *of_source -= 1;
            if *of_source == 0 {
                counts.by_source.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_limited_in_total_and_for_each_source() {
        let slots = SourceSlots::new(
            [3, 2],
            [LimitExceeded::PassthroughConnections, LimitExceeded::PassthroughSource],
        );
        let [one, other] = ["10.0.0.1", "10.0.0.2"].map(|source| source.parse().unwrap());
        let (first, second) = (slots.take(one).unwrap(), slots.take(one).unwrap());
        assert_eq!(slots.take(one).unwrap_err(), LimitExceeded::PassthroughSource(2));
        let third = slots.take(other).unwrap();
        assert_eq!(slots.take(other).unwrap_err(), LimitExceeded::PassthroughConnections(3));
        assert_eq!(slots.usage().map(|used| (used.max, used.most)), [(3, 3), (2, 2)]);

        drop(first);

        let again = slots.take(one).unwrap();
        assert!(slots.take(other).is_err());
        drop((again, second, third));
        assert!(slots.lock().by_source.is_empty() && slots.lock().total == 0, "who has none is forgotten");
    }
}
