//! The audit entry of an exchange: its intent is written before a stream opens, its outcome when the exchange
//! is dropped.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use audit::{Annotation, AuditError, Completion, EndReason, Event, FailureCause, Log, Receipt, Status, User};
use daemon::Scope;
use futures::FutureExt;
use http::StatusCode;
use policy::action::Action;
use proto::AbortCode;
use transport::AbortCodes;

use super::table::RunningExchange;
use super::termination::TerminationReason;
use crate::authz::{Allowable, Permit};
use crate::identity::Caller;
use crate::registry::{CarryingTunnel, Route};

/// Longest time for which exchanges continue while the audit log cannot be written.
pub(crate) const UNAUDITED_MAX: Duration = Duration::from_secs(60);

/// Proof that the intent of a permitted exchange is in the audit log. Only [`AuditLog::write_intent`] makes
/// one, and every stream needs one.
#[derive(Clone)]
pub(crate) struct Audited<W = Action> {
    permit: Permit<W>,
    entry: AuditEntry,
}

/// The audit entry of one exchange. Its outcome is written when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct AuditEntry(Arc<AuditEntryState>);

struct AuditEntryState {
    log: Log,
    scope: Scope,
    /// Keeps the exchange in the table of running exchanges.
    exchange: RunningExchange,
    /// Proof of the written intent; taken when the outcome is written.
    receipt: Option<Receipt>,
    up: AtomicU64,
    down: AtomicU64,
    outcome: Mutex<ExchangeOutcome>,
}

/// The outcome of an exchange, as far as it is known.
#[derive(Default)]
struct ExchangeOutcome {
    status: Option<Status>,
    end: Option<EndReason>,
    agent: Option<String>,
    /// The target's address, as the agent reports it.
    address: Option<String>,
    carrier: &'static str,
    streams: u32,
    /// The tunnel and the abort code of the last stream.
    carried: Option<(CarryingTunnel, AbortCodes)>,
}

/// Writes the entries of exchanges to the audit log. Clones write to the same log.
#[derive(Clone)]
pub(crate) struct AuditLog {
    log: Log,
    scope: Scope,
}

impl AuditLog {
    pub(crate) fn new(log: Log, scope: Scope) -> Self {
        Self { log, scope }
    }

    /// Writes the intent of an exchange: `event`, to which this adds the permit. Returns once the log has
    /// accepted it.
    ///
    /// # Errors
    /// The audit log cannot be written.
    pub(crate) async fn write_intent<W: Allowable>(
        &self,
        (permit, exchange): (Permit<W>, RunningExchange),
        event: Event,
    ) -> Result<Audited<W>, AuditError> {
        let event = event
            .with(Annotation::Cluster, permit.what().cluster().as_str())
            .with(Annotation::Rule, permit.rule());
        let entry = self.begin(exchange, permit.generation(), event).await?;
        Ok(Audited { permit, entry })
    }

    /// Begins the entry of an exchange that policy of this generation allows: alone for a watch of the list of clusters, which has no
    /// permit and opens no stream.
    ///
    /// # Errors
    /// The audit log cannot be written.
    pub(crate) async fn begin(
        &self,
        exchange: RunningExchange,
        generation: u64,
        event: Event,
    ) -> Result<AuditEntry, AuditError> {
        let event = event
            .with(Annotation::Decision, "allow")
            .with(Annotation::PolicyGeneration, generation.to_string());
        let receipt = self.log.intent(event).await?;
        Ok(AuditEntry(Arc::new(AuditEntryState {
            log: self.log.clone(),
            scope: self.scope.clone(),
            exchange,
            receipt: Some(receipt),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            outcome: Mutex::default(),
        })))
    }

    /// Writes the entry of a request that this server answers by itself, intent and outcome together.
    ///
    /// # Errors
    /// The audit log cannot be written.
    pub(crate) async fn write_completed(
        &self,
        event: Event,
        completion: Completion,
    ) -> Result<(), AuditError> {
        self.log.write(event, completion).await
    }

    /// Counts a request of an unauthenticated client, by its address and the cause.
    pub(crate) fn count_unauthenticated(&self, from: IpAddr, why: FailureCause) {
        self.log.unauthenticated(from, why);
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
    /// A proof for the same exchange under another permit.
    pub(crate) fn with_permit<W>(&self, permit: Permit<W>) -> Audited<W> {
        Audited { permit, entry: self.clone() }
    }

    /// Checks that the audit log can be written, which every stream needs.
    pub(crate) fn check_log(&self) -> Result<(), AuditError> {
        self.0.log.failing().map_or(Ok(()), |why| Err(AuditError::Failing(why)))
    }

    /// Notes the tunnel over which a stream was opened.
    pub(crate) fn stream_opened(&self, route: &Route, abort_codes: AbortCodes) {
        let mut outcome = self.0.outcome();
        outcome.agent = Some(route.agent().instance().to_owned());
        outcome.carrier = route.carrier().as_str();
        outcome.streams += 1;
        outcome.carried = Some((route.carrying_tunnel(), abort_codes));
        self.0.exchange.set_agent(route.agent());
    }

    /// Notes the address to which the agent has connected.
    pub(crate) fn target_connected(&self, address: String) {
        self.0.outcome().address = Some(address);
    }

    /// Resolves when the exchange is to be ended. Cancel-safe.
    pub(crate) fn terminated(&self) -> impl Future<Output = TerminationReason> + Send + 'static {
        self.0.exchange.terminated()
    }

