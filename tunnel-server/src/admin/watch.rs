//! One watch of clusters: how they stood at its beginning, then each again when it has changed.

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

/// How often a watcher hears of measurements that have changed, and of what the registry does not announce.
pub(super) const MEASURED_EVERY: Duration = Duration::from_secs(5);

/// How long further changes are gathered after the first, so that a thousand agents that come back at once are looked at
/// four times a second, not a thousand times.
const GATHERED: Duration = Duration::from_millis(250);

const _: () = assert!(GATHERED.as_millis() < MEASURED_EVERY.as_millis());

/// What a watcher gets.
pub(super) type Events = Pin<Box<dyn Stream<Item = Result<WatchClustersResponse, Status>> + Send>>;

/// A watch whose reader pulls: while it does not, nothing is gathered but what it has not yet read of one look.
pub(super) struct Watch<L> {
    /// Looks at the clusters that are watched.
    pub(super) look: L,
    /// Is told when another look is worth it.
    pub(super) changes: watch::Receiver<()>,
    /// Whether measurements alone are a change.
    pub(super) measurements: bool,
    pub(super) scope: Scope,
    /// Held among all watches until this one ends.
    pub(super) _place: OwnedSemaphorePermit,
}

/// Between two events.
struct State<L> {
    watch: Watch<L>,
    /// Each cluster as it was last said.
    said: BTreeMap<String, Cluster>,
    /// What is still to be said of the last look.
    pending: VecDeque<Event>,
    ticks: Interval,
    has_begun: bool,
    is_over: bool,
}

/// Why to look again.
enum Turn {
    Changed,
    Tick,
    Draining,
}

impl<L> Watch<L>
where
    L: Fn() -> Vec<Cluster> + Send + 'static,
{
    /// The events, until the server drains.
    pub(super) fn events(self) -> Events {
        let mut ticks = interval(MEASURED_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        let (said, pending) = (BTreeMap::new(), VecDeque::new());
        let state = State { watch: self, said, pending, ticks, has_begun: false, is_over: false };
        Box::pin(unfold(state, State::next))
    }
}

impl<L> State<L>
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
                match self.turn().await {
                    Turn::Changed => self.gather(false),
                    Turn::Tick => self.gather(self.watch.measurements),
                    Turn::Draining => {}
                }
            } else {
                self.has_begun = true;
                self.gather(true);
                self.pending.push_back(Event::InitialEnd(InitialEnd {}));
            }
        }
    }

    async fn turn(&mut self) -> Turn {
        let changes = &mut self.watch.changes;
        // All arms are cancel-safe: a change that was not waited for is still marked as unseen, a tick comes again.
        tokio::select! {
            () = self.watch.scope.draining() => return Turn::Draining,
            // The registry lives as long as this watch; were it gone, nothing would change any more.
            Ok(()) = changes.changed() => {}
            _ = self.ticks.tick() => return Turn::Tick,
        }
        // As above.
        tokio::select! {
            () = self.watch.scope.draining() => Turn::Draining,
            () = sleep(GATHERED) => {
                changes.mark_unchanged();
                Turn::Changed
            }
        }
    }

    fn gather(&mut self, measurements: bool) {
        let changed = differences(&mut self.said, (self.watch.look)(), measurements);
        self.pending.extend(changed);
    }
}

/// The clusters that differ from how they were last said, which they replace there, and those that are gone. Measurements
/// count only if they are asked for.
fn differences(said: &mut BTreeMap<String, Cluster>, now: Vec<Cluster>, measurements: bool) -> Vec<Event> {
    let there: BTreeSet<&str> = now.iter().map(|cluster| cluster.name.as_str()).collect();
    let gone: Vec<String> = said.keys().filter(|name| !there.contains(name.as_str())).cloned().collect();
    gone.iter().for_each(|name| {
        said.remove(name);
    });
    let differs = |cluster: &Cluster| match said.get(&cluster.name) {
        None => true,
        Some(before) if measurements => before != cluster,
        Some(before) => !is_alike(before, cluster),
    };
    let changed: Vec<Cluster> = now.into_iter().filter(differs).collect();
    said.extend(changed.iter().map(|cluster| (cluster.name.clone(), cluster.clone())));
    gone.into_iter().map(Event::Deleted).chain(changed.into_iter().map(Event::Cluster)).collect()
}

/// Whether nothing differs but measurements.
fn is_alike(before: &Cluster, now: &Cluster) -> bool {
    let mut now = now.clone();
    for (tunnel, before) in now.tunnels.iter_mut().zip(&before.tunnels) {
        tunnel.measurements = before.measurements;
    }
    now == *before
}

#[cfg(test)]
mod tests;
