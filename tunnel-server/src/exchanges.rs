//! Which exchanges go on, by whose credential and by which permit, and what ends them before their time.
//!
//! An exchange stands in the table from its permit to its last byte, also while it waits for its cluster. It is ended when its
//! credential is revoked or runs out, when policy comes to forbid it, or when it has run for too long. One attendant sees to
//! that: at once where the directory or the policy has changed, and every second for what time alone ends. Another asks those
//! whose answer counts for a while.

mod reauthorize;

pub(crate) mod audit;
pub(crate) mod grpc;
pub(crate) mod slow_readers;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use policy::{ClusterFacts, Target};
use proto::ClusterId;
use proto::spiffe::AgentId;
use tokio::task::yield_now;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::directory::{Directory, Shown};
use crate::identity::{Authenticator, Caller, Credential, Method};
use crate::metrics;
use crate::permit::{Allowable, Delegation, Edition, Permit, Policy, Question};

pub use reauthorize::{REVIEWED_EVERY, UNASKED_MAX};

/// Parts of the table, each behind a lock of its own, so that exchanges of different homes do not wait for each other.
const SHARDS: usize = 16;

/// How often it is looked for what has run out.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The table. Clones are the same. It becomes no longer than the doors' own limits of exchanges let it.
#[derive(Clone)]
pub struct ExchangeTable(Arc<ExchangeTableShared>);

struct ExchangeTableShared {
    directory: Directory,
    policy: Policy,
    delegation: Delegation,
    authenticator: Authenticator,
    age_max: Duration,
    shards: [Mutex<HashMap<u64, Arc<ExchangeEntry>>>; SHARDS],
    next_number: AtomicU64,
}

struct ExchangeEntry {
    permit: Box<dyn AnyPermit>,
    began: Instant,
    /// Whose tunnel carries it, once one does.
    agent: Mutex<Option<AgentId>>,
    reason: OnceLock<TerminationReason>,
    terminated: CancellationToken,
}

/// A permit, whatever it is for.
trait AnyPermit: Send + Sync {
    fn caller(&self) -> &Caller;
    fn cluster(&self) -> &ClusterId;
    fn verb(&self) -> &'static str;
    fn generation(&self) -> u64;
    /// What another cluster was asked about it.
    fn question(&self) -> Option<&Question>;
    fn target(&self) -> Option<&Target>;
    /// Whether this edition too would give it.
    fn is_permitted_by(&self, edition: &Edition, facts: &ClusterFacts) -> bool;
}

/// An exchange that goes on. Clones are the same; when the last is dropped it is over.
#[derive(Clone)]
pub struct RunningExchange(Arc<EntryGuard>);

struct EntryGuard {
    table: ExchangeTable,
    number: u64,
    entry: Arc<ExchangeEntry>,
}

/// Why an exchange was ended before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TerminationReason {
    /// Who asked is refused from now on.
    #[error("this credential was revoked: ask whoever runs this server for another")]
    Revoked,
    /// The credential's time is over.
    #[error("the credential of this request has expired: log in again")]
    Expired,
    /// The cluster that is asked about callers forbids it.
    #[error(
        "the cluster that this server asks about its callers allows this no longer: ask who runs that cluster for a rule"
    )]
    ForbiddenByHost,
    /// That cluster could not be asked for [`UNASKED_MAX`].
    #[error("the cluster that this server asks about its callers does not answer: try again")]
    HostAway,
    /// Policy forbids it.
    #[error("the policy of this server was changed and allows this no longer: ask its operator for a rule")]
    PolicyChanged,
    /// It has run for as long as one may.
    #[error("this request has run for as long as one may here: begin it again")]
    TooOld,
}

/// What may have ended exchanges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trigger {
    /// Anything.
    Change,
    /// Time alone.
    Time,
}

impl ExchangeTable {
    /// A table for exchanges that `policy` permits and `delegation` too, of callers whom `authenticator` and of clusters that
    /// `directory` knows, none of which runs for longer than `age_max`.
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

    /// Whether anything may begin for this caller: its credential was not revoked.
    ///
    /// # Errors
    /// [`TerminationReason::Revoked`].
    pub fn check_revoked(&self, caller: &Caller) -> Result<(), TerminationReason> {
        if self.0.is_revoked(caller) { Err(TerminationReason::Revoked) } else { Ok(()) }
    }

    /// Enters an exchange. What was changed since its permit was given is seen here, what is changed later by
    /// [`ExchangeTable::enforce`].
    ///
    /// # Errors
    /// It may not go on.
    pub fn enter<W: Allowable>(&self, permit: &Permit<W>) -> Result<RunningExchange, TerminationReason> {
        let number = self.0.next_number.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(ExchangeEntry {
            permit: Box::new(permit.clone()),
            began: Instant::now(),
            agent: Mutex::default(),
            reason: OnceLock::new(),
            terminated: CancellationToken::new(),
        });
        self.0.shard(number).insert(number, Arc::clone(&entry));
        let live = RunningExchange(Arc::new(EntryGuard { table: self.clone(), number, entry }));
        self.0.termination_of(&live.0.entry, SystemTime::now()).map_or(Ok(live), Err)
    }

    /// Ends what may not go on, as long as the server runs.
    pub async fn enforce(self) {
        let mut editions = self.0.policy.editions();
        let mut changes = self.0.directory.changes();
        let mut tokens = self.0.authenticator.changes();
        let mut time = interval(CHECK_EVERY);
        time.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // What was changed before anybody listened.
        self.check_all(Trigger::Change).await;
        loop {
            // All arms are cancel-safe: a change that was not waited for is still marked as unseen, a tick comes again.
            let trigger = tokio::select! {
                Ok(()) = editions.changed() => Trigger::Change,
                Ok(()) = changes.changed() => Trigger::Change,
                () = Authenticator::changed(&mut tokens) => Trigger::Change,
                _ = time.tick() => Trigger::Time,
            };
            self.check_all(trigger).await;
        }
    }

