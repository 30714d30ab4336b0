//! What the audit log learns of a request: its intent before a stream opens, its end when the last of it is gone.

mod body;
mod pipe;
mod words;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use audit::{Completion, EndReason, Log, NotRecorded, Note, Receipt, Status};
use daemon::Scope;
use futures::FutureExt;
use http::{Request, StatusCode};
use proto::session::Health;
use proto::upgrade::Protocol;
use proto::wire::Assert;
use transport::{Tunnel, Verdict};

use super::Peer;
use super::refusal::Refusal;
use super::stalls::Stalls;
use crate::exchanges::{Ended, Live};
use crate::identity::{Caller, NotAuthenticated};
use crate::permit::Permit;
use crate::registry::Route;

pub(super) use body::RecordedBody;
pub(super) use pipe::counted;
use words::{asked, end_of, end_of_code, ended_by, identity, object};

/// How long exchanges go on that cannot be recorded to their end.
pub const UNRECORDED_MAX: Duration = Duration::from_secs(60);

/// Proof that the log has accepted a permitted request: only [`Recorder::intent`] begins one, and streams are opened for
/// nothing else.
#[derive(Clone)]
pub(super) struct Recorded {
    permit: Permit,
    record: Record,
}

/// One request in the log. When the last of its clones is dropped, it is over.
#[derive(Clone)]
pub(super) struct Record(Arc<Kept>);

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
    carrier: &'static str,
    streams: u32,
    /// The last stream's.
    carried: Option<(Tunnel, Verdict)>,
}

/// Tells the log. Clones are the same.
#[derive(Clone)]
pub(super) struct Recorder {
    log: Log,
    scope: Scope,
}

impl Recorder {
    pub(super) fn new(log: Log, scope: Scope) -> Self {
        Self { log, scope }
    }

    /// Says what is about to be done, and as whom if that may be asserted, and goes on once that is written.
    pub(super) async fn intent<B>(
        &self,
        (permit, live): (Permit, Live),
        asserted: Option<Assert>,
        from: &Peer,
        upgrade: Option<Protocol>,
        request: &Request<B>,
    ) -> Result<Recorded, NotRecorded> {
        let (caller, action) = (permit.caller(), permit.action());
        let mut event = asked(request, caller, from, action.verb().as_str())
            .with(Note::Cluster, action.cluster().as_str())
            .with(Note::Decision, "allow")
            .with(Note::PolicyGeneration, permit.generation().to_string())
            .with(Note::Rule, permit.rule());
        event.object = object(action);
        event.asserted = asserted.map(identity);
        if let Some(upgrade) = upgrade {
            event.note(Note::Upgrade, upgrade.token().to_str().unwrap_or_default());
        }
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

    /// Says that a request of somebody known was refused, or that all of the answer to it is ours.
    pub(super) async fn answered<B>(
        &self,
        request: &Request<B>,
        caller: &Caller,
        from: &Peer,
        refusal: Option<&Refusal>,
    ) -> Result<(), NotRecorded> {
        let verb = request.method().as_str().to_ascii_lowercase();
        let mut event = asked(request, caller, from, verb);
        let (code, reason, end) = match refusal {
            Some(refusal) => (refusal.status(), refusal.cause(), EndReason::Refused),
            None => (StatusCode::OK, "", EndReason::Clean),
        };
        event.note(
            Note::Decision,
            if matches!(refusal, Some(Refusal::Forbidden(_))) { "forbid" } else { "allow" },
        );
        if let Some(Refusal::Forbidden(forbidden)) = refusal {
            if let Some(rule) = &forbidden.rule {
                event.note(Note::Rule, &**rule);
            }
            event.note(Note::Cluster, forbidden.cluster().as_str());
            event.asserted = forbidden.identity().cloned().map(identity);
        }
        let status = Status { code: code.as_u16(), reason };
        self.log.record(event, Completion::new(Some(status), end)).await
    }

    /// Counts a request of somebody who is not known.
    pub(super) fn stranger(&self, from: SocketAddr, error: &NotAuthenticated) {
        self.log.stranger(from.ip(), words::why(error));
    }

    /// Ends what runs once it cannot be recorded for too long, as long as the server runs.
    pub(super) async fn watch(self, stalls: Stalls) {
        loop {
            self.log.failed_for(UNRECORDED_MAX).await;
            stalls.end_all(EndReason::AuditFailed);
            self.log.becomes(false).await;
        }
    }
}

impl Recorded {
    pub(super) fn permit(&self) -> &Permit {
        &self.permit
    }

    pub(super) fn record(&self) -> &Record {
        &self.record
    }
}

impl Record {
    /// The same request once more, under another permit.
    pub(super) fn again(&self, permit: Permit) -> Recorded {
        Recorded { permit, record: self.clone() }
    }

    /// Whether a stream may be opened for it now.
    pub(super) fn may_open(&self) -> Result<(), NotRecorded> {
        self.0.log.failing().map_or(Ok(()), |why| Err(NotRecorded::Failing(why)))
    }

    /// A stream was opened for it.
    pub(super) fn carried(&self, route: &Route, verdict: Verdict) {
        let mut course = self.0.course();
        course.agent = Some(route.agent.instance().to_owned());
        course.carrier = route.tunnel.carrier().as_str();
        course.streams += 1;
        course.carried = Some((route.tunnel.clone(), verdict));
        self.0.live.carried_by(&route.agent);
    }

    /// Resolves when it may not go on. Cancel-safe.
    pub(super) fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.0.live.ended()
    }

    /// It ends so, because it may not go on. What was said first counts.
    pub(super) fn ends_by(&self, why: Ended) {
        self.ends(ended_by(why));
    }

    /// The head of the answer goes to the caller. What a refusal has said of it stays.
    pub(super) fn answered(&self, status: StatusCode) {
        self.0.course().status.get_or_insert_with(|| Status::code(status.as_u16()));
    }

    /// It was not served, or not to its end. What was said first counts.
    pub(super) fn refused(&self, refusal: &Refusal) {
        self.ends(end_of(refusal));
        self.0.course().status = Some(Status { code: refusal.status().as_u16(), reason: refusal.cause() });
    }

    /// It ends so. What was said first counts.
    pub(super) fn ends(&self, end: EndReason) {
        self.0.course().end.get_or_insert(end);
    }

    /// It broke: for a reason that the agent has given, or with the tunnel, else for this one.
    pub(super) fn breaks(&self, otherwise: EndReason) {
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

    pub(super) fn sent_up(&self, bytes: usize) {
        self.0.up.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn sent_down(&self, bytes: usize) {
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
        if let Some(agent) = course.agent {
            completion = completion.with(Note::Agent, agent).with(Note::Carrier, course.carrier);
        }
        receipt.complete(completion);
    }
}
