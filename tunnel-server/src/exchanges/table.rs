//! The table of running exchanges, and the checks that end those that are no longer permitted.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use policy::action::Verb;
use policy::{ClusterFacts, Target};
use proto::ClusterId;
use proto::spiffe::AgentId;
use tokio::task::yield_now;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::termination::TerminationReason;
use crate::authz::{AccessReview, Allowable, Delegation, Permit, Policy, PolicySnapshot};
use crate::directory::{CallerCredential, Directory, Freshness};
use crate::identity::{Authenticator, Caller, Credential, Method};
use crate::metrics;

/// The table is split into this many parts, each with its own lock, so that exchanges on different homes do
/// not block each other.
pub(super) const SHARDS: usize = 16;

/// Interval between two checks for time limits and expired credentials.
pub(super) const CHECK_EVERY: Duration = Duration::from_secs(1);

/// All running exchanges. Clones share one table. Its size is bounded by the listeners' limits of exchanges.
#[derive(Clone)]
pub struct ExchangeTable(pub(super) Arc<ExchangeTableShared>);

pub(super) struct ExchangeTableShared {
    directory: Directory,
    policy: Policy,
    pub(super) delegation: Delegation,
    pub(super) authenticator: Authenticator,
    /// Longest duration of an exchange.
    age_max: Duration,
    shards: [Mutex<HashMap<u64, Arc<ExchangeEntry>>>; SHARDS],
    next_number: AtomicU64,
}

/// One exchange of the table.
pub(super) struct ExchangeEntry {
    permit: Box<dyn AnyPermit>,
    began: Instant,
    /// The agent whose tunnel carries the exchange, once a stream is open.
    agent: Mutex<Option<AgentId>>,
    /// Set once, by whichever check ends the exchange first.
    reason: OnceLock<TerminationReason>,
    terminated: CancellationToken,
}

/// A permit of any kind: for a request, or for a connection to a target.
trait AnyPermit: Send + Sync {
    fn caller(&self) -> &Caller;
    /// The cluster of the exchange. `None` for a watch of the list of clusters.
    fn cluster(&self) -> Option<&ClusterId>;
    fn verb(&self) -> &'static str;
    fn generation(&self) -> u64;
    /// The SubjectAccessReview that the permit depends on, if `policy.delegation` asked for one.
    fn question(&self) -> Option<&AccessReview>;
    fn target(&self) -> Option<&Target>;
    /// Returns true if `snapshot` of the policy would give the same permit.
    fn is_permitted_by(&self, snapshot: &PolicySnapshot, facts: &ClusterFacts) -> bool;
}

/// The permit of a watch of the list of clusters: everybody who is authenticated may see the clusters that policy lets them reach.
struct ListPermit {
    caller: Caller,
    generation: u64,
}

/// An exchange that is in the table. Clones are the same exchange; it leaves the table when the last one is
/// dropped.
#[derive(Clone)]
pub struct RunningExchange(Arc<EntryGuard>);

/// Removes the exchange from the table when it is dropped.
struct EntryGuard {
    table: ExchangeTable,
    number: u64,
    entry: Arc<ExchangeEntry>,
}

/// The reason for a check of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trigger {
    /// The directory, the policy or the tokens have changed: every exchange is checked in full.
    Change,
    /// Time has passed: only time limits are checked.
    Time,
}

impl ExchangeTable {
    /// Makes an empty table. Its exchanges need the permission of `policy` and `delegation`, callers that
    /// `authenticator` accepts, and clusters of `directory`. None runs for longer than `age_max`.
    #[must_use]
    pub fn new(
        directory: Directory,
        policy: Policy,
        delegation: Delegation,
        authenticator: Authenticator,
        age_max: Duration,
    ) -> Self {
        let (shards, next_number) = (Default::default(), AtomicU64::new(0));
        Self(Arc::new(ExchangeTableShared {
            directory,
            policy,
            delegation,
            authenticator,
            age_max,
            shards,
            next_number,
        }))
    }

    /// Checks that the caller's credential was not revoked.
    ///
    /// # Errors
    /// [`TerminationReason::Revoked`].
    pub fn check_revoked(&self, caller: &Caller) -> Result<(), TerminationReason> {
        if self.0.is_revoked(caller) { Err(TerminationReason::Revoked) } else { Ok(()) }
    }

