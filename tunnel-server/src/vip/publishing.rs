//! Publishes assigned addresses in a host cluster: each cluster is a Service there as long as the server
//! knows it.
//!
//! Foreign objects are never touched. An object is made only if its name is free. It is changed or removed
//! only if it is the very object that was seen with our labels. Our objects stay when the server ends, so
//! that a restart makes no gap.

mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use daemon::{Scope, error_chain};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::assigned::ClusterAddress;
use crate::directory::Directory;
use crate::identity::{ANSWER_BYTES_MAX, HostApi, HostApiError, JSON};
use crate::metrics;
use objects::{FIELD_MANAGER, ObjectKind, ObjectRef, SyncAction, is_ours, matches_wanted, plan, selector};

/// The interval between two synchronizations without a change.
pub const SYNC_INTERVAL: Duration = Duration::from_secs(60);

/// The shortest pause between two synchronizations, so that many changes become one. After a failure the
/// pause doubles each time, up to [`SYNC_INTERVAL`].
pub const SYNC_GAP: Duration = Duration::from_secs(1);

/// Largest list of objects, in bytes. It has room for more than a thousand.
pub const LIST_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Longest reason of the API server that is logged, in characters.
const REASON_CHARS_MAX: usize = 300;

/// A namespace of a host cluster, and the server that publishes there.
pub struct HostNamespace {
    /// The API server of the host cluster.
    pub api: Arc<HostApi>,
    /// The name of the namespace.
    pub name: String,
    /// The name of this server, which labels its objects.
    pub server: String,
}

/// Keeps a Service for each assigned address.
pub(super) struct Publisher {
    at: HostNamespace,
    assigned: Vec<ClusterAddress>,
    directory: Directory,
    /// Foreign objects that have one of our names, as they were last seen.
    foreign: BTreeSet<(ObjectKind, String)>,
    is_failing: bool,
}

/// The result of one synchronization.
#[derive(Debug, Default)]
struct SyncResult {
    /// The number of clusters that are Services.
    published: usize,
    foreign: BTreeSet<(ObjectKind, String)>,
    /// The first error that left an object unlike it should be.
    lacking: Option<PublishError>,
}

/// The result of one action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ActionResult {
    /// The object is as it should be.
    Done,
    /// A foreign object has that name.
    Foreign,
    /// The object needs another synchronization.
    Unsettled,
}

