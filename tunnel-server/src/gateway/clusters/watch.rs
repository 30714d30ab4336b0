//! A watch of the list of clusters: all of them at its beginning, then each one again when it has changed.
//!
//! Nobody pushes events. The reader pulls them, and between two listings there is at most one event for each cluster, so that a slow
//! reader costs no memory beyond one list, whose objects all watches share.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::Scope;
use futures::Stream;
use futures::stream::unfold;
use policy::action::{ListRead, RowObject};
use proto::ClusterId;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::table::table;
use super::view::ClusterView;
use crate::authz::PolicySnapshot;
use crate::gateway::cluster_sets::accepted::Accepted;

/// The time within which the changes of a cluster become one event.
pub(super) const COALESCE_FOR: Duration = Duration::from_secs(1);

/// Most bytes that are written at once. An event that has begun is completed.
const CHUNK_BYTES: usize = 64 * 1024;

/// The signals that a watch waits for.
pub(super) struct Signals {
    pub(super) registry: watch::Receiver<()>,
    pub(super) directory: watch::Receiver<()>,
    pub(super) policy: watch::Receiver<Arc<PolicySnapshot>>,
    pub(super) scope: Scope,
}

/// A watch between two pieces of its answer. `L` lists what its caller may see, as it was at a given time or later.
pub(super) struct ListWatch<L> {
    look: L,
    signals: Signals,
    accepted: Accepted,
    row_object: RowObject,
    /// The time at which the caller wants the watch to end.
    ends: Option<Instant>,
    /// A time that is the same for all watches. Their listings are whole seconds after it, so that they share one.
    beat: Instant,
    /// The time before which no further listing is made. `None` before the first one.
    quiet_until: Option<Instant>,
    /// Each cluster as it was last sent.
    sent: BTreeMap<ClusterId, Arc<ClusterView>>,
    /// The events of the last listing that are not sent yet.
    pending: VecDeque<WatchEvent>,
    has_columns: bool,
}

/// A change of one cluster.
#[derive(Debug, PartialEq, Eq)]
struct WatchEvent {
    kind: &'static str,
    cluster: Arc<ClusterView>,
}

impl Signals {
    /// Waits for a change. False if the server drains instead.
    async fn changed(&mut self) -> bool {
        // All arms are cancel-safe: a change that was not waited for is still marked as unseen.
        tokio::select! {
            () = self.scope.draining() => false,
            Ok(()) = self.registry.changed() => true,
            Ok(()) = self.directory.changed() => true,
            Ok(()) = self.policy.changed() => true,
        }
    }
}

impl<L> ListWatch<L>
where
    L: Fn(Instant) -> Vec<Arc<ClusterView>> + Send + 'static,
{
    pub(super) fn new(look: L, signals: Signals, accepted: Accepted, read: &ListRead, beat: Instant) -> Self {
        Self {
            look,
            signals,
            accepted,
            row_object: read.row_object(),
            ends: read.timeout().map(|timeout| Instant::now() + timeout),
            beat,
            quiet_until: None,
            sent: BTreeMap::new(),
            pending: VecDeque::new(),
            has_columns: false,
        }
    }

    /// The pieces of the answer, each of whole events, until the caller's time is over or the server drains.
    pub(super) fn events(self) -> impl Stream<Item = Bytes> + Send {
        unfold(self, Self::next)
    }

    async fn next(mut self) -> Option<(Bytes, Self)> {
        loop {
            if !self.pending.is_empty() {
                let piece = self.piece();
                return Some((piece, self));
            }
            // Both arms are cancel-safe: the watch ends by the first, and nobody else takes the signals of the second.
            let noticed = tokio::select! {
                () = until(self.ends) => return None,
                noticed = next_look(&mut self.signals, self.beat, self.quiet_until) => noticed?,
            };
            self.quiet_until.get_or_insert(noticed + COALESCE_FOR);
            let now = (self.look)(noticed);
            self.pending = differences(&mut self.sent, now).into();
        }
    }

    /// Takes pending events up to the size of a piece.
    fn piece(&mut self) -> Bytes {
        let mut bytes = Vec::new();
        while bytes.len() < CHUNK_BYTES
            && let Some(WatchEvent { kind, cluster }) = self.pending.pop_front()
        {
            let event = json!({ "type": kind, "object": self.object(&cluster) });
            bytes.extend_from_slice(event.to_string().as_bytes());
            bytes.push(b'\n');
        }
        bytes.into()
    }

    fn object(&mut self, cluster: &ClusterView) -> Value {
        if self.accepted.is_table() {
            let is_first = !std::mem::replace(&mut self.has_columns, true);
            table([cluster], self.accepted, self.row_object, is_first)
        } else {
            cluster.object()
        }
    }
}

/// Waits until another listing is worth it and may be made. Returns the time of the change that it is to show; `None` if the server
/// drains.
async fn next_look(signals: &mut Signals, beat: Instant, quiet_until: Option<Instant>) -> Option<Instant> {
    let Some(quiet_until) = quiet_until else { return Some(Instant::now()) };
    if !signals.changed().await {
        return None;
    }
    let noticed = Instant::now();
    // Both arms are cancel-safe: neither has a result that could be lost.
    tokio::select! {
        () = signals.scope.draining() => None,
        () = sleep_until(next_beat(beat, noticed).max(quiet_until)) => Some(noticed),
    }
}

/// The first time after `now` that is a whole number of [`COALESCE_FOR`] after `beat`.
fn next_beat(beat: Instant, now: Instant) -> Instant {
    let passed = (now - beat).as_secs_f64() / COALESCE_FOR.as_secs_f64();
    beat + COALESCE_FOR.mul_f64(passed.floor() + 1.0)
}

async fn until(ends: Option<Instant>) {
    match ends {
        Some(ends) => sleep_until(ends).await,
        None => pending().await,
    }
}

/// The events that lead from the clusters as they were sent, which they replace there, to the clusters as they are. A deleted cluster,
/// and one that its caller may no longer see, is shown as it was sent last.
fn differences(
    sent: &mut BTreeMap<ClusterId, Arc<ClusterView>>,
    now: Vec<Arc<ClusterView>>,
) -> Vec<WatchEvent> {
    let now: BTreeMap<ClusterId, Arc<ClusterView>> =
        now.into_iter().map(|cluster| (cluster.name.clone(), cluster)).collect();
    let before = std::mem::take(sent);
    let gone = before.iter().filter(|(name, _)| !now.contains_key(*name));
    let gone = gone.map(|(_, cluster)| WatchEvent { kind: "DELETED", cluster: Arc::clone(cluster) });
    let changed = now.iter().filter_map(|(name, cluster)| {
        let kind = match before.get(name) {
            None => "ADDED",
            Some(before) if Arc::ptr_eq(before, cluster) || before.is_same(cluster) => return None,
            Some(_) => "MODIFIED",
        };
        Some(WatchEvent { kind, cluster: Arc::clone(cluster) })
    });
    let events = gone.chain(changed).collect();
    *sent = now;
    events
}

#[cfg(test)]
mod tests;
