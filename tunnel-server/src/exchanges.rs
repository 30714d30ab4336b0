//! Which exchanges go on, by whose credential and by which permit, and what ends them before their time.
//!
//! An exchange stands in the table from its permit to its last byte, also while it waits for its cluster. It is ended when its
//! credential is revoked or runs out, when policy comes to forbid it, or when it has run for too long. One attendant sees to
//! that: at once where the directory or the policy has changed, and every second for what time alone ends. Another asks those
//! whose answer counts for a while.

mod again;

pub(crate) mod grpc;
pub(crate) mod record;
pub(crate) mod stalls;

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

use crate::directory::{CallerCredential, Directory};
use crate::identity::{Authenticator, Caller, Credential, Method};
use crate::metrics;
use crate::permit::{Allowable, Delegation, Edition, Permit, Policy, Question};

pub use again::{REVIEWED_EVERY, UNASKED_MAX};

/// Parts of the table, each behind a lock of its own, so that exchanges of different homes do not wait for each other.
const SHARDS: usize = 16;

/// How often it is looked for what has run out.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The table. Clones are the same. It becomes no longer than the doors' own limits of exchanges let it.
#[derive(Clone)]
pub struct Table(Arc<Inner>);

struct Inner {
    directory: Directory,
    policy: Policy,
    delegation: Delegation,
    authenticator: Authenticator,
    age_max: Duration,
    shards: [Mutex<HashMap<u64, Arc<Entry>>>; SHARDS],
    next_number: AtomicU64,
}

struct Entry {
    permit: Box<dyn Permitted>,
    began: Instant,
    /// Whose tunnel carries it, once one does.
    agent: Mutex<Option<AgentId>>,
    why: OnceLock<Ended>,
    ended: CancellationToken,
}

/// A permit, whatever it is for.
trait Permitted: Send + Sync {
    fn caller(&self) -> &Caller;
    fn cluster(&self) -> &ClusterId;
    fn verb(&self) -> &'static str;
    fn generation(&self) -> u64;
    /// What another cluster was asked about it.
    fn question(&self) -> Option<&Question>;
    fn target(&self) -> Option<&Target>;
    /// Whether this edition too would give it.
    fn holds_by(&self, edition: &Edition, facts: &ClusterFacts) -> bool;
}

/// An exchange that goes on. Clones are the same; when the last is dropped it is over.
#[derive(Clone)]
pub struct Live(Arc<Place>);

struct Place {
    table: Table,
    number: u64,
    entry: Arc<Entry>,
}

/// Why an exchange was ended before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
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
enum Cause {
    /// Anything.
    Change,
    /// Time alone.
    Time,
}

impl Table {
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
        Self(Arc::new(Inner { directory, policy, delegation, authenticator, age_max, shards, next_number }))
    }

    /// Whether anything may begin for this caller: its credential was not revoked.
    ///
    /// # Errors
    /// [`Ended::Revoked`].
    pub fn admits(&self, caller: &Caller) -> Result<(), Ended> {
        if self.0.is_revoked(caller) { Err(Ended::Revoked) } else { Ok(()) }
    }

    /// Enters an exchange. What was changed since its permit was given is seen here, what is changed later by
    /// [`Table::keep`].
    ///
    /// # Errors
    /// It may not go on.
    pub fn enter<W: Allowable>(&self, permit: &Permit<W>) -> Result<Live, Ended> {
        let number = self.0.next_number.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(Entry {
            permit: Box::new(permit.clone()),
            began: Instant::now(),
            agent: Mutex::default(),
            why: OnceLock::new(),
            ended: CancellationToken::new(),
        });
        self.0.shard(number).insert(number, Arc::clone(&entry));
        let live = Live(Arc::new(Place { table: self.clone(), number, entry }));
        self.0.judge(&live.0.entry, SystemTime::now()).map_or(Ok(live), Err)
    }

    /// Ends what may not go on, as long as the server runs.
    pub async fn keep(self) {
        let mut editions = self.0.policy.editions();
        let mut changes = self.0.directory.changes();
        let mut tokens = self.0.authenticator.changes();
        let mut time = interval(LOOK_EVERY);
        time.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // What was changed before anybody listened.
        self.look(Cause::Change).await;
        loop {
            // All arms are cancel-safe: a change that was not waited for is still marked as unseen, a tick comes again.
            let cause = tokio::select! {
                Ok(()) = editions.changed() => Cause::Change,
                Ok(()) = changes.changed() => Cause::Change,
                () = Authenticator::changed(&mut tokens) => Cause::Change,
                _ = time.tick() => Cause::Time,
            };
            self.look(cause).await;
        }
    }

    /// Looks at all exchanges once.
    async fn look(&self, cause: Cause) {
        let now = SystemTime::now();
        let mut count = 0;
        for shard in 0..SHARDS {
            // No lock is held while policy decides.
            let looked_at: Vec<Arc<Entry>> = {
                let entries = self.0.shard(shard as u64);
                let concerns = |entry: &&Arc<Entry>| match cause {
                    Cause::Change => true,
                    Cause::Time => self.0.run_out(entry, now).is_some(),
                };
                entries.values().filter(concerns).cloned().collect()
            };
            for entry in looked_at {
                if let Some(why) = self.0.judge(&entry, now)
                    && entry.end(why)
                {
                    count += 1;
                }
            }
            yield_now().await;
        }
        if count > 0 {
            info!(count, ?cause, "exchanges were ended that may not go on");
        }
    }
}

