//! Admits a dial from an entry point without a request pipeline of its own: limits, audit log, then the
//! connection.

use std::net::SocketAddr;

use audit::{Annotation, Completion, EndReason, Event, Status};
use daemon::metrics::requests::{ActiveRequest, RequestMetrics};
use http::StatusCode;
use tracing::debug;
use uuid::Uuid;

use super::{DialError, Dialer, TargetStream};
use crate::authz::{Dial, Permit};
use crate::exchanges::RunningExchange;
use crate::exchanges::audit::{Origin, event_of_caller};
use crate::identity::Caller;
use crate::limits::{ExchangeKind, LimitExceeded, LimitGuard};
use crate::metrics;

/// A dial request, with its caller and its source.
pub(crate) struct DialRequest<'a> {
    pub(crate) caller: &'a Caller,
    /// The name of the entry point in the audit log.
    pub(crate) listener: &'static str,
    pub(crate) from: SocketAddr,
    /// The target as the caller wrote it, which may be invalid.
    pub(crate) target: &'a str,
    pub(crate) kind: ExchangeKind,
}

/// The refusal of a dial, as one entry point presents it.
pub(crate) trait DialRefusal: From<LimitExceeded> + From<DialError> + std::fmt::Display {
    /// The HTTP status, which the audit log and metrics use too.
    fn status(&self) -> StatusCode;

    /// The cause of the refusal, for programs.
    fn cause(&self) -> &'static str;

    /// The error of the dial, unless the request was refused before any permission was checked.
    fn dial_error(&self) -> Option<&DialError>;
}

/// Counts a request as active while it runs, and counts its refusal by cause.
pub(crate) async fn with_metrics<T, R: DialRefusal>(
    exchanges: &RequestMetrics,
    admitted: impl Future<Output = Result<T, R>>,
) -> Result<(T, ActiveRequest), R> {
    let active = exchanges.begin();
    active.set_kind("dial");
    let admitted = admitted.await;
    let code = admitted.as_ref().map_or_else(DialRefusal::status, |_| StatusCode::OK);
    active.answered(code.as_u16());
    match admitted {
        Ok(begun) => Ok((begun, active)),
        Err(refusal) => {
            debug!(%refusal, "not connected");
            metrics::refused(refusal.cause());
            Err(refusal)
        }
    }
}

impl Dialer {
    /// Connects a permitted caller: within its limits and its cluster's, and only once the audit log has the
    /// intent.
    ///
    /// # Errors
    /// The refusal of the entry point. The audit log records it too, unless the caller sends requests too
    /// fast.
    pub(crate) async fn admit<R: DialRefusal>(
        &self,
        request: &DialRequest<'_>,
        permitted: impl Future<Output = Result<(Permit<Dial>, RunningExchange), R>>,
    ) -> Result<(TargetStream, LimitGuard), R> {
        let DialRequest { caller, listener, from, target, kind } = *request;
        // Before the audit log, so that requests beyond the rate cannot fill it.
        self.limiter().check_rate(caller)?;
        let audit_id = Uuid::now_v7().to_string();
        let origin = Origin { listener, source: from.to_string(), address: Some(from), audit_id: &audit_id };
        let event = event_of_caller(caller, origin, "dial", "dial", target);
        let (permit, live) = match permitted.await {
            Ok(permitted) => permitted,
            Err(refusal) => {
                let event = with_denial(event, refusal.dial_error());
                let completion = Completion::new(Some(status_of(&refusal)), EndReason::Refused);
                self.recorder().write_completed(event, completion).await.map_err(DialError::from)?;
                return Err(refusal);
            }
        };
        let guard = self.limiter().admit(permit.caller(), &permit.what().cluster, kind)?;
        let mut guard = guard.wait_for_seat().await?;
        let event = event.with(Annotation::Target, permit.what().target.to_string());
        let proof = self.recorder().write_intent((permit, live), event).await.map_err(DialError::from)?;
        let target = match self.connect(&proof, &audit_id).await {
            Ok(target) => target,
            Err(error) => {
                let end = error.end();
                let refusal = R::from(error);
                proof.entry().set_refused(status_of(&refusal), end);
                return Err(refusal);
            }
        };
        proof.entry().set_status(StatusCode::OK);
        guard.response_started();
        Ok((target, guard))
    }
}

/// Adds the denial's cluster, rule and candidates to the audit event.
fn with_denial(event: Event, error: Option<&DialError>) -> Event {
    let event = event.with(Annotation::Decision, "forbid");
    let event = match error.and_then(DialError::among) {
        Some(among) => event.with(Annotation::Among, among),
        None => event,
    };
    let Some(forbidden) = error.and_then(DialError::forbidden) else { return event };
    let event = match &forbidden.rule {
        Some(rule) => event.with(Annotation::Rule, &**rule),
        None => event,
    };
    event.with(Annotation::Cluster, forbidden.cluster().as_str())
}

fn status_of(refusal: &impl DialRefusal) -> Status {
    Status { code: refusal.status().as_u16(), reason: refusal.cause() }
}