    /// Notes that the exchange is ended early. The first noted end counts.
    pub(crate) fn set_terminated(&self, why: TerminationReason) {
        self.set_end(end_reason(why));
    }

    /// Notes the status of the answer. The status of a refusal stays.
    pub(crate) fn set_status(&self, status: StatusCode) {
        self.0.outcome().status.get_or_insert_with(|| Status::code(status.as_u16()));
    }

    /// Notes the status and the end of a refusal. The first noted end counts.
    pub(crate) fn set_refused(&self, status: Status, end: EndReason) {
        self.set_end(end);
        self.0.outcome().status = Some(status);
    }

    /// Notes how the exchange ends. The first noted end counts.
    pub(crate) fn set_end(&self, end: EndReason) {
        self.0.outcome().end.get_or_insert(end);
    }

    /// Notes that the exchange broke: by the agent's abort code, with its tunnel, or else as `otherwise`
    /// says.
    pub(crate) fn set_broken(&self, otherwise: EndReason) {
        let mut outcome = self.0.outcome();
        let end = match &outcome.carried {
            Some((tunnel, abort_codes)) => match abort_codes.peer_code() {
                Some(code) => end_reason_of_code(code),
                None if tunnel.is_lost() => EndReason::AgentLost,
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
        // A panic under this lock leaves nothing half written.
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of an exchange that was dropped before any end was noted.
    fn end_if_dropped(&self) -> EndReason {
        // Both a disconnected caller and an aborted scope drop the exchange.
        if self.scope.aborted().now_or_never().is_some() { EndReason::Drain } else { EndReason::ClientCancel }
    }
}

impl Drop for AuditEntryState {
    fn drop(&mut self) {
        let Some(receipt) = self.receipt.take() else { return };
        let outcome = std::mem::take(&mut *self.outcome());
        let end = outcome.end.unwrap_or_else(|| self.end_if_dropped());
        let mut completion = Completion::new(outcome.status, end)
            .with(Annotation::BytesUp, self.up.load(Relaxed).to_string())
            .with(Annotation::BytesDown, self.down.load(Relaxed).to_string())
            .with(Annotation::Streams, outcome.streams.to_string());
        if let Some(address) = outcome.address {
            completion = completion.with(Annotation::Address, address);
        }
        if let Some(agent) = outcome.agent {
            completion = completion.with(Annotation::Agent, agent).with(Annotation::Carrier, outcome.carrier);
        }
        receipt.complete(completion);
    }
}

/// The listener and the address from which a request came, and its audit ID.
#[derive(Debug, Clone)]
pub(crate) struct Origin<'a> {
    pub(crate) listener: &'static str,
    /// The peer as text: an address, or `unix`.
    pub(crate) source: String,
    /// The peer's address, if it has one.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) audit_id: &'a str,
}

/// The event of a caller's request, with the fields that all listeners have in common. `mode` says how the
/// cluster is reached: `kube-api` or `dial`.
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
        .with(Annotation::Mode, mode)
        .with(Annotation::Listener, origin.listener)
        .with(Annotation::Source, origin.source)
        .with(Annotation::CredentialSerial, &*caller.credential().id);
    if caller.source_address().is_some() {
        event.annotate(Annotation::Authenticated, "false");
    }
    origin.audit_id.clone_into(&mut event.audit_id);
    event.source = origin.address;
    event
}

/// The end that the audit log shows for an exchange that was ended early.
pub(crate) fn end_reason(why: TerminationReason) -> EndReason {
    match why {
        TerminationReason::Revoked => EndReason::Revoked,
        TerminationReason::Expired => EndReason::Expired,
        TerminationReason::PolicyChanged | TerminationReason::ForbiddenByHost => EndReason::PolicyChanged,
        TerminationReason::TooOld | TerminationReason::HostAway | TerminationReason::Stale => {
            EndReason::Limit
        }
    }
}

/// The end that the audit log shows for a stream that was aborted with `code`.
pub(crate) fn end_reason_of_code(code: AbortCode) -> EndReason {
    match code {
        AbortCode::Draining => EndReason::Drain,
        AbortCode::Abandoned | AbortCode::BadOpen | AbortCode::TunnelLost | AbortCode::Unknown(_) => {
            EndReason::AgentLost
        }
        AbortCode::SlowReader => EndReason::Limit,
        AbortCode::GuardRefused
        | AbortCode::NoPassThrough
        | AbortCode::NoBearer
        | AbortCode::Busy
        | AbortCode::Fenced
        | AbortCode::BadRequest => EndReason::Refused,
        AbortCode::ApiServerUnreachable
        | AbortCode::ApiServerSilent
        | AbortCode::ApiServerUntrusted
        | AbortCode::ApiServerUnknownIssuer
        | AbortCode::ApiServerWrongName
        | AbortCode::ApiServerCertificateExpired
        | AbortCode::ApiServerWeakCertificate
        | AbortCode::ApiServerNotProcessed
        | AbortCode::ApiServerLost
        | AbortCode::ApiServerProtocolError
        | AbortCode::NoCredential
        | AbortCode::TargetLost => EndReason::UpstreamReset,
    }
}
