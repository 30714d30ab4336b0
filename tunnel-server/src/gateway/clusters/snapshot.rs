//! All clusters at one moment, which all watches share: one listing serves them all, and an unchanged cluster is one object in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use proto::ClusterId;
use tokio::time::Instant;

use super::view::ClusterView;
use crate::registry::Registry;

/// The last snapshot. Clones share it.
#[derive(Clone)]
pub(in crate::gateway) struct ClusterSnapshots {
    last: Arc<Mutex<Option<Snapshot>>>,
    /// The beat of all watches.
    pub(super) beat: Instant,
}

/// All clusters, in the order of their names.
struct Snapshot {
    /// The time at which the listing began.
    taken: Instant,
    clusters: Arc<[Arc<ClusterView>]>,
}

impl Default for ClusterSnapshots {
    fn default() -> Self {
        Self { last: Arc::default(), beat: Instant::now() }
    }
}

impl ClusterSnapshots {
    /// All clusters at a time that is not before `noticed`. They are listed only if the last snapshot is older.
    pub(super) fn not_older_than(&self, noticed: Instant, registry: &Registry) -> Arc<[Arc<ClusterView>]> {
        self.refresh(noticed, || registry.list(|_, _| true).iter().map(ClusterView::of).collect())
    }

    fn refresh(&self, noticed: Instant, list: impl FnOnce() -> Vec<ClusterView>) -> Arc<[Arc<ClusterView>]> {
        // Held during the listing, so that others wait for the same one.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.as_ref().filter(|last| last.taken >= noticed) {
            return Arc::clone(&last.clusters);
        }
        let taken = Instant::now();
        let known: BTreeMap<&ClusterId, &Arc<ClusterView>> =
            last.iter().flat_map(|last| last.clusters.iter()).map(|view| (&view.name, view)).collect();
        let shared = |view: ClusterView| match known.get(&view.name) {
            Some(known) if known.is_same(&view) => Arc::clone(known),
            Some(_) | None => Arc::new(view),
        };
        let clusters: Arc<[Arc<ClusterView>]> = list().into_iter().map(shared).collect();
        *last = Some(Snapshot { taken, clusters: Arc::clone(&clusters) });
        clusters
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::view::tests::view;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_listing_serves_every_watch_and_keeps_what_has_not_changed() {
        let (snapshots, began) = (ClusterSnapshots::default(), Instant::now());
        let first = snapshots.refresh(began, || vec![view("a", "live", true, 1), view("b", "live", true, 1)]);
        let again = snapshots.refresh(began, || unreachable!("it is new enough"));
        assert!(Arc::ptr_eq(&first, &again));

        tokio::time::advance(Duration::from_secs(1)).await;
        let later = snapshots
            .refresh(Instant::now(), || vec![view("a", "live", true, 2), view("b", "live", false, 2)]);

        assert!(Arc::ptr_eq(&first[0], &later[0]), "only the clock has changed");
        assert!(!Arc::ptr_eq(&first[1], &later[1]) && !later[1].status.connected);
    }
}