    /// Adds an exchange. This call sees every change since its permit was given; [`ExchangeTable::enforce`]
    /// sees later ones.
    ///
    /// # Errors
    /// The reason why the exchange is no longer permitted. Where memory is stale, nothing new is.
    pub fn enter<W: Allowable>(&self, permit: &Permit<W>) -> Result<RunningExchange, TerminationReason> {
        self.enter_permit(Box::new(permit.clone()))
    }

    /// Adds a watch of the list of clusters, which began under the policy of this generation. Which clusters its caller sees is decided
    /// for each listing; here it is ended with the credential of its caller.
    ///
    /// # Errors
    /// As [`Self::enter`].
    pub(crate) fn enter_list_watch(
        &self,
        caller: &Caller,
        generation: u64,
    ) -> Result<RunningExchange, TerminationReason> {
        self.enter_permit(Box::new(ListPermit { caller: caller.clone(), generation }))
    }

    fn enter_permit(&self, permit: Box<dyn AnyPermit>) -> Result<RunningExchange, TerminationReason> {
        if self.0.directory.freshness() >= Freshness::Stale {
            return Err(TerminationReason::Stale);
        }
        let number = self.0.next_number.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(ExchangeEntry {
            permit,
            began: Instant::now(),
            agent: Mutex::default(),
            reason: OnceLock::new(),
            terminated: CancellationToken::new(),
        });
        self.0.shard(number).insert(number, Arc::clone(&entry));
        let exchange = RunningExchange(Arc::new(EntryGuard { table: self.clone(), number, entry }));
        self.0.termination_of(&exchange.0.entry, SystemTime::now()).map_or(Ok(exchange), Err)
    }

    /// Ends exchanges that are no longer permitted. Runs as long as the server does.
    pub async fn enforce(self) {
        let mut editions = self.0.policy.subscribe();
        let mut changes = self.0.directory.changes();
        let mut tokens = self.0.authenticator.changes();
        let mut time = interval(CHECK_EVERY);
        time.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Changes from before the subscriptions above.
        self.check_all(Trigger::Change).await;
        loop {
            // All arms are cancel-safe: a change that was not waited for is still marked as unseen, a tick
            // comes again.
            let trigger = tokio::select! {
                Ok(()) = editions.changed() => Trigger::Change,
                Ok(()) = changes.changed() => Trigger::Change,
                () = Authenticator::changed(&mut tokens) => Trigger::Change,
                _ = time.tick() => Trigger::Time,
            };
            self.check_all(trigger).await;
        }
    }

    /// Checks all exchanges once and ends those that are no longer permitted.
    async fn check_all(&self, trigger: Trigger) {
        let now = SystemTime::now();
        let mut count = 0;
        for shard in 0..SHARDS {
            // The policy decides without the shard's lock.
            let due: Vec<Arc<ExchangeEntry>> = {
                let entries = self.0.shard(shard as u64);
                let is_due = |entry: &&Arc<ExchangeEntry>| match trigger {
                    Trigger::Change => true,
                    Trigger::Time => self.0.time_limit_reached(entry, now).is_some(),
                };
                entries.values().filter(is_due).cloned().collect()
            };
            for entry in due {
                if let Some(why) = self.0.termination_of(&entry, now)
                    && entry.end(why)
                {
                    count += 1;
                }
            }
            yield_now().await;
        }
        if count > 0 {
            info!(count, cause = ?trigger, "ended exchanges that are no longer permitted");
        }
    }
}

impl ExchangeTableShared {
    /// The reason why an exchange is no longer permitted; `None` if it is.
    fn termination_of(&self, entry: &ExchangeEntry, now: SystemTime) -> Option<TerminationReason> {
        let caller = entry.permit.caller();
        if self.is_revoked(caller) || !self.authenticator.is_still_valid(caller) {
            return Some(TerminationReason::Revoked);
        }
        if let Some(why) = self.time_limit_reached(entry, now) {
            return Some(why);
        }
        let cluster = entry.permit.cluster()?;
        let facts = ClusterFacts { labels: self.directory.labels(cluster) };
        let may_advertise = |target| self.directory.may_advertise(cluster, target);
        let is_permitted = entry.permit.is_permitted_by(&self.policy.snapshot(), &facts)
            && entry.permit.target().is_none_or(may_advertise);
        (!is_permitted).then_some(TerminationReason::PolicyChanged)
    }

