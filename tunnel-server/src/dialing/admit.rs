//! What becomes of somebody who asks to be connected at a door without stages of its own: limits, the log, then the connection.

use std::net::SocketAddr;

use audit::{Completion, EndReason, Event, Note, Status};
use daemon::metrics::exchanges::{Active, Exchanges};
use http::StatusCode;
use tracing::debug;
use uuid::Uuid;

use super::{DialError, Dialer, TargetStream};
use crate::authz::{Dial, Permit};
use crate::exchanges::Live;
use crate::exchanges::record::{Origin, of_caller};
use crate::identity::Caller;
use crate::limits::{ExchangeKind, LimitExceeded, LimitGuard};
use crate::metrics;

/// Who asks, where, and for what.
pub(crate) struct DialRequest<'a> {
    pub(crate) caller: &'a Caller,
    /// The way in, as the audit log calls it.
    pub(crate) listener: &'static str,
    pub(crate) from: SocketAddr,
    /// As it was said: it may be none.
    pub(crate) target: &'a str,
    pub(crate) kind: ExchangeKind,
}

/// Why a door connects somebody not, in the words of that door.
pub(crate) trait DialRefusal: From<LimitExceeded> + From<DialError> + std::fmt::Display {
    /// The status that HTTP has for it, for the log and metrics too.
    fn status(&self) -> StatusCode;

    /// A word for programs.
    fn cause(&self) -> &'static str;

    /// Why nobody is connected, unless it was never admitted whether they may be.
    fn dial_error(&self) -> Option<&DialError>;
}

/// Counts what is admitted for as long as it goes on, and why it was refused.
pub(crate) async fn with_metrics<T, R: DialRefusal>(
    exchanges: &Exchanges,
    admitted: impl Future<Output = Result<T, R>>,
) -> Result<(T, Active), R> {
    let active = exchanges.begin();
    active.set_sort("dial");
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
    /// Connects who asks, once they have their permit: within the limits of their own and of the cluster, and once the log has it.
    ///
    /// # Errors
    /// Why not. The log has that, too, but of those who ask too fast.
    pub(crate) async fn admit<R: DialRefusal>(
        &self,
        request: &DialRequest<'_>,
        permitted: impl Future<Output = Result<(Permit<Dial>, Live), R>>,
    ) -> Result<(TargetStream, LimitGuard), R> {
        let DialRequest { caller, listener, from, target, kind } = *request;
        // Before anything is written of it: who asks too fast fills no log.
        self.limiter().check_rate(caller)?;
        let audit_id = Uuid::now_v7().to_string();
        let origin = Origin { listener, source: from.to_string(), address: Some(from), audit_id: &audit_id };
        let event = of_caller(caller, origin, "dial", "dial", target);
        let (permit, live) = match permitted.await {
            Ok(permitted) => permitted,
            Err(refusal) => {
                let event = with_denial(event, refusal.dial_error());
                let completion = Completion::new(Some(status_of(&refusal)), EndReason::Refused);
                self.recorder().told(event, completion).await.map_err(DialError::from)?;
                return Err(refusal);
            }
        };
        let guard = self.limiter().admit(permit.caller(), &permit.what().cluster, kind)?;
        let mut guard = guard.wait_for_seat().await?;
        let event = event.with(Note::Target, permit.what().target.to_string());
        let recorded = self.recorder().intent((permit, live), event).await.map_err(DialError::from)?;
        let target = match self.connect(&recorded, &audit_id).await {
            Ok(target) => target,
            Err(error) => {
                let end = error.end();
                let refusal = R::from(error);
                recorded.record().refused(status_of(&refusal), end);
                return Err(refusal);
            }
        };
        recorded.record().answered(StatusCode::OK);
        guard.response_started();
        Ok((target, guard))
    }
}

/// The same event, with what has refused it.
fn with_denial(event: Event, error: Option<&DialError>) -> Event {
    let event = event.with(Note::Decision, "forbid");
    let event = match error.and_then(DialError::among) {
        Some(among) => event.with(Note::Among, among),
        None => event,
    };
    let Some(forbidden) = error.and_then(DialError::forbidden) else { return event };
    let event = match &forbidden.rule {
        Some(rule) => event.with(Note::Rule, &**rule),
        None => event,
    };
    event.with(Note::Cluster, forbidden.cluster().as_str())
}

fn status_of(refusal: &impl DialRefusal) -> Status {
    Status { code: refusal.status().as_u16(), reason: refusal.cause() }
}
