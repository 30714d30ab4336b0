//! What the audit log learns of those who run the server: who asked for what, whether they may, and what became of it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use audit::{Completion, EndReason, Event, Log, NotRecorded, Note, Receipt, Status, User};
use http::HeaderMap;
use tokio::time::timeout;
use tonic::Code;
use tracing::warn;

use super::authorize::{Actor, AdminAction, AdminForbidden};
use crate::exchanges::grpc::status;

/// How long what takes something away waits for its intent to be written.
const TAKE_AWAY_MAX: Duration = Duration::from_millis(500);

/// A request that may be answered: its intent is in the log, or need not be.
pub(super) struct AuditedRequest {
    log: Log,
    detail: RequestDetail,
    completion_path: CompletionPath,
}

/// How a request's end comes to the log.
enum CompletionPath {
    /// As the completion of its intent.
    Receipt(Receipt),
    /// By the reserve, because the log could not be written when it came.
    Reserve(Box<Event>),
    /// Not at all.
    Nowhere,
}

/// What a service says of a request while it answers it: of which cluster, agent or token it is. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestDetail(Arc<OnceLock<String>>);

impl RequestDetail {
    /// Says it. What was said first stays.
    pub(super) fn set(&self, what: impl Into<String>) {
        let _ = self.0.set(what.into());
    }
}

/// Records a verdict of [`authorize_admin`](super::authorize_admin), as the one line of what is forbidden or the intent of
/// what is not. Who asks only whether the server lives is not recorded where that is allowed, because a probe asks for it
/// every few seconds. What takes something away is done even where it cannot be written beforehand.
///
/// # Errors
/// [`NotRecorded`]: it must not be done.
pub(super) async fn record(
    log: &Log,
    actor: &Actor,
    action: AdminAction,
    path: &str,
    verdict: &Result<(), AdminForbidden>,
) -> Result<AuditedRequest, NotRecorded> {
    let recorded = |completion_path| AuditedRequest {
        log: log.clone(),
        detail: RequestDetail::default(),
        completion_path,
    };
    let event = event(actor, action, path);
    if verdict.is_err() {
        let completion = Completion::new(Some(Status::code(403)), EndReason::Refused);
        log.record(event.with(Note::Decision, "forbid"), completion).await?;
        return Ok(recorded(CompletionPath::Nowhere));
    }
    let event = event.with(Note::Decision, "allow");
    match action {
        AdminAction::CheckHealth | AdminAction::WatchHealth => Ok(recorded(CompletionPath::Nowhere)),
        AdminAction::DeleteCluster
        | AdminAction::RevokeAgent
        | AdminAction::RevokeToken
        | AdminAction::RevokeUser
        | AdminAction::RevokeDialToken => {
            let completion_path = match timeout(TAKE_AWAY_MAX, log.intent(event.clone())).await {
                Ok(Ok(receipt)) => CompletionPath::Receipt(receipt),
                Ok(Err(_)) | Err(_) => CompletionPath::Reserve(Box::new(event)),
            };
            Ok(recorded(completion_path))
        }
        AdminAction::ListClusters
        | AdminAction::WatchClusters
        | AdminAction::GetServerInfo
        | AdminAction::CreateCluster
        | AdminAction::UpdateCluster
        | AdminAction::GetAttestation
        | AdminAction::ChangeAttestation
        | AdminAction::ListAgents
        | AdminAction::CreateToken
        | AdminAction::ListTokens
        | AdminAction::RestoreUser
        | AdminAction::ListRevokedUsers
        | AdminAction::CreateDialToken
        | AdminAction::ListDialTokens
        | AdminAction::Reflect => Ok(recorded(CompletionPath::Receipt(log.intent(event).await?))),
    }
}

impl AuditedRequest {
    /// Where services say what a request is about.
    pub(super) fn detail(&self) -> RequestDetail {
        self.detail.clone()
    }

    /// The request was answered with this head: a watch goes on, but nothing more is decided.
    pub(super) fn answered(self, head: &HeaderMap) {
        let code = tonic::Status::from_header_map(head).map_or(Code::Ok, |status| status.code());
        let end = if code == Code::Ok { EndReason::Clean } else { EndReason::Refused };
        let mut completion = Completion::new(Some(status(code)), end);
        if let Some(what) = self.detail.0.get() {
            completion = completion.with(Note::Detail, what);
        }
        match self.completion_path {
            CompletionPath::Receipt(receipt) => receipt.complete(completion),
            CompletionPath::Reserve(event) => {
                if let Err(error) = self.log.reserved(*event, completion) {
                    warn!(%error, what = self.detail.0.get(), "done by an administrator, and not in the audit log");
                }
            }
            CompletionPath::Nowhere => {}
        }
    }
}

fn event(actor: &Actor, action: AdminAction, path: &str) -> Event {
    let user =
        |method: &str| User { username: actor.to_string(), method: method.to_owned(), ..User::default() };
    let asked =
        |user| Event::new(action.to_string(), path, user).with(Note::Detail, action.object().to_string());
    match actor {
        // The kernel says who it is.
        Actor::Local { .. } => asked(user("unix-socket")).with(Note::Listener, "admin"),
        Actor::Remote { name: _, role, serial, from } => {
            let role = role.map_or_else(|| "none".to_owned(), |role| role.to_string());
            let mut event = asked(user("client-certificate"))
                .with(Note::Listener, "admin-tcp")
                .with(Note::Role, role)
                .with(Note::CredentialSerial, serial.as_str())
                .with(Note::Source, from.to_string());
            event.source = Some(*from);
            event
        }
    }
}
