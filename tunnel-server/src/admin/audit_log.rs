//! Audit log entries of the admin API: who asked for what, whether it was allowed, and how it ended.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use audit::{Annotation, AuditError, Completion, EndReason, Event, Log, Receipt, Status, User};
use http::HeaderMap;
use tokio::time::timeout;
use tonic::Code;
use tracing::warn;

use super::authorize::{Actor, AdminAction, AdminForbidden, AuditRule};
use crate::exchanges::grpc::status;

/// Longest wait for the intent of an action that takes something away.
const BEST_EFFORT_MAX: Duration = Duration::from_millis(500);

/// A request that may be answered: its intent is in the log, or need not be.
pub(super) struct AuditedRequest {
    log: Log,
    detail: RequestDetail,
    completion_path: CompletionPath,
}

/// The way by which the end of a request gets into the log.
enum CompletionPath {
    /// As the completion of its intent.
    Receipt(Receipt),
    /// By the reserve, because the log could not be written when the request came.
    Reserve(Box<Event>),
    /// The request is not audited, or already has its only line.
    Nowhere,
}

/// The cluster, agent or token that a request is about, which the service notes while it answers. Clones share one value.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestDetail(Arc<OnceLock<String>>);

impl RequestDetail {
    /// Sets the detail. The first value stays.
    pub(super) fn set(&self, detail: impl Into<String>) {
        let _ = self.0.set(detail.into());
    }
}

/// Audits a decision of [`authorize_admin`](super::authorize_admin): the only line of a forbidden request, or the intent of
/// an allowed one, by the action's [`AuditRule`].
///
/// # Errors
/// [`AuditError`]: the request must not be answered.
pub(super) async fn audit(
    log: &Log,
    actor: &Actor,
    action: AdminAction,
    path: &str,
    decision: &Result<(), AdminForbidden>,
) -> Result<AuditedRequest, AuditError> {
    let event = event(actor, action, path);
    let completion_path = match (decision, action.audit_rule()) {
        (Err(_), _) => {
            let completion = Completion::new(Some(Status::code(403)), EndReason::Refused);
            log.write(event.with(Annotation::Decision, "forbid"), completion).await?;
            CompletionPath::Nowhere
        }
        (Ok(()), AuditRule::Unaudited) => CompletionPath::Nowhere,
        (Ok(()), AuditRule::BestEffort) => {
            let event = event.with(Annotation::Decision, "allow");
            match timeout(BEST_EFFORT_MAX, log.intent(event.clone())).await {
                Ok(Ok(receipt)) => CompletionPath::Receipt(receipt),
                Ok(Err(_)) | Err(_) => CompletionPath::Reserve(Box::new(event)),
            }
        }
        (Ok(()), AuditRule::Intent) => {
            CompletionPath::Receipt(log.intent(event.with(Annotation::Decision, "allow")).await?)
        }
    };
    Ok(AuditedRequest { log: log.clone(), detail: RequestDetail::default(), completion_path })
}

impl AuditedRequest {
    /// The place where the service notes what the request is about.
    pub(super) fn detail(&self) -> RequestDetail {
        self.detail.clone()
    }

    /// Completes the entry once the answer has this head. A watch continues after it, but nothing more is decided.
    pub(super) fn answered(self, head: &HeaderMap) {
        let code = tonic::Status::from_header_map(head).map_or(Code::Ok, |status| status.code());
        let end = if code == Code::Ok { EndReason::Clean } else { EndReason::Refused };
        let mut completion = Completion::new(Some(status(code)), end);
        if let Some(detail) = self.detail.0.get() {
            completion = completion.with(Annotation::Detail, detail);
        }
        match self.completion_path {
            CompletionPath::Receipt(receipt) => receipt.complete(completion),
            CompletionPath::Reserve(event) => {
                if let Err(error) = self.log.write_reserved(*event, completion) {
                    warn!(%error, detail = self.detail.0.get(), "an administrator's action is not in the audit log");
                }
            }
            CompletionPath::Nowhere => {}
        }
    }
}

fn event(actor: &Actor, action: AdminAction, path: &str) -> Event {
    let user =
        |method: &str| User { username: actor.to_string(), method: method.to_owned(), ..User::default() };
    let event = |user| {
        Event::new(action.to_string(), path, user).with(Annotation::Detail, action.object().to_string())
    };
    match actor {
        // The kernel reports the user.
        Actor::Local { .. } => event(user("unix-socket")).with(Annotation::Listener, "admin"),
        Actor::Remote { name: _, role, serial, from } => {
            let role = role.map_or_else(|| "none".to_owned(), |role| role.to_string());
            let mut event = event(user("client-certificate"))
                .with(Annotation::Listener, "admin-tcp")
                .with(Annotation::Role, role)
                .with(Annotation::CredentialSerial, serial.as_str())
                .with(Annotation::Source, from.to_string());
            event.source = Some(*from);
            event
        }
    }
}
