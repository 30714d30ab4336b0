//! Limits how many requests wait for clusters that are away, for each cluster and in total.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::ClusterId;

/// A bounded queue of waiting requests. Clones share one queue.
#[derive(Debug, Clone)]
pub struct WaitQueue(Arc<SharedWaitQueue>);

/// The outcomes of all waits since the queue was created.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct WaitOutcomes {
    /// The cluster came back, and the request was served.
    pub served: u64,
    /// The cluster did not come back in time.
    pub gave_up: u64,
    /// The caller hung up while it waited.
    pub hung_up: u64,
    /// The queue was full, so the request did not wait.
    pub turned_away: u64,
}

#[derive(Debug)]
struct SharedWaitQueue {
    per_cluster: usize,
    total: usize,
    waiting: Mutex<WaitCounts>,
}

/// The number of waiting requests. Clusters that nobody waits for have no entry.
#[derive(Debug, Default)]
struct WaitCounts {
    by_cluster: HashMap<ClusterId, usize>,
    total: usize,
    outcomes: WaitOutcomes,
}

/// The outcome of one wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitOutcome {
    Served,
    GaveUp,
}

/// One position in the queue, until it is dropped. Without another outcome the caller has hung up.
#[derive(Debug)]
#[must_use = "the place is free again when this is dropped"]
pub(super) struct WaitSlot {
    queue: WaitQueue,
    cluster: ClusterId,
    outcome: Option<WaitOutcome>,
}

impl WaitQueue {
    /// Creates a queue with a limit for each cluster and a total limit.
    #[must_use]
    pub fn new(per_cluster: usize, total: usize) -> Self {
        Self(Arc::new(SharedWaitQueue { per_cluster, total, waiting: Mutex::default() }))
    }

    /// The number of requests that wait now, for all clusters.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().total
    }

    /// The most requests that may wait at once, for all clusters.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.total
    }

    /// The outcomes of waits until now.
    #[must_use]
    pub fn outcomes(&self) -> WaitOutcomes {
        self.lock().outcomes
    }

    /// Enters the queue for `cluster`. `None` if the cluster's limit or the total limit is reached.
    pub(super) fn enter(&self, cluster: &ClusterId) -> Option<WaitSlot> {
        let mut waiting = self.lock();
        let of_cluster = waiting.by_cluster.get(cluster).copied().unwrap_or(0);
        if of_cluster >= self.0.per_cluster || waiting.total >= self.0.total {
            waiting.outcomes.turned_away += 1;
            return None;
        }
        waiting.by_cluster.insert(cluster.clone(), of_cluster + 1);
        waiting.total += 1;
        Some(WaitSlot { queue: self.clone(), cluster: cluster.clone(), outcome: None })
    }

    fn lock(&self) -> MutexGuard<'_, WaitCounts> {
        // A panic under this lock can only come from the map, which stays consistent.
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitSlot {
    /// Leaves the queue with this outcome.
    pub(super) fn finish(mut self, outcome: WaitOutcome) {
        self.outcome = Some(outcome);
    }
}

impl Drop for WaitSlot {
    fn drop(&mut self) {
        let mut waiting = self.queue.lock();
        waiting.total = waiting.total.saturating_sub(1);
        match self.outcome {
            Some(WaitOutcome::Served) => waiting.outcomes.served += 1,
            Some(WaitOutcome::GaveUp) => waiting.outcomes.gave_up += 1,
            None => waiting.outcomes.hung_up += 1,
        }
        if let Some(of_cluster) = waiting.by_cluster.get_mut(&self.cluster) {
            *of_cluster -= 1;
            if *of_cluster == 0 {
                waiting.by_cluster.remove(&self.cluster);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_of_one_cluster_does_not_affect_others() {
        let (queue, a, b) = (WaitQueue::new(2, 10), cluster("a"), cluster("b"));

        let of_a = [queue.enter(&a), queue.enter(&a)];

        assert!(of_a.iter().all(Option::is_some));
        assert!(queue.enter(&a).is_none(), "one more");
        let of_b = queue.enter(&b);
        assert!(of_b.is_some());
        assert_eq!(queue.waiting(), 3);
        drop(of_a);
        assert!(queue.enter(&a).is_some(), "free again");
    }

    #[test]
    fn the_total_limit_covers_all_clusters() {
        let (queue, a, b) = (WaitQueue::new(2, 3), cluster("a"), cluster("b"));

        let entered = [queue.enter(&a), queue.enter(&a), queue.enter(&b)];

        assert!(entered.iter().all(Option::is_some));
        assert!(queue.enter(&b).is_none(), "one more");
        drop(entered);
        assert_eq!((queue.waiting(), queue.lock().by_cluster.len()), (0, 0), "nothing stays behind");
    }

    #[test]
    fn every_wait_is_counted_once_by_its_outcome() {
        let (queue, a) = (WaitQueue::new(3, 3), cluster("a"));
        let mut entered: Vec<_> = (0..3).filter_map(|_| queue.enter(&a)).collect();
        assert!(queue.enter(&a).is_none());

        entered.remove(0).finish(WaitOutcome::Served);
        entered.remove(0).finish(WaitOutcome::GaveUp);
        drop(entered);

        assert_eq!(queue.outcomes(), WaitOutcomes { served: 1, gave_up: 1, hung_up: 1, turned_away: 1 });
    }

    fn cluster(name: &str) -> ClusterId {
        name.parse().unwrap()
    }
}
