//! Notifies the tasks that wait for a change of a cluster.

use std::sync::Arc;

use dashmap::DashMap;
use proto::ClusterId;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The notifiers of clusters for which tasks wait. Other clusters have no entry.
#[derive(Debug, Default)]
pub(super) struct Waiters(DashMap<ClusterId, Arc<Notify>>);

/// One waiting task, which removes an unused notifier on drop.
struct Waiter<'a> {
    waiters: &'a Waiters,
    cluster: &'a ClusterId,
    notify: Option<Arc<Notify>>,
}

impl Waiters {
    /// Wakes every task that waits for `cluster`. It must be called after the change.
    pub(super) fn changed(&self, cluster: &ClusterId) {
        let notify = self.0.get(cluster).map(|notify| Arc::clone(&notify));
        if let Some(notify) = notify {
            notify.notify_waiters();
        }
    }

    /// Wakes every task that waits, whatever its cluster.
    pub(super) fn all_changed(&self) {
        for notify in &self.0 {
            notify.notify_waiters();
        }
    }

    /// Returns what `look` finds, now or after a change of `cluster`. `None` if it has found nothing by
    /// `until`. Cancel-safe.
    pub(super) async fn wait_for<T>(
        &self,
        cluster: &ClusterId,
        until: Instant,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let waiter = Waiter::begin(self, cluster);
        let notify = waiter.notify.as_deref()?;
        loop {
            // Created before `look` runs, so that a change after it is not missed.
            let notified = notify.notified();
            if let Some(found) = look() {
                return Some(found);
            }
            // Both arms are cancel-safe: `look` runs again after either.
            tokio::select! {
                () = notified => {}
                () = sleep_until(until) => return None,
            }
        }
    }

    /// The number of clusters for which tasks wait.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.len()
    }
}

impl<'a> Waiter<'a> {
    fn begin(waiters: &'a Waiters, cluster: &'a ClusterId) -> Self {
        let notify = Arc::clone(&waiters.0.entry(cluster.clone()).or_default());
        Self { waiters, cluster, notify: Some(notify) }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        drop(self.notify.take());
        // The map's lock keeps new waiters out, so a count of one means that this was the last.
        self.waiters.0.remove_if(self.cluster, |_, notify| Arc::strong_count(notify) == 1);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_at_once_or_with_the_change() {
        let (waiters, cluster, there) = (Waiters::default(), cluster("a"), Cell::new(true));
        let found = || waiters.wait_for(&cluster, soon(), || there.get().then_some(()));
        assert_eq!(found().now_or_never(), Some(Some(())));

        there.set(false);
        let mut waiting = Box::pin(found());
        assert_eq!((&mut waiting).now_or_never(), None);
        there.set(true);
        assert_eq!((&mut waiting).now_or_never(), None, "not woken: nothing polls");
        waiters.changed(&cluster);
        assert_eq!(waiting.now_or_never(), Some(Some(())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_between_look_and_wait_is_not_missed() {
        let (waiters, cluster, there) = (Waiters::default(), cluster("a"), Cell::new(false));
        let look = || {
            let found = there.replace(true);
            waiters.changed(&cluster);
            found.then_some(())
        };

        assert_eq!(waiters.wait_for(&cluster, soon(), look).now_or_never(), Some(Some(())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_at_its_deadline() {
        let (waiters, cluster, began) = (Waiters::default(), cluster("a"), Instant::now());

        let found: Option<()> = waiters.wait_for(&cluster, began + Duration::from_secs(15), || None).await;

        assert_eq!((found, began.elapsed()), (None, Duration::from_secs(15)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_wakes_only_the_waiters_of_its_cluster() {
        let (waiters, a, b, there) = (Waiters::default(), cluster("a"), cluster("b"), Cell::new(false));
        let look = || there.get().then_some(());
        let mut waiting: Vec<_> =
            [&a, &a, &b].map(|cluster| Box::pin(waiters.wait_for(cluster, soon(), look))).into();
        assert!(waiting.iter_mut().all(|one| one.now_or_never().is_none()));

        there.set(true);
        waiters.changed(&a);

        let found: Vec<_> = waiting.iter_mut().map(|one| one.now_or_never().is_some()).collect();
        assert_eq!(found, [true, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_wait_leaves_nothing_behind_and_keeps_other_waiters() {
        let (waiters, cluster, there) = (Waiters::default(), cluster("a"), Cell::new(false));
        let found = || Box::pin(waiters.wait_for(&cluster, soon(), || there.get().then_some(())));
        let (mut gives_up, mut stays) = (found(), found());
        assert!((&mut gives_up).now_or_never().is_none() && (&mut stays).now_or_never().is_none());

        drop(gives_up);
        there.set(true);
        waiters.changed(&cluster);

        assert_eq!(stays.now_or_never(), Some(Some(())));
        assert_eq!(waiters.len(), 0);
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    fn cluster(name: &str) -> ClusterId {
        name.parse().unwrap()
    }
}
