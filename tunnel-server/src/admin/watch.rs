//! One watch of clusters: the state at its beginning, then each cluster again when it has changed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::time::Duration;

use daemon::Scope;
use futures::Stream;
use futures::stream::unfold;
use proto::admin::watch_clusters_response::Event;
use proto::admin::{Cluster, InitialEnd, WatchClustersResponse};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};
use tonic::Status;

/// The interval at which a watcher gets changed measurements, and changes that the registry does not
/// announce.
pub(super) const MEASUREMENT_INTERVAL: Duration = Duration::from_secs(5);

/// The time for which further changes are collected after the first. A thousand agents that return at once
/// are then listed four times a second, and not a thousand times.
const COALESCE_FOR: Duration = Duration::from_millis(250);

const _: () = assert!(COALESCE_FOR.as_millis() < MEASUREMENT_INTERVAL.as_millis());

/// The stream of events that a watcher reads.
pub(super) type Events = Pin<Box<dyn Stream<Item = Result<WatchClustersResponse, Status>> + Send>>;

/// A watch whose reader pulls: while it does not, nothing is gathered but what it has not yet read of one list.
pub(super) struct ClusterWatch<L> {
    /// Looks at the clusters that are watched.
    pub(super) list: L,
    /// Is events_for when another list is worth it.
    pub(super) changes: watch::Receiver<()>,
    /// True if measurements alone are a change.
    pub(super) measurements: bool,
    pub(super) scope: Scope,
    /// Held among all watches until this one ends.
    pub(super) _permit: OwnedSemaphorePermit,
}

/// The state of a watch between two events.
struct WatchProgress<L> {
    watch: ClusterWatch<L>,
    /// Each cluster as it was last sent.
    sent: BTreeMap<String, Cluster>,
    /// The events of the last listing that are not sent yet.
    pending: VecDeque<Event>,
    ticks: Interval,
    has_begun: bool,
    is_over: bool,
}

/// The reason for the next listing.
enum Wake {
    Changed,
    Tick,
    Draining,
}

impl<L> ClusterWatch<L>
where
    L: Fn() -> Vec<Cluster> + Send + 'static,
{
    /// The events, until the server drains.
    pub(super) fn events(self) -> Events {
        let mut ticks = interval(MEASUREMENT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        let (sent, pending) = (BTreeMap::new(), VecDeque::new());
        let state = WatchProgress { watch: self, sent, pending, ticks, has_begun: false, is_over: false };
        Box::pin(unfold(state, WatchProgress::next))
    }
}

impl<L> WatchProgress<L>
where
    L: Fn() -> Vec<Cluster> + Send + 'static,
{
    async fn next(mut self) -> Option<(Result<WatchClustersResponse, Status>, Self)> {
        if self.is_over {
            return None;
        }
        loop {
            if self.watch.scope.is_draining() {
                self.is_over = true;
                return Some((
                    Err(Status::unavailable("the server is stopping; watch again, or another")),
                    self,
                ));
            }
            if let Some(event) = self.pending.pop_front() {
                return Some((Ok(WatchClustersResponse { event: Some(event) }), self));
            }
            if self.has_begun {
                match self.next_wake().await {
                    Wake::Changed => self.collect(false),
                    Wake::Tick => self.collect(self.watch.measurements),
                    Wake::Draining => {}
                }
            } else {
                self.has_begun = true;
                self.collect(true);
                self.pending.push_back(Event::InitialEnd(InitialEnd {}));
            }
        }
    }

    async fn next_wake(&mut self) -> Wake {
        let changes = &mut self.watch.changes;
        // All arms are cancel-safe: a change that was not waited for is still marked as unseen, a tick comes again.
        tokio::select! {
            () = self.watch.scope.draining() => return Wake::Draining,
            // The registry lives as long as this watch; were it gone, nothing would change any more.
            Ok(()) = changes.changed() => {}
            _ = self.ticks.tick() => return Wake::Tick,
        }
        // Both arms are cancel-safe, as above.
        tokio::select! {
            () = self.watch.scope.draining() => Wake::Draining,
            () = sleep(COALESCE_FOR) => {
                changes.mark_unchanged();
                Wake::Changed
            }
        }
    }

    fn collect(&mut self, measurements: bool) {
        let changed = differences(&mut self.sent, (self.watch.list)(), measurements);
        self.pending.extend(changed);
    }
}

/// The clusters that differ from how they were last sent, which they replace there, and those that are gone. Measurements
/// count only if they are asked for.
fn differences(sent: &mut BTreeMap<String, Cluster>, now: Vec<Cluster>, measurements: bool) -> Vec<Event> {
    let there: BTreeSet<&str> = now.iter().map(|cluster| cluster.name.as_str()).collect();
    let gone: Vec<String> = sent.keys().filter(|name| !there.contains(name.as_str())).cloned().collect();
    gone.iter().for_each(|name| {
        sent.remove(name);
    });
    let differs = |cluster: &Cluster| match sent.get(&cluster.name) {
        None => true,
        Some(before) if measurements => before != cluster,
        Some(before) => !differs_only_in_measurements(before, cluster),
    };
    let changed: Vec<Cluster> = now.into_iter().filter(differs).collect();
    sent.extend(changed.iter().map(|cluster| (cluster.name.clone(), cluster.clone())));
    gone.into_iter()
        .map(Event::Deleted)
        .chain(changed.into_iter().map(Box::new).map(Event::Cluster))
        .collect()
}

/// Returns true if nothing differs but measurements.
fn differs_only_in_measurements(before: &Cluster, now: &Cluster) -> bool {
    let mut now = now.clone();
    for (tunnel, before) in now.tunnels.iter_mut().zip(&before.tunnels) {
        tunnel.measurements = before.measurements;
    }
    now == *before
}

#[cfg(test)]
mod tests;
