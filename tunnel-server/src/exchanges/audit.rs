//! What the audit log knows of an exchange: its intent before a stream opens, its end when the last of it is gone.

mod counted;

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use audit::{Completion, EndReason, Event, Log, NotRecorded, Note, Receipt, Status, User, Why};
use daemon::Scope;
use futures::FutureExt;
use http::StatusCode;
use policy::action::Action;
use proto::AbortCode;
use proto::session::Health;
use transport::{Tunnel, Verdict};

use super::slow_readers::SlowReaders;
use super::{RunningExchange, TerminationReason};
use crate::identity::Caller;
use crate::permit::{Allowable, Permit};
use crate::registry::Route;

pub(crate) use counted::count_bytes;

/// How long exchanges go on that cannot be recorded to their end.
pub(crate) const UNAUDITED_MAX: Duration = Duration::from_secs(60);

/// Proof that the log has accepted what was permitted: only [`AuditLog::write_intent`] begins one, and streams are opened for
/// nothing else.
#[derive(Clone)]
pub(crate) struct Audited<W = Action> {
    permit: Permit<W>,
    entry: AuditEntry,
}

/// One exchange in the log. When the last of its clones is dropped, it is over.
#[derive(Clone)]
pub(crate) struct AuditEntry(Arc<AuditEntryState>);

struct AuditEntryState {
    log: Log,
    scope: Scope,
    /// Its place among all that go on.
    live: RunningExchange,
    /// Taken when this is dropped.
    receipt: Option<Receipt>,
    up: AtomicU64,
    down: AtomicU64,
    outcome: Mutex<ExchangeOutcome>,
}

/// What became of it so far.
#[derive(Default)]
struct ExchangeOutcome {
    status: Option<Status>,
    end: Option<EndReason>,
    agent: Option<String>,
    /// Of the target, as the agent says.
    address: Option<String>,
    carrier: &'static str,
    streams: u32,
    /// The last stream's.
    carried: Option<(Tunnel, Verdict)>,
}

/// Tells the log. Clones are the same.
#[derive(Clone)]
pub(crate) struct AuditLog {
    log: Log,
    scope: Scope,
}

impl AuditLog {
    pub(crate) fn new(log: Log, scope: Scope) -> Self {
        Self { log, scope }
    }

    /// Says what is about to be done, which `event` has but for the permit, and goes on once that is written.
    pub(crate) async fn write_intent<W: Allowable>(
        &self,
        (permit, live): (Permit<W>, RunningExchange),
        event: Event,
    ) -> Result<Audited<W>, NotRecorded> {
        let event = event
            .with(Note::Cluster, permit.what().cluster().as_str())
            .with(Note::Decision, "allow")
            .with(Note::PolicyGeneration, permit.generation().to_string())
            .with(Note::Rule, permit.rule());
        let receipt = self.log.intent(event).await?;
        let entry = AuditEntry(Arc::new(AuditEntryState {
            log: self.log.clone(),
            scope: self.scope.clone(),
            live,
            receipt: Some(receipt),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            outcome: Mutex::default(),
        }));
        Ok(Audited { permit, entry })
    }

    /// Says what is over as soon as it is said.
    pub(crate) async fn write_completed(
        &self,
        event: Event,
        completion: Completion,
    ) -> Result<(), NotRecorded> {
        self.log.record(event, completion).await
    }

    /// Counts a request of somebody who is not known.
    pub(crate) fn count_unauthenticated(&self, from: IpAddr, why: Why) {
        self.log.stranger(from, why);
    }

    /// Ends what runs once it cannot be recorded for too long, as long as the server runs.
    pub(crate) async fn watch(self, slow_readers: SlowReaders) {
        loop {
            self.log.failed_for(UNAUDITED_MAX).await;
            slow_readers.end_all(EndReason::AuditFailed);
            self.log.becomes(false).await;
        }
    }
}

impl<W> Audited<W> {
    pub(crate) fn permit(&self) -> &Permit<W> {
        &self.permit
    }

    pub(crate) fn entry(&self) -> &AuditEntry {
        &self.entry
    }
}

impl AuditEntry {
    /// The same exchange once more, under another permit.
    pub(crate) fn with_permit<W>(&self, permit: Permit<W>) -> Audited<W> {
        Audited { permit, entry: self.clone() }
    }

    /// Whether a stream may be opened for it now.
    pub(crate) fn check_log(&self) -> Result<(), NotRecorded> {
        self.0.log.failing().map_or(Ok(()), |why| Err(NotRecorded::Failing(why)))
    }

    /// A stream was opened for it.
    pub(crate) fn stream_opened(&self, route: &Route, verdict: Verdict) {
        let mut outcome = self.0.outcome();
        outcome.agent = Some(route.agent.instance().to_owned());
        outcome.carrier = route.tunnel.carrier().as_str();
        outcome.streams += 1;
        outcome.carried = Some((route.tunnel.clone(), verdict));
        self.0.live.set_agent(&route.agent);
    }

    /// Where the agent was connected to.
    pub(crate) fn target_connected(&self, address: String) {
        self.0.outcome().address = Some(address);
    }

