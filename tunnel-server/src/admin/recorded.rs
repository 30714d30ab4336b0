//! What the audit log learns of those who run the server: who asked for what, and whether they may.

use audit::{Completion, EndReason, Event, Log, NotRecorded, Note, Status, User};

use super::authorize::{Action, Actor, Forbidden};

/// How the actor proved who it is: the kernel says so.
const METHOD: &str = "unix-socket";

/// Records a verdict of [`authorize_admin`](super::authorize_admin). What changes nothing and asks only whether the server
/// lives is not recorded where it is allowed, because a probe asks for it every few seconds.
///
/// # Errors
/// [`NotRecorded`]: it must not be done.
pub(super) async fn record(
    log: &Log,
    actor: Actor,
    action: Action,
    path: &str,
    verdict: &Result<(), Forbidden>,
) -> Result<(), NotRecorded> {
    let (decision, code) = match verdict {
        Ok(()) if matches!(action, Action::CheckHealth | Action::WatchHealth) => return Ok(()),
        Ok(()) => ("allow", 200),
        Err(_) => ("forbid", 403),
    };
    let user = User { username: format!("uid:{}", actor.uid), method: METHOD.to_owned(), ..User::default() };
    let event = Event::new(action.to_string(), path, user)
        .with(Note::Listener, "admin")
        .with(Note::Decision, decision)
        .with(Note::Detail, action.object().to_string());
    let end = if verdict.is_ok() { EndReason::Clean } else { EndReason::Refused };
    log.record(event, Completion::new(Some(Status::code(code)), end)).await
}
