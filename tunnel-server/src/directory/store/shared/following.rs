//! Follows the changes of all servers, and proves twice a second up to when none is missing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::error_chain;
use etcd::{Client, Compacted, KeyRange, Listing, Revision, Watch, WatchUpdate};
use futures::future::{BoxFuture, Fuse, FusedFuture as _, FutureExt as _};
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};
use tracing::{error, warn};

use super::followed::Followed;
use crate::directory::freshness::MemoryAge;
use crate::directory::store::RecordDamage;

/// The time between two reads that prove how new the memory is.
const PROVED_EVERY: Duration = Duration::from_millis(500);

/// The wait before everything is read anew, where it could not be read.
const RELOAD_PAUSE: Duration = Duration::from_secs(1);

/// A read at the quorum: every change that was made before it began has at most this revision.
struct Proof {
    began: Instant,
    /// The revision that this server had when the read began.
    known: Revision,
    read: Result<Listing, etcd::Error>,
}

/// The reason why nothing more can be followed.
#[derive(Debug, thiserror::Error)]
enum FollowFault {
    #[error(
        "a record in etcd is not in our form, and none may be skipped: start the newest tunnel-server, or repair it"
    )]
    Damage(#[source] RecordDamage),
    #[error(
        "another etcd cluster answers ({found:x} in place of {expected:x}), so revocations may be lost: if a backup was restored, \
         revoke again what was revoked since, and restart every tunnel-server"
    )]
    OtherCluster { expected: u64, found: u64 },
    #[error(
        "etcd's revision went back from {known} to {found}, so revocations may be lost: if a backup was restored, revoke again \
         what was revoked since, and restart every tunnel-server"
    )]
    WentBack { known: i64, found: i64 },
}

/// The task that follows the changes.
pub(super) struct Following {
    client: Client,
    /// The ID of the etcd cluster that was read first.
    cluster_id: u64,
    watch: Watch,
    followed: Followed,
    applied: Arc<watch::Sender<Option<Revision>>>,
    age: Arc<MemoryAge>,
    /// The beginning of a read and its revision, which the watch has not reached yet.
    unproved: Option<(Instant, Revision)>,
    /// A proof begins at a tick, if none is under way.
    ticks: Interval,
    proving: Fuse<BoxFuture<'static, Proof>>,
}

impl Following {
    /// Follows what comes after `listing`, of which `followed` has everything.
    pub(super) fn new(
        client: Client,
        (cluster_id, revision): (u64, Revision),
        followed: Followed,
        applied: Arc<watch::Sender<Option<Revision>>>,
        age: Arc<MemoryAge>,
    ) -> Self {
        let watch = client.watch(KeyRange::prefix(followed.prefix()), revision);
        let mut ticks = interval(PROVED_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let proving = Fuse::terminated();
        Self { client, cluster_id, watch, followed, applied, age, unproved: None, ticks, proving }
    }

    /// Follows as long as it is polled. A fault ends it, because nothing may be skipped.
    pub(super) async fn run(mut self) {
        loop {
            if let Err(fault) = self.step().await {
                let why = error_chain(&fault).to_string();
                error!(error = why, "this server follows no more changes of the others");
                self.age.set_fault(why);
                return;
            }
        }
    }

    async fn step(&mut self) -> Result<(), FollowFault> {
        let is_idle = self.proving.is_terminated();
        // All arms are cancel-safe: a tick comes again, and the proof is polled by reference.
        let update = tokio::select! {
            update = self.watch.next() => update,
            proof = &mut self.proving => return self.proved(proof),
            _ = self.ticks.tick(), if is_idle => {
                self.begin_proof();
                return Ok(());
            }
        };
        let reached = match update {
            Ok(WatchUpdate::Changes(changes)) => {
                self.followed.change(changes).map_err(FollowFault::Damage)?
            }
            Ok(WatchUpdate::Complete(revision)) => revision,
            Err(compacted) => match self.reload(compacted).await? {
                Some(revision) => revision,
                None => return Ok(()),
            },
        };
        self.reached(reached);
        Ok(())
    }

    fn begin_proof(&mut self) {
        let (client, began, known) = (self.client.clone(), Instant::now(), self.known());
        // The answer's revision counts, and no key.
        let range = KeyRange::key(self.followed.prefix());
        let read = async move { Proof { began, known, read: client.list(&range, None).await } };
        self.proving = read.boxed().fuse();
    }

    fn proved(&mut self, Proof { began, known, read }: Proof) -> Result<(), FollowFault> {
        // Without an answer the memory just grows older.
        let Ok(Listing { revision, cluster_id, .. }) = read else { return Ok(()) };
        if cluster_id != self.cluster_id {
            return Err(FollowFault::OtherCluster { expected: self.cluster_id, found: cluster_id });
        }
        if revision < known {
            return Err(FollowFault::WentBack { known: known.0, found: revision.0 });
        }
        // An earlier read that still waits is reached sooner.
        self.unproved.get_or_insert((began, revision));
        self.reached(self.known());
        self.watch.request_progress();
        Ok(())
    }

    /// Reads everything anew, after etcd has removed the history at revision `at`.
    async fn reload(&mut self, Compacted(at): Compacted) -> Result<Option<Revision>, FollowFault> {
        warn!(
            revision = at.0,
            "etcd has compacted changes that this server has not seen; everything is read anew"
        );
        let range = KeyRange::prefix(self.followed.prefix());
        match self.client.list(&range, None).await {
            Ok(listing) => {
                self.watch = self.client.watch(range, listing.revision);
                self.followed.replace(listing).map(Some).map_err(FollowFault::Damage)
            }
            Err(error) => {
                warn!(error = %error_chain(&error), "etcd cannot be read; the next try is in a second");
                sleep(RELOAD_PAUSE).await;
                Ok(None)
            }
        }
    }

    fn reached(&mut self, revision: Revision) {
        self.applied.send_if_modified(|applied| {
            let is_later = *applied < Some(revision);
            if is_later {
                *applied = Some(revision);
            }
            is_later
        });
        if let Some((began, needed)) = self.unproved
            && self.known() >= needed
        {
            self.age.prove(began);
            self.unproved = None;
        }
    }

    /// The revision up to which the follower has everything.
    fn known(&self) -> Revision {
        self.applied.borrow().unwrap_or_default()
    }
}