    /// Resolves when it may not go on. Cancel-safe.
    pub(crate) fn terminated(&self) -> impl Future<Output = TerminationReason> + Send + 'static {
        self.0.live.terminated()
    }

    /// It ends so, because it may not go on. What was said first counts.
    pub(crate) fn set_terminated(&self, why: TerminationReason) {
        self.set_end(end_reason(why));
    }

    /// The head of the answer goes to the caller. What a refusal has said of it stays.
    pub(crate) fn set_status(&self, status: StatusCode) {
        self.0.outcome().status.get_or_insert_with(|| Status::code(status.as_u16()));
    }

    /// It was not served, or not to its end. What was said first of its end counts.
    pub(crate) fn set_refused(&self, status: Status, end: EndReason) {
        self.set_end(end);
        self.0.outcome().status = Some(status);
    }

    /// It ends so. What was said first counts.
    pub(crate) fn set_end(&self, end: EndReason) {
        self.0.outcome().end.get_or_insert(end);
    }

    /// It broke: for a reason that the agent has given, or with the tunnel, else for this one.
    pub(crate) fn set_broken(&self, otherwise: EndReason) {
        let mut outcome = self.0.outcome();
        let end = match &outcome.carried {
            Some((tunnel, verdict)) => match verdict.heard() {
                Some(code) => end_reason_of_code(code),
                None if tunnel.health() == Health::Lost => EndReason::AgentLost,
                None => otherwise,
            },
            None => otherwise,
        };
        outcome.end.get_or_insert(end);
    }

    pub(crate) fn add_bytes_up(&self, bytes: usize) {
        self.0.up.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn add_bytes_down(&self, bytes: usize) {
        self.0.down.fetch_add(bytes as u64, Relaxed);
    }
}

impl AuditEntryState {
    fn outcome(&self) -> MutexGuard<'_, ExchangeOutcome> {
        // A panic under this lock leaves nothing half said.
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why it ends where nobody has said it: who held it let go.
    fn end_if_dropped(&self) -> EndReason {
        // A caller lets go of an exchange, and so does a scope that is aborted.
        if self.scope.aborted().now_or_never().is_some() { EndReason::Drain } else { EndReason::ClientCancel }
    }
}

impl Drop for AuditEntryState {
    fn drop(&mut self) {
        let Some(receipt) = self.receipt.take() else { return };
        let outcome = std::mem::take(&mut *self.outcome());
        let end = outcome.end.unwrap_or_else(|| self.end_if_dropped());
        let mut completion = Completion::new(outcome.status, end)
            .with(Note::BytesUp, self.up.load(Relaxed).to_string())
            .with(Note::BytesDown, self.down.load(Relaxed).to_string())
            .with(Note::Streams, outcome.streams.to_string());
        if let Some(address) = outcome.address {
            completion = completion.with(Note::Address, address);
        }
        if let Some(agent) = outcome.agent {
            completion = completion.with(Note::Agent, agent).with(Note::Carrier, outcome.carrier);
        }
        receipt.complete(completion);
    }
}

/// By which door something came, from where, and its name in every log.
#[derive(Debug, Clone)]
pub(crate) struct Origin<'a> {
    pub(crate) listener: &'static str,
    /// The other end, in words.
    pub(crate) source: String,
    /// Its address, if it has one.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) audit_id: &'a str,
}

/// What a caller asks for, as far as it is the same at every door. `mode` is how the cluster is to be reached.
pub(crate) fn event_of_caller(
    caller: &Caller,
    origin: Origin<'_>,
    mode: &'static str,
    verb: impl Into<Cow<'static, str>>,
    target: &str,
) -> Event {
    let user = User {
        username: caller.user().to_owned(),
        groups: caller.groups().to_vec(),
        method: caller.method().as_str().to_owned(),
    };
    let mut event = Event::new(verb, audit::without_values(target), user)
        .with(Note::Mode, mode)
        .with(Note::Listener, origin.listener)
        .with(Note::Source, origin.source)
        .with(Note::CredentialSerial, &*caller.credential().id);
    if caller.place().is_some() {
        event.note(Note::Authenticated, "false");
    }
    origin.audit_id.clone_into(&mut event.audit_id);
    event.source = origin.address;
    event
}

/// How an exchange ends that may not go on.
pub(crate) fn end_reason(why: TerminationReason) -> EndReason {
    match why {
        TerminationReason::Revoked => EndReason::Revoked,
        TerminationReason::Expired => EndReason::Expired,
        TerminationReason::PolicyChanged | TerminationReason::ForbiddenByHost => EndReason::PolicyChanged,
        TerminationReason::TooOld | TerminationReason::HostAway => EndReason::Limit,
    }
}

pub(crate) fn end_reason_of_code(code: AbortCode) -> EndReason {
    match code {
        AbortCode::Draining => EndReason::Drain,
        AbortCode::Abandoned | AbortCode::BadOpen | AbortCode::Unknown(_) => EndReason::AgentLost,
        AbortCode::CallerStalled => EndReason::Limit,
        AbortCode::GuardRefused
        | AbortCode::NoPassThrough
        | AbortCode::NoBearer
        | AbortCode::Busy
        | AbortCode::BadRequest => EndReason::Refused,
        AbortCode::ApiServerUnreachable
        | AbortCode::ApiServerSilent
        | AbortCode::ApiServerUntrusted
        | AbortCode::ApiServerLost
        | AbortCode::ApiServerNonsense
        | AbortCode::NoCredential
        | AbortCode::TargetLost => EndReason::UpstreamReset,
    }
}
