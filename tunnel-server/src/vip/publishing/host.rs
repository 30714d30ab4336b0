//! Reads and changes our objects in the host cluster, and nothing else.
//!
//! An object is made only if its name is free. It is changed or removed only if it is the very object that was seen with our
//! labels. Each change is sent only while this server has the right to it.

use std::sync::Arc;
use std::time::Instant;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout_at;
use tracing::info;

use super::kind::ObjectKind;
use super::objects::{ObjectRef, SyncAction, matches_wanted};
use super::owner::{FIELD_MANAGER, Owner};
use crate::directory::{Directory, Election, StoreError};
use crate::identity::{ANSWER_BYTES_MAX, HostApi, HostApiError, JSON};

/// Largest list of objects, in bytes. It has room for more than a thousand.
pub const LIST_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Longest reason of the API server that is logged, in characters.
const REASON_CHARS_MAX: usize = 300;

/// The content type of a server-side apply. JSON is valid YAML.
const APPLY: &str = "application/apply-patch+yaml";

/// The objects of one namespace of the host cluster.
pub(super) struct HostObjects {
    pub(super) api: Arc<HostApi>,
    pub(super) namespace: String,
    pub(super) owner: Owner,
    /// Knows which servers have ever shared the records.
    pub(super) directory: Directory,
}

/// The right of this server to change objects, which can end at any moment.
#[derive(Debug, Clone, Copy)]
pub(super) enum WriteRight<'e> {
    /// The leader changes what belongs to all servers.
    Leader(&'e Election),
    /// A server that is registered changes what is its own. If it were not, the leader would remove that.
    Registered(&'e Election),
}

/// The result of one action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ActionResult {
    /// The object is as it should be.
    Done,
    /// A foreign object has that name.
    Foreign,
    /// The object needs another synchronization.
    Unsettled,
}