impl Inner {
    /// Why an exchange may not go on, if it may not.
    fn judge(&self, entry: &Entry, now: SystemTime) -> Option<Ended> {
        let (caller, cluster) = (entry.permit.caller(), entry.permit.cluster());
        if self.is_revoked(caller) || !self.authenticator.is_still_valid(caller) {
            return Some(Ended::Revoked);
        }
        if let Some(why) = self.run_out(entry, now) {
            return Some(why);
        }
        let facts = ClusterFacts { labels: self.directory.labels(cluster) };
        let may_have = |target| self.directory.may_advertise(cluster, target);
        let is_permitted = entry.permit.holds_by(&self.policy.edition(), &facts)
            && entry.permit.target().is_none_or(may_have);
        (!is_permitted).then_some(Ended::PolicyChanged)
    }

    fn is_revoked(&self, caller: &Caller) -> bool {
        let Credential { id, issued, expires: _ } = caller.credential();
        let serial = (*caller.method() == Method::ClientCertificate).then_some(&**id);
        let shown = CallerCredential { user: caller.user(), serial, issued: *issued };
        let is_taken_away = || *caller.method() == Method::DialToken && !self.directory.has_dial_token(id);
        self.directory.admits_caller(shown).is_err() || is_taken_away()
    }

    fn run_out(&self, entry: &Entry, now: SystemTime) -> Option<Ended> {
        let expires = entry.permit.caller().credential().expires;
        if expires.is_some_and(|expires| expires <= now) {
            return Some(Ended::Expired);
        }
        (entry.began.elapsed() >= self.age_max).then_some(Ended::TooOld)
    }

    fn shard(&self, number: u64) -> MutexGuard<'_, HashMap<u64, Arc<Entry>>> {
        // A panic under this lock left whole entries behind.
        self.shards[number as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Whether it was this that ended it.
    fn end(&self, why: Ended) -> bool {
        let is_first = self.why.set(why).is_ok();
        if is_first {
            let agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let agent = agent.as_ref().map(AgentId::instance);
            let (cluster, verb, generation) =
                (self.permit.cluster(), self.permit.verb(), self.permit.generation());
            debug!(%cluster, agent, verb, generation, reason = why.as_str(), "an exchange was ended");
            metrics::exchange_ended(why.as_str());
            self.ended.cancel();
        }
        is_first
    }
}

impl Live {
    /// Notes whose tunnel carries it from now on.
    pub fn carried_by(&self, agent: &AgentId) {
        *self.0.entry.agent.lock().unwrap_or_else(PoisonError::into_inner) = Some(agent.clone());
    }

    /// Why it was ended, if it was.
    #[must_use]
    pub fn end(&self) -> Option<Ended> {
        self.0.entry.why.get().copied()
    }

    /// Resolves when it is to be ended. Cancel-safe.
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        let entry = Arc::clone(&self.0.entry);
        async move {
            entry.ended.cancelled().await;
            // It was said before.
            entry.why.get().copied().unwrap_or(Ended::Revoked)
        }
    }
}

impl Ended {
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

impl<W: Allowable> Permitted for Permit<W> {
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

    fn holds_by(&self, edition: &Edition, facts: &ClusterFacts) -> bool {
        edition.still_permits(self, facts)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.table.0.shard(self.number).remove(&self.number);
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("age_max", &self.0.age_max).finish_non_exhaustive()
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("number", &self.0.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
