//! Places in which requests wait for a cluster: so many for one cluster, and so many in all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::ClusterId;

/// Places that are free or taken. Clones are the same places.
#[derive(Debug, Clone)]
pub struct Places(Arc<Inner>);

/// How waits have ended since the places were made.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The cluster came back.
    pub served: u64,
    /// It did not, in time.
    pub gave_up: u64,
    /// Whoever waited had no more use for it.
    pub hung_up: u64,
    /// There was no place to wait in.
    pub turned_away: u64,
}

#[derive(Debug)]
struct Inner {
    per_cluster: usize,
    in_all: usize,
    taken: Mutex<Taken>,
}

/// Clusters of which no place is taken are not in it.
#[derive(Debug, Default)]
struct Taken {
    by_cluster: HashMap<ClusterId, usize>,
    in_all: usize,
    ended: Ended,
}

/// How a wait ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Served,
    GaveUp,
}

/// One place, until it is dropped. Who waits in it has hung up unless another outcome is told.
#[derive(Debug)]
#[must_use = "the place is free again when this is dropped"]
pub(super) struct Place {
    places: Places,
    cluster: ClusterId,
    outcome: Option<Outcome>,
}

impl Places {
    /// So many places for each cluster, and so many in all.
    #[must_use]
    pub fn new(per_cluster: usize, in_all: usize) -> Self {
        Self(Arc::new(Inner { per_cluster, in_all, taken: Mutex::default() }))
    }

    /// Places that are taken now, of all clusters.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.lock().in_all
    }

    /// Most places that are taken at once, of all clusters.
    #[must_use]
    pub fn most(&self) -> usize {
        self.0.in_all
    }

    /// How waits have ended so far.
    #[must_use]
    pub fn ended(&self) -> Ended {
        self.lock().ended
    }

    /// A place for one more that waits for `cluster`; `None` where none is left.
    pub(super) fn take(&self, cluster: &ClusterId) -> Option<Place> {
        let mut taken = self.lock();
        let of_cluster = taken.by_cluster.get(cluster).copied().unwrap_or(0);
        if of_cluster >= self.0.per_cluster || taken.in_all >= self.0.in_all {
            taken.ended.turned_away += 1;
            return None;
        }
        taken.by_cluster.insert(cluster.clone(), of_cluster + 1);
        taken.in_all += 1;
        Some(Place { places: self.clone(), cluster: cluster.clone(), outcome: None })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // A panic under this lock is one of the map's own, which leaves it as it was.
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The place is free again, because the wait has ended so.
    pub(super) fn leave(mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.in_all = taken.in_all.saturating_sub(1);
        match self.outcome {
            Some(Outcome::Served) => taken.ended.served += 1,
            Some(Outcome::GaveUp) => taken.ended.gave_up += 1,
            None => taken.ended.hung_up += 1,
        }
        if let Some(of_cluster) = taken.by_cluster.get_mut(&self.cluster) {
            *of_cluster -= 1;
            if *of_cluster == 0 {
                taken.by_cluster.remove(&self.cluster);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_wait_for_a_cluster_as_may_and_not_one_more_and_others_have_their_own() {
        let (places, a, b) = (Places::new(2, 10), cluster("a"), cluster("b"));

        let of_a = [places.take(&a), places.take(&a)];

        assert!(of_a.iter().all(Option::is_some));
        assert!(places.take(&a).is_none(), "one more");
        let of_b = places.take(&b);
        assert!(of_b.is_some());
        assert_eq!(places.taken(), 3);
        drop(of_a);
        assert!(places.take(&a).is_some(), "free again");
    }

    #[test]
    fn as_many_wait_in_all_as_may_and_not_one_more() {
        let (places, a, b) = (Places::new(2, 3), cluster("a"), cluster("b"));

        let taken = [places.take(&a), places.take(&a), places.take(&b)];

        assert!(taken.iter().all(Option::is_some));
        assert!(places.take(&b).is_none(), "one more");
        drop(taken);
        assert_eq!((places.taken(), places.lock().by_cluster.len()), (0, 0), "nothing stays behind");
    }

    #[test]
    fn every_wait_is_counted_once_by_how_it_ended() {
        let (places, a) = (Places::new(3, 3), cluster("a"));
        let mut taken: Vec<_> = (0..3).filter_map(|_| places.take(&a)).collect();
        assert!(places.take(&a).is_none());

        taken.remove(0).leave(Outcome::Served);
        taken.remove(0).leave(Outcome::GaveUp);
        drop(taken);

        assert_eq!(places.ended(), Ended { served: 1, gave_up: 1, hung_up: 1, turned_away: 1 });
    }

    fn cluster(name: &str) -> ClusterId {
        name.parse().unwrap()
    }
}