/// The reason why not every object is as it should be.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error("the host cluster's API server cannot be asked")]
    HostApiError(#[from] HostApiError),
    #[error("{0} was changed by another client meanwhile, or must be recreated")]
    Unsettled(String),
    #[error("the host cluster's API server refuses to {action} {what}: {status}, {reason}")]
    Refused { action: &'static str, what: String, status: StatusCode, reason: String },
}

impl Publisher {
    pub(super) fn new(at: HostNamespace, assigned: Vec<ClusterAddress>, directory: Directory) -> Self {
        Self { at, assigned, directory, foreign: BTreeSet::new(), is_failing: false }
    }

    /// Keeps the objects in step until the drain.
    pub(super) async fn run(mut self, scope: Scope) {
        let mut changes = self.directory.changes();
        let mut pause = SYNC_GAP;
        let keep = async {
            loop {
                changes.mark_unchanged();
                let result = self.sync().await;
                if self.report(result) {
                    pause = SYNC_GAP;
                    sleep(SYNC_GAP).await;
                    // Both a timeout and a change lead to the next synchronization.
                    let _ = timeout(SYNC_INTERVAL - SYNC_GAP, changes.changed()).await;
                } else {
                    sleep(pause).await;
                    pause = (pause * 2).min(SYNC_INTERVAL);
                }
            }
        };
        // Both arms are cancel-safe: the next process completes an interrupted synchronization.
        tokio::select! {
            () = scope.draining() => {}
            () = keep => {}
        }
    }

    /// Brings the objects in step with the directory, as far as possible.
    async fn sync(&self) -> Result<SyncResult, PublishError> {
        let mut result = SyncResult::default();
        let (services, slices) = (self.list(ObjectKind::Service).await?, self.list(ObjectKind::Slice).await?);
        let wanted = self.wanted(ObjectKind::Service);
        let (unwanted, actions): (Vec<_>, Vec<_>) =
            plan(&services, &wanted).into_iter().partition(|action| matches!(action, SyncAction::Remove(_)));
        let lacking = self.apply_all(ObjectKind::Service, actions, &mut result).await?;
        let mut wanted = self.wanted(ObjectKind::Slice);
        // A slice of ours beside a foreign Service would redirect that Service's clients here.
        wanted.retain(|name, _| !result.foreign.contains(&(ObjectKind::Service, name.clone())));
        let actions = plan(&slices, &wanted).into_iter().filter(|action| {
            // While a Service is not in step, its existing slice stays.
            !lacking.contains(action.name()) || matches!(action, SyncAction::Remove(_))
        });
        let mut lacking_too = self.apply_all(ObjectKind::Slice, actions.collect(), &mut result).await?;
        lacking_too.extend(lacking);
        result.published = wanted.keys().filter(|name| !lacking_too.contains(*name)).count();
        self.apply_all(ObjectKind::Service, unwanted, &mut result).await?;
        Ok(result)
    }

    /// The objects that should exist, by name.
    fn wanted(&self, kind: ObjectKind) -> BTreeMap<String, Value> {
        let is_known = |assigned: &&ClusterAddress| {
            self.directory.record(&assigned.cluster).is_some_and(|record| record.tombstone.is_none())
        };
        let object = |ClusterAddress { cluster, address, .. }: &ClusterAddress| {
            (cluster.to_string(), kind.object(&self.at.server, cluster.as_str(), *address))
        };
        self.assigned.iter().filter(is_known).map(object).collect()
    }

    /// Performs all actions, even if some fail. Returns the names of objects that are not as they should be.
    async fn apply_all(
        &self,
        kind: ObjectKind,
        actions: Vec<SyncAction>,
        result: &mut SyncResult,
    ) -> Result<BTreeSet<String>, PublishError> {
        let mut lacking = BTreeSet::new();
        for action in actions {
            let name = action.name().to_owned();
            match self.apply(kind, action).await {
                Ok(ActionResult::Done) => continue,
                Ok(ActionResult::Unsettled) => {
                    let what = format!("{} {name}", kind.as_str());
                    result.lacking.get_or_insert(PublishError::Unsettled(what));
                }
                Ok(ActionResult::Foreign) => {
                    result.foreign.insert((kind, name.clone()));
                }
                Err(away @ PublishError::HostApiError(_)) => return Err(away),
                Err(lacking @ (PublishError::Refused { .. } | PublishError::Unsettled(_))) => {
                    result.lacking.get_or_insert(lacking);
                }
            }
            lacking.insert(name);
        }
        Ok(lacking)
    }

    async fn apply(&self, kind: ObjectKind, action: SyncAction) -> Result<ActionResult, PublishError> {
        let (word, name, all) = (kind.as_str(), action.name().to_owned(), kind.path(&self.at.name));
        let one = format!("{all}/{name}");
        match action {
            SyncAction::Create(object) => {
                let path = format!("{all}?fieldManager={FIELD_MANAGER}");
                let (status, answer) = self.send(Method::POST, &path, JSON, &object).await?;
                match status {
                    // A create succeeds only if the name is free.
                    StatusCode::CONFLICT => return Ok(ActionResult::Foreign),
                    status if status.is_success() => {}
                    status => return Err(refused("create", kind, &name, status, &answer)),
                }
                info!(kind = word, name, namespace = self.at.name, "made in the host cluster");
            }
            SyncAction::Apply(object) => {
                let path = format!("{one}?fieldManager={FIELD_MANAGER}&force=true");
                let (status, answer) = self.send(Method::PATCH, &path, APPLY, &object).await?;
                match status {
                    // The UID shows that another object has that name now.
                    StatusCode::CONFLICT => return Ok(ActionResult::Unsettled),
                    StatusCode::UNPROCESSABLE_ENTITY => return self.recreate(kind, &name, &object).await,
                    status if !status.is_success() => {
                        return Err(refused("change", kind, &name, status, &answer));
                    }
                    _ if !matches_wanted(&answer, &object) => {
                        return self.recreate(kind, &name, &object).await;
                    }
                    _ => info!(kind = word, name, namespace = self.at.name, "changed in the host cluster"),
                }
            }
            SyncAction::Remove(marks) => return self.remove(kind, &marks).await,
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
    ) -> Result<ActionResult, PublishError> {
        let path = format!("{}/{name}", kind.path(&self.at.name));
        let (_, found) = self.at.api.exchange(Method::GET, &path, None, ANSWER_BYTES_MAX).await?;
        match ObjectRef::from_object(&found) {
            Some(marks) if object["metadata"]["uid"] == marks.uid && is_ours(&found, &self.at.server) => {
                self.remove(kind, &marks).await?;
            }
            Some(_) | None => {}
        }
        Ok(ActionResult::Unsettled)
    }

    async fn remove(&self, kind: ObjectKind, marks: &ObjectRef) -> Result<ActionResult, PublishError> {
        let ObjectRef { name, uid, resource_version } = marks;
        let path = format!("{}/{name}", kind.path(&self.at.name));
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": { "uid": uid, "resourceVersion": resource_version },
        });
        let (status, answer) = self.send(Method::DELETE, &path, JSON, &options).await?;
        match status {
            StatusCode::NOT_FOUND => {}
            // The object was changed meanwhile, and may be foreign now.
            StatusCode::CONFLICT => return Ok(ActionResult::Unsettled),
            status if !status.is_success() => return Err(refused("remove", kind, name, status, &answer)),
            _ => info!(kind = kind.as_str(), name, namespace = self.at.name, "removed from the host cluster"),
        }
        Ok(ActionResult::Done)
    }

    /// Lists the objects with our labels.
    async fn list(&self, kind: ObjectKind) -> Result<Vec<Value>, PublishError> {
        let path = format!("{}{}", kind.path(&self.at.name), selector(&self.at.server));
        let (status, mut answer) = self.at.api.exchange(Method::GET, &path, None, LIST_BYTES_MAX).await?;
        if !status.is_success() {
            return Err(refused("list", kind, "*", status, &answer));
        }
        match answer["items"].take() {
            Value::Array(items) => Ok(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                Err(HostApiError::Shape.into())
            }
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        form: &'static str,
        object: &Value,
    ) -> Result<(StatusCode, Value), HostApiError> {
        self.at.api.exchange(method, path, Some((form, object)), ANSWER_BYTES_MAX).await
    }

    /// Logs each problem once, updates metrics, and returns whether everything is in step.
    fn report(&mut self, result: Result<SyncResult, PublishError>) -> bool {
        let SyncResult { published, foreign, lacking } = result.unwrap_or_else(|away| SyncResult {
            foreign: self.foreign.clone(),
            lacking: Some(away),
            ..SyncResult::default()
        });
        for (kind, name) in foreign.difference(&self.foreign) {
            warn!(
                kind = kind.as_str(),
                name,
                namespace = self.at.name,
                "the host cluster has an object of this name that is not this server's, and it is left alone: the cluster is no \
                 Service there until it is gone"
            );
        }
        let was_failing = std::mem::replace(&mut self.is_failing, lacking.is_some());
        match &lacking {
            Some(error) => {
                metrics::publishing_failed();
                if !was_failing {
                    warn!(error = %error_chain(error), "not all Services of clusters could be kept, trying again");
                }
            }
            None => {
                metrics::published(published, foreign.len());
                if was_failing {
                    info!("all Services of clusters are kept again");
                }
            }
        }
        self.foreign = foreign;
        lacking.is_none()
    }
}

impl SyncAction {
    fn name(&self) -> &str {
        match self {
            Self::Create(object) | Self::Apply(object) => {
                object["metadata"]["name"].as_str().unwrap_or_default()
            }
            Self::Remove(marks) => &marks.name,
        }
    }
}

/// The content type of a server-side apply. JSON is valid YAML.
const APPLY: &str = "application/apply-patch+yaml";

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