/// The reason why not every object is as it should be.
#[derive(Debug, thiserror::Error)]
pub(super) enum PublishError {
    #[error("the host cluster's API server cannot be asked")]
    HostApiError(#[from] HostApiError),
    #[error("{0} was changed by another client meanwhile, or must be recreated")]
    Unsettled(String),
    #[error("the host cluster's API server refuses to {action} {what}: {status}, {reason}")]
    Refused { action: &'static str, what: String, status: StatusCode, reason: String },
    #[error("the host cluster has no Service {0}, and the elected server has not made one yet")]
    NotMadeYet(String),
    #[error("this server has not kept its registration alive, so another one may act in its place")]
    LeaseOver,
    #[error("the ranges of the servers cannot be read")]
    Store(#[from] StoreError),
}

impl WriteRight<'_> {
    /// The time until which a change may be on its way.
    fn until(self) -> Result<Instant, PublishError> {
        let until = match self {
            Self::Leader(election) => election.leads_until(),
            Self::Registered(election) => election.registered_until(),
        };
        until.ok_or(PublishError::LeaseOver)
    }
}

impl HostObjects {
    /// The objects of a list that are ours.
    pub(super) async fn list(&self, kind: ObjectKind, selector: &str) -> Result<Vec<Value>, PublishError> {
        let path = format!("{}{selector}", kind.path(&self.namespace));
        let (status, mut answer) = self.api.exchange(Method::GET, &path, None, LIST_BYTES_MAX).await?;
        if !status.is_success() {
            return Err(refused("list", kind, "*", status, &answer));
        }
        match answer["items"].take() {
            // The selector has said so of a server alone.
            Value::Array(items) if !self.owner.is_shared() => Ok(items),
            Value::Array(items) => Ok(items.into_iter().filter(|found| self.is_ours(found)).collect()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                Err(HostApiError::Shape.into())
            }
        }
    }

    /// Returns whether the object of this name is ours; `None` if there is no object of this name.
    pub(super) async fn has(&self, kind: ObjectKind, name: &str) -> Result<Option<bool>, PublishError> {
        let path = format!("{}/{name}", kind.path(&self.namespace));
        let (status, found) = self.api.exchange(Method::GET, &path, None, ANSWER_BYTES_MAX).await?;
        match status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => Ok(Some(self.is_ours(&found))),
            status => Err(refused("get", kind, name, status, &found)),
        }
    }

    /// Performs an action, if this server has the right to it.
    pub(super) async fn apply(
        &self,
        kind: ObjectKind,
        action: SyncAction,
        right: WriteRight<'_>,
    ) -> Result<ActionResult, PublishError> {
        let (word, name, all) = (kind.as_str(), action.name().to_owned(), kind.path(&self.namespace));
        let one = format!("{all}/{name}");
        match action {
            SyncAction::Create(object) => {
                let path = format!("{all}?fieldManager={FIELD_MANAGER}");
                let (status, answer) = self.send(Method::POST, &path, (JSON, &object), right).await?;
                match status {
                    // A create succeeds only if the name is free. The last leader may have made it just now.
                    StatusCode::CONFLICT if self.owner.is_shared() => {
                        let is_ours = self.has(kind, &name).await?.unwrap_or(true);
                        return Ok(if is_ours { ActionResult::Unsettled } else { ActionResult::Foreign });
                    }
                    StatusCode::CONFLICT => return Ok(ActionResult::Foreign),
                    status if status.is_success() => {}
                    status => return Err(refused("create", kind, &name, status, &answer)),
                }
                info!(kind = word, name, namespace = self.namespace, "made in the host cluster");
            }
            SyncAction::Apply(object) => {
                let path = format!("{one}?fieldManager={FIELD_MANAGER}&force=true");
                let (status, answer) = self.send(Method::PATCH, &path, (APPLY, &object), right).await?;
                match status {
                    // The UID shows that another object has that name now.
                    StatusCode::CONFLICT => return Ok(ActionResult::Unsettled),
                    StatusCode::UNPROCESSABLE_ENTITY => {
                        return self.recreate(kind, &name, &object, right).await;
                    }
                    status if !status.is_success() => {
                        return Err(refused("change", kind, &name, status, &answer));
                    }
                    _ if !matches_wanted(&answer, &object) => {
                        return self.recreate(kind, &name, &object, right).await;
                    }
                    _ => info!(kind = word, name, namespace = self.namespace, "changed in the host cluster"),
                }
            }
            SyncAction::Remove(marks) => return self.remove(kind, &marks, right).await,
        }
        Ok(ActionResult::Done)
    }

    /// Removes an object that cannot be changed as needed, such as a slice of the other address family. The
    /// next synchronization makes it anew.
    async fn recreate(
        &self,
        kind: ObjectKind,
        name: &str,
        object: &Value,
        right: WriteRight<'_>,
    ) -> Result<ActionResult, PublishError> {
        let path = format!("{}/{name}", kind.path(&self.namespace));
        let (_, found) = self.api.exchange(Method::GET, &path, None, ANSWER_BYTES_MAX).await?;
        match ObjectRef::from_object(&found) {
            Some(marks) if object["metadata"]["uid"] == marks.uid && self.is_ours(&found) => {
                self.remove(kind, &marks, right).await?;
            }
            Some(_) | None => {}
        }
        Ok(ActionResult::Unsettled)
    }

    async fn remove(
        &self,
        kind: ObjectKind,
        marks: &ObjectRef,
        right: WriteRight<'_>,
    ) -> Result<ActionResult, PublishError> {
        let ObjectRef { name, uid, resource_version } = marks;
        let path = format!("{}/{name}", kind.path(&self.namespace));
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": { "uid": uid, "resourceVersion": resource_version },
        });
        let (status, answer) = self.send(Method::DELETE, &path, (JSON, &options), right).await?;
        match status {
            StatusCode::NOT_FOUND => {}
            // The object was changed meanwhile, and may be foreign now.
            StatusCode::CONFLICT => return Ok(ActionResult::Unsettled),
            status if !status.is_success() => return Err(refused("remove", kind, name, status, &answer)),
            _ => {
                info!(kind = kind.as_str(), name, namespace = self.namespace, "removed from the host cluster")
            }
        }
        Ok(ActionResult::Done)
    }

    /// Sends a change. It is given up when the right to it ends.
    async fn send(
        &self,
        method: Method,
        path: &str,
        (form, object): (&'static str, &Value),
        right: WriteRight<'_>,
    ) -> Result<(StatusCode, Value), PublishError> {
        let until = right.until()?;
        let answer = self.api.exchange(method, path, Some((form, object)), ANSWER_BYTES_MAX);
        let answer = timeout_at(until.into(), answer).await.map_err(|_| PublishError::LeaseOver)?;
        Ok(answer?)
    }

    fn is_ours(&self, found: &Value) -> bool {
        self.owner.is_ours(found, |server| self.directory.has_ever_run(server))
    }
}

fn refused(
    action: &'static str,
    kind: ObjectKind,
    name: &str,
    status: StatusCode,
    answer: &Value,
) -> PublishError {
    let reason = answer["message"].as_str().unwrap_or("without a reason");
    let reason = reason.chars().take(REASON_CHARS_MAX).collect();
    PublishError::Refused { action, what: format!("{} {name}", kind.as_str()), status, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logged_reason_is_shortened_to_its_limit() {
        for (chars, logged) in
            [(REASON_CHARS_MAX, REASON_CHARS_MAX), (REASON_CHARS_MAX + 1, REASON_CHARS_MAX)]
        {
            let answer = json!({ "message": "ö".repeat(chars) });
            let message = refused("list", ObjectKind::Slice, "*", StatusCode::FORBIDDEN, &answer).to_string();
            assert_eq!(message.matches('ö').count(), logged, "{message}");
            assert!(message.contains("list EndpointSlice *: 403 Forbidden"), "{message}");
        }
    }
}
