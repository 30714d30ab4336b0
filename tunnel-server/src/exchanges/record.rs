//! What the audit log knows of an exchange: its intent before a stream opens, its end when the last of it is gone.

mod pipe;

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

use super::stalls::Stalls;
use super::{Ended, Live};
use crate::identity::Caller;
use crate::permit::{Allowable, Permit};
use crate::registry::Route;

pub(crate) use pipe::counted;

/// How long exchanges go on that cannot be recorded to their end.
pub(crate) const UNRECORDED_MAX: Duration = Duration::from_secs(60);

/// Proof that the log has accepted what was permitted: only [`Recorder::intent`] begins one, and streams are opened for
/// nothing else.
#[derive(Clone)]
pub(crate) struct Recorded<W = Action> {
    permit: Permit<W>,
    record: Record,
}

/// One exchange in the log. When the last of its clones is dropped, it is over.
#[derive(Clone)]
pub(crate) struct Record(Arc<Kept>);

struct Kept {
    log: Log,
    scope: Scope,
    /// Its place among all that go on.
    live: Live,
    /// Taken when this is dropped.
    receipt: Option<Receipt>,
    up: AtomicU64,
    down: AtomicU64,
    course: Mutex<Course>,
}

/// What became of it so far.
#[derive(Default)]
struct Course {
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
pub(crate) struct Recorder {
    log: Log,
    scope: Scope,
}

impl Recorder {
    pub(crate) fn new(log: Log, scope: Scope) -> Self {
        Self { log, scope }
    }

    /// Says what is about to be done, which `event` has but for the permit, and goes on once that is written.
    pub(crate) async fn intent<W: Allowable>(
        &self,
        (permit, live): (Permit<W>, Live),
        event: Event,
    ) -> Result<Recorded<W>, NotRecorded> {
        let event = event
            .with(Note::Cluster, permit.what().cluster().as_str())
            .with(Note::Decision, "allow")
            .with(Note::PolicyGeneration, permit.generation().to_string())
            .with(Note::Rule, permit.rule());
        let receipt = self.log.intent(event).await?;
        let record = Record(Arc::new(Kept {
            log: self.log.clone(),
            scope: self.scope.clone(),
            live,
            receipt: Some(receipt),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            course: Mutex::default(),
        }));
        Ok(Recorded { permit, record })
    }

    /// Says what is over as soon as it is said.
    pub(crate) async fn told(&self, event: Event, completion: Completion) -> Result<(), NotRecorded> {
        self.log.record(event, completion).await
    }

    /// Counts a request of somebody who is not known.
    pub(crate) fn stranger(&self, from: IpAddr, why: Why) {
        self.log.stranger(from, why);
    }

    /// Ends what runs once it cannot be recorded for too long, as long as the server runs.
    pub(crate) async fn watch(self, stalls: Stalls) {
        loop {
            self.log.failed_for(UNRECORDED_MAX).await;
            stalls.end_all(EndReason::AuditFailed);
            self.log.becomes(false).await;
        }
    }
}

impl<W> Recorded<W> {
    pub(crate) fn permit(&self) -> &Permit<W> {
        &self.permit
    }

    pub(crate) fn record(&self) -> &Record {
        &self.record
    }
}

impl Record {
    /// The same exchange once more, under another permit.
    pub(crate) fn again<W>(&self, permit: Permit<W>) -> Recorded<W> {
        Recorded { permit, record: self.clone() }
    }

    /// Whether a stream may be opened for it now.
    pub(crate) fn may_open(&self) -> Result<(), NotRecorded> {
        self.0.log.failing().map_or(Ok(()), |why| Err(NotRecorded::Failing(why)))
    }

    /// A stream was opened for it.
    pub(crate) fn carried(&self, route: &Route, verdict: Verdict) {
        let mut course = self.0.course();
        course.agent = Some(route.agent.instance().to_owned());
        course.carrier = route.tunnel.carrier().as_str();
        course.streams += 1;
        course.carried = Some((route.tunnel.clone(), verdict));
        self.0.live.carried_by(&route.agent);
    }

    /// Where the agent was connected to.
    pub(crate) fn connected(&self, address: String) {
        self.0.course().address = Some(address);
    }

    /// Resolves when it may not go on. Cancel-safe.
    pub(crate) fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.0.live.ended()
    }

    /// It ends so, because it may not go on. What was said first counts.
    pub(crate) fn ends_by(&self, why: Ended) {
        self.ends(ended_by(why));
    }

    /// The head of the answer goes to the caller. What a refusal has said of it stays.
    pub(crate) fn answered(&self, status: StatusCode) {
        self.0.course().status.get_or_insert_with(|| Status::code(status.as_u16()));
    }

    /// It was not served, or not to its end. What was said first of its end counts.
    pub(crate) fn refused(&self, status: Status, end: EndReason) {
        self.ends(end);
        self.0.course().status = Some(status);
    }

    /// It ends so. What was said first counts.
    pub(crate) fn ends(&self, end: EndReason) {
        self.0.course().end.get_or_insert(end);
    }

    /// It broke: for a reason that the agent has given, or with the tunnel, else for this one.
    pub(crate) fn breaks(&self, otherwise: EndReason) {
        let mut course = self.0.course();
        let end = match &course.carried {
            Some((tunnel, verdict)) => match verdict.heard() {
                Some(code) => end_of_code(code),
                None if tunnel.health() == Health::Lost => EndReason::AgentLost,
                None => otherwise,
            },
            None => otherwise,
        };
        course.end.get_or_insert(end);
    }

    pub(crate) fn sent_up(&self, bytes: usize) {
        self.0.up.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn sent_down(&self, bytes: usize) {
        self.0.down.fetch_add(bytes as u64, Relaxed);
    }
}

impl Kept {
    fn course(&self) -> MutexGuard<'_, Course> {
        // A panic under this lock leaves nothing half said.
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why it ends where nobody has said it: who held it let go.
    fn let_go(&self) -> EndReason {
        // A caller lets go of an exchange, and so does a scope that is aborted.
        if self.scope.aborted().now_or_never().is_some() { EndReason::Drain } else { EndReason::ClientCancel }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(receipt) = self.receipt.take() else { return };
        let course = std::mem::take(&mut *self.course());
        let end = course.end.unwrap_or_else(|| self.let_go());
        let mut completion = Completion::new(course.status, end)
            .with(Note::BytesUp, self.up.load(Relaxed).to_string())
            .with(Note::BytesDown, self.down.load(Relaxed).to_string())
            .with(Note::Streams, course.streams.to_string());
        if let Some(address) = course.address {
            completion = completion.with(Note::Address, address);
        }
        if let Some(agent) = course.agent {
            completion = completion.with(Note::Agent, agent).with(Note::Carrier, course.carrier);
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
pub(crate) fn of_caller(
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
    if caller.source_address().is_some() {
        event.note(Note::Authenticated, "false");
    }
    origin.audit_id.clone_into(&mut event.audit_id);
    event.source = origin.address;
    event
}

/// How an exchange ends that may not go on.
pub(crate) fn ended_by(why: Ended) -> EndReason {
    match why {
        Ended::Revoked => EndReason::Revoked,
        Ended::Expired => EndReason::Expired,
        Ended::PolicyChanged | Ended::ForbiddenByHost => EndReason::PolicyChanged,
        Ended::TooOld | Ended::HostAway => EndReason::Limit,
    }
}

pub(crate) fn end_of_code(code: AbortCode) -> EndReason {
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