    /// Looks at all exchanges once.
    async fn check_all(&self, trigger: Trigger) {
        let now = SystemTime::now();
        let mut count = 0;
        for shard in 0..SHARDS {
            // No lock is held while policy decides.
            let checked: Vec<Arc<ExchangeEntry>> = {
                let entries = self.0.shard(shard as u64);
                let concerns = |entry: &&Arc<ExchangeEntry>| match trigger {
                    Trigger::Change => true,
                    Trigger::Time => self.0.time_limit_reached(entry, now).is_some(),
                };
                entries.values().filter(concerns).cloned().collect()
            };
            for entry in checked {
                if let Some(why) = self.0.termination_of(&entry, now)
                    && entry.end(why)
                {
                    count += 1;
                }
            }
            yield_now().await;
        }
        if count > 0 {
            info!(count, ?trigger, "exchanges were ended that may not go on");
        }
    }
}

impl ExchangeTableShared {
    /// Why an exchange may not go on, if it may not.
    fn termination_of(&self, entry: &ExchangeEntry, now: SystemTime) -> Option<TerminationReason> {
        let (caller, cluster) = (entry.permit.caller(), entry.permit.cluster());
        if self.is_revoked(caller) || !self.authenticator.still_knows(caller) {
            return Some(TerminationReason::Revoked);
        }
        if let Some(why) = self.time_limit_reached(entry, now) {
            return Some(why);
        }
        let facts = ClusterFacts { labels: self.directory.labels(cluster) };
        let may_have = |target| self.directory.may_advertise(cluster, target);
        let is_permitted = entry.permit.is_permitted_by(&self.policy.edition(), &facts)
            && entry.permit.target().is_none_or(may_have);
        (!is_permitted).then_some(TerminationReason::PolicyChanged)
    }

    fn is_revoked(&self, caller: &Caller) -> bool {
        let Credential { id, issued, expires: _ } = caller.credential();
        let serial = (*caller.method() == Method::ClientCertificate).then_some(&**id);
        let shown = Shown { user: caller.user(), serial, issued: *issued };
        let is_taken_away = || *caller.method() == Method::DialToken && !self.directory.has_dial_token(id);
        self.directory.admits_caller(shown).is_err() || is_taken_away()
    }

    fn time_limit_reached(&self, entry: &ExchangeEntry, now: SystemTime) -> Option<TerminationReason> {
        let expires = entry.permit.caller().credential().expires;
        if expires.is_some_and(|expires| expires <= now) {
            return Some(TerminationReason::Expired);
        }
        (entry.began.elapsed() >= self.age_max).then_some(TerminationReason::TooOld)
    }

    fn shard(&self, number: u64) -> MutexGuard<'_, HashMap<u64, Arc<ExchangeEntry>>> {
        // A panic under this lock left whole entries behind.
        self.shards[number as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ExchangeEntry {
    /// Whether it was this that ended it.
    fn end(&self, why: TerminationReason) -> bool {
        let is_first = self.reason.set(why).is_ok();
        if is_first {
            let agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let agent = agent.as_ref().map(AgentId::instance);
            let (cluster, verb, generation) =
                (self.permit.cluster(), self.permit.verb(), self.permit.generation());
            debug!(%cluster, agent, verb, generation, reason = why.as_str(), "an exchange was ended");
            metrics::exchange_ended(why.as_str());
            self.terminated.cancel();
        }
        is_first
    }
}

impl RunningExchange {
    /// Notes whose tunnel carries it from now on.
    pub fn set_agent(&self, agent: &AgentId) {
        *self.0.entry.agent.lock().unwrap_or_else(PoisonError::into_inner) = Some(agent.clone());
    }

    /// Why it was ended, if it was.
    #[must_use]
    pub fn termination(&self) -> Option<TerminationReason> {
        self.0.entry.reason.get().copied()
    }

    /// Resolves when it is to be ended. Cancel-safe.
    pub fn terminated(&self) -> impl Future<Output = TerminationReason> + Send + 'static {
        let entry = Arc::clone(&self.0.entry);
        async move {
            entry.terminated.cancelled().await;
            // It was said before.
            entry.reason.get().copied().unwrap_or(TerminationReason::Revoked)
        }
    }
}

impl TerminationReason {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Revoked,
        Self::Expired,
        Self::PolicyChanged,
        Self::ForbiddenByHost,
        Self::HostAway,
        Self::TooOld,
    ];

    /// A word for logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Revoked => "revoked",
            Self::Expired => "expired",
            Self::PolicyChanged => "policy_changed",
            Self::ForbiddenByHost => "forbidden_by_host",
            Self::HostAway => "host_away",
            Self::TooOld => "session_too_old",
        }
    }
}

impl<W: Allowable> AnyPermit for Permit<W> {
    fn caller(&self) -> &Caller {
        Self::caller(self)
    }

    fn cluster(&self) -> &ClusterId {
        self.what().cluster()
    }

    fn verb(&self) -> &'static str {
        self.what().verb()
    }

    fn generation(&self) -> u64 {
        Self::generation(self)
    }

    fn question(&self) -> Option<&Question> {
        Self::question(self)
    }

    fn target(&self) -> Option<&Target> {
        self.what().target()
    }

    fn is_permitted_by(&self, edition: &Edition, facts: &ClusterFacts) -> bool {
        edition.still_permits(self, facts)
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