    fn is_revoked(&self, caller: &Caller) -> bool {
        let Credential { id, issued, expires: _ } = caller.credential();
        let serial = (*caller.method() == Method::ClientCertificate).then_some(&**id);
        let shown = CallerCredential { user: caller.user(), serial, issued: *issued };
        let is_dial_token_deleted =
            || *caller.method() == Method::DialToken && !self.directory.has_dial_token(id);
        self.directory.admits_caller(shown).is_err() || is_dial_token_deleted()
    }

    fn time_limit_reached(&self, entry: &ExchangeEntry, now: SystemTime) -> Option<TerminationReason> {
        if self.directory.freshness() >= Freshness::Outdated {
            return Some(TerminationReason::Stale);
        }
        let expires = entry.permit.caller().credential().expires;
        if expires.is_some_and(|expires| expires <= now) {
            return Some(TerminationReason::Expired);
        }
        (entry.began.elapsed() >= self.age_max).then_some(TerminationReason::TooOld)
    }

    pub(super) fn shard(&self, number: u64) -> MutexGuard<'_, HashMap<u64, Arc<ExchangeEntry>>> {
        // A panic under this lock leaves no entry half written.
        self.shards[number as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ExchangeEntry {
    pub(super) fn caller(&self) -> &Caller {
        self.permit.caller()
    }

    pub(super) fn question(&self) -> Option<&AccessReview> {
        self.permit.question()
    }

    /// Ends the exchange, unless it was ended before. Returns whether this call ended it.
    pub(super) fn end(&self, why: TerminationReason) -> bool {
        let is_first = self.reason.set(why).is_ok();
        if is_first {
            let agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let agent = agent.as_ref().map(AgentId::instance);
            let (cluster, verb, generation) =
                (self.permit.cluster(), self.permit.verb(), self.permit.generation());
            let cluster = cluster.map(ClusterId::as_str);
            debug!(cluster, agent, verb, generation, reason = why.as_str(), "an exchange was ended");
            metrics::request_terminated(why.as_str());
            self.terminated.cancel();
        }
        is_first
    }
}

impl RunningExchange {
    /// Sets the agent whose tunnel carries the exchange from now on.
    pub fn set_agent(&self, agent: &AgentId) {
        *self.0.entry.agent.lock().unwrap_or_else(PoisonError::into_inner) = Some(agent.clone());
    }

    /// The reason why the exchange was ended; `None` while it runs.
    #[must_use]
    pub fn termination(&self) -> Option<TerminationReason> {
        self.0.entry.reason.get().copied()
    }

    /// Resolves when the exchange is to be ended. Cancel-safe.
    pub fn terminated(&self) -> impl Future<Output = TerminationReason> + Send + 'static {
        let entry = Arc::clone(&self.0.entry);
        async move {
            entry.terminated.cancelled().await;
            // The reason is set before the token is cancelled.
            entry.reason.get().copied().unwrap_or(TerminationReason::Revoked)
        }
    }
}

impl<W: Allowable> AnyPermit for Permit<W> {
    fn caller(&self) -> &Caller {
        Self::caller(self)
    }

    fn cluster(&self) -> Option<&ClusterId> {
        Some(self.what().cluster())
    }

    fn verb(&self) -> &'static str {
        self.what().verb()
    }

    fn generation(&self) -> u64 {
        Self::generation(self)
    }

    fn question(&self) -> Option<&AccessReview> {
        Self::review(self)
    }

    fn target(&self) -> Option<&Target> {
        self.what().target()
    }

    fn is_permitted_by(&self, snapshot: &PolicySnapshot, facts: &ClusterFacts) -> bool {
        snapshot.still_permits(self, facts)
    }
}

impl AnyPermit for ListPermit {
    fn caller(&self) -> &Caller {
        &self.caller
    }

    fn cluster(&self) -> Option<&ClusterId> {
        None
    }

    fn verb(&self) -> &'static str {
        Verb::Watch.as_str()
    }

    fn generation(&self) -> u64 {
        self.generation
    }

    fn question(&self) -> Option<&AccessReview> {
        None
    }

    fn target(&self) -> Option<&Target> {
        None
    }

    fn is_permitted_by(&self, _: &PolicySnapshot, _: &ClusterFacts) -> bool {
        true
    }
}

impl Drop for EntryGuard {
    fn drop(&mut self) {
        self.table.0.shard(self.number).remove(&self.number);
    }
}

impl fmt::Debug for ExchangeTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExchangeTable").field("age_max", &self.0.age_max).finish_non_exhaustive()
    }
}

impl fmt::Debug for RunningExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningExchange").field("number", &self.0.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
