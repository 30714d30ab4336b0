//! Clusters' addresses in a host cluster: each cluster that was given one is a Service there, as long as the server knows it.
//!
//! What is not ours is never touched: an object is made only where there is none of its name, and changed or removed only as the one
//! that was seen with our labels. What is ours stays when the server ends, so that a restart makes no gap.

mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use daemon::{Scope, chain};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::given::Given;
use crate::directory::Directory;
use crate::identity::{ANSWER_BYTES_MAX, HostApi, HostApiError, JSON};
use crate::metrics;
use objects::{Act, Kind, MANAGER, Marks, is_as, is_ours, plan, selector};

/// How often it is looked whether everything is as it was made.
pub const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Between two looks at least, so that many changes are one; and behind a look that failed, twice as long each time up to
/// [`LOOK_EVERY`].
pub const LOOK_GAP: Duration = Duration::from_secs(1);

/// Largest list of objects, in bytes: a thousand and to spare.
pub const LISTED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Longest reason of the API server's that is logged, in characters.
const REASON_CHARS_MAX: usize = 300;

/// A namespace of a host cluster, and who writes there.
pub struct HostNamespace {
    /// Whom to ask.
    pub api: Arc<HostApi>,
    /// The namespace.
    pub name: String,
    /// What this server is called among its like.
    pub server: String,
}

/// Who keeps Services for addresses.
pub(super) struct Publisher {
    at: HostNamespace,
    given: Vec<Given>,
    directory: Directory,
    /// Objects with names of ours that are somebody else's, as they were last seen.
    foreign: BTreeSet<(Kind, String)>,
    is_failing: bool,
}

/// What came of a look.
#[derive(Debug, Default)]
struct Looked {
    /// Clusters that are Services.
    published: usize,
    foreign: BTreeSet<(Kind, String)>,
    /// The first thing that is not as it is wanted.
    lacking: Option<NotPublished>,
}

/// What came of one act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    /// It is as it was wanted.
    Kept,
    /// Somebody else has an object of that name.
    Foreign,
    /// Another look is needed.
    Unsettled,
}

/// Why not everything is as it is wanted.
#[derive(Debug, thiserror::Error)]
enum NotPublished {
    #[error("the host cluster's API server cannot be asked")]
    HostApiError(#[from] HostApiError),
    #[error("{0} was changed by somebody else meanwhile, or has to be made anew")]
    Unsettled(String),
    #[error("the host cluster's API server refuses to {act} {what}: {status}, {reason}")]
    Refused { act: &'static str, what: String, status: StatusCode, reason: String },
}

impl Publisher {
    pub(super) fn new(at: HostNamespace, given: Vec<Given>, directory: Directory) -> Self {
        Self { at, given, directory, foreign: BTreeSet::new(), is_failing: false }
    }

    /// Keeps them until the drain.
    pub(super) async fn run(mut self, scope: Scope) {
        let mut changes = self.directory.changes();
        let mut pause = LOOK_GAP;
        let keep = async {
            loop {
                changes.mark_unchanged();
                let looked = self.look().await;
                if self.tell(looked) {
                    pause = LOOK_GAP;
                    sleep(LOOK_GAP).await;
                    // Late, or changed: both are a reason to look.
                    let _ = timeout(LOOK_EVERY - LOOK_GAP, changes.changed()).await;
                } else {
                    sleep(pause).await;
                    pause = (pause * 2).min(LOOK_EVERY);
                }
            }
        };
        // Both arms are cancel-safe: what a look has not done the next process does.
        tokio::select! {
            () = scope.draining() => {}
            () = keep => {}
        }
    }

    /// Makes everything as it is wanted, as far as that can be done.
    async fn look(&self) -> Result<Looked, NotPublished> {
        let mut looked = Looked::default();
        let (services, slices) = (self.list(Kind::Service).await?, self.list(Kind::Slice).await?);
        let wanted = self.wanted(Kind::Service);
        let (unwanted, acts): (Vec<_>, Vec<_>) =
            plan(&services, &wanted).into_iter().partition(|act| matches!(act, Act::Remove(_)));
        let lacking = self.perform_all(Kind::Service, acts, &mut looked).await?;
        let mut wanted = self.wanted(Kind::Slice);
        // Where somebody else's Service stands, a slice of ours would lead its callers here.
        wanted.retain(|name, _| !looked.foreign.contains(&(Kind::Service, name.clone())));
        let acts = plan(&slices, &wanted).into_iter().filter(|act| {
            // Where the Service is not settled, what there is of a slice stays.
            !lacking.contains(act.name()) || matches!(act, Act::Remove(_))
        });
        let mut lacking_too = self.perform_all(Kind::Slice, acts.collect(), &mut looked).await?;
        lacking_too.extend(lacking);
        looked.published = wanted.keys().filter(|name| !lacking_too.contains(*name)).count();
        self.perform_all(Kind::Service, unwanted, &mut looked).await?;
        Ok(looked)
    }

    /// The objects of clusters that the server knows.
    fn wanted(&self, kind: Kind) -> BTreeMap<String, Value> {
        let is_known = |given: &&Given| {
            self.directory.record(&given.cluster).is_some_and(|record| record.tombstone.is_none())
        };
        let object = |Given { cluster, address, .. }: &Given| {
            (cluster.to_string(), kind.object(&self.at.server, cluster.as_str(), *address))
        };
        self.given.iter().filter(is_known).map(object).collect()
    }

    /// Does all of it, whatever becomes of each; the names of those that are not as they are wanted.
    async fn perform_all(
        &self,
        kind: Kind,
        acts: Vec<Act>,
        looked: &mut Looked,
    ) -> Result<BTreeSet<String>, NotPublished> {
        let mut lacking = BTreeSet::new();
        for act in acts {
            let name = act.name().to_owned();
            match self.perform(kind, act).await {
                Ok(Done::Kept) => continue,
                Ok(Done::Unsettled) => {
                    let what = format!("{} {name}", kind.word());
                    looked.lacking.get_or_insert(NotPublished::Unsettled(what));
                }
                Ok(Done::Foreign) => {
                    looked.foreign.insert((kind, name.clone()));
                }
                Err(away @ NotPublished::HostApiError(_)) => return Err(away),
                Err(lacking @ (NotPublished::Refused { .. } | NotPublished::Unsettled(_))) => {
                    looked.lacking.get_or_insert(lacking);
                }
            }
            lacking.insert(name);
        }
        Ok(lacking)
    }

    async fn perform(&self, kind: Kind, act: Act) -> Result<Done, NotPublished> {
        let (word, name, all) = (kind.word(), act.name().to_owned(), kind.path(&self.at.name));
        let one = format!("{all}/{name}");
        match act {
            Act::Create(object) => {
                let path = format!("{all}?fieldManager={MANAGER}");
                let (status, answer) = self.send(Method::POST, &path, JSON, &object).await?;
                match status {
                    // Only if there is none of this name.
                    StatusCode::CONFLICT => return Ok(Done::Foreign),
                    status if status.is_success() => {}
                    status => return Err(refused("create", kind, &name, status, &answer)),
                }
                info!(kind = word, name, namespace = self.at.name, "made in the host cluster");
            }
            Act::Apply(object) => {
                let path = format!("{one}?fieldManager={MANAGER}&force=true");
                let (status, answer) = self.send(Method::PATCH, &path, APPLY, &object).await?;
                match status {
                    // Another object has that name by now, by its UID.
                    StatusCode::CONFLICT => return Ok(Done::Unsettled),
                    StatusCode::UNPROCESSABLE_ENTITY => return self.make_anew(kind, &name, &object).await,
                    status if !status.is_success() => {
                        return Err(refused("change", kind, &name, status, &answer));
                    }
                    _ if !is_as(&answer, &object) => return self.make_anew(kind, &name, &object).await,
                    _ => info!(kind = word, name, namespace = self.at.name, "changed in the host cluster"),
                }
            }
            Act::Remove(marks) => return self.remove(kind, &marks).await,
        }
        Ok(Done::Kept)
    }

    /// Removes what cannot become what is wanted, such as a slice of the other family: the next look makes it.
    async fn make_anew(&self, kind: Kind, name: &str, object: &Value) -> Result<Done, NotPublished> {
        let path = format!("{}/{name}", kind.path(&self.at.name));
        let (_, found) = self.at.api.exchange(Method::GET, &path, None, ANSWER_BYTES_MAX).await?;
        match Marks::of(&found) {
            Some(marks) if object["metadata"]["uid"] == marks.uid && is_ours(&found, &self.at.server) => {
                self.remove(kind, &marks).await?;
            }
            Some(_) | None => {}
        }
        Ok(Done::Unsettled)
    }

    async fn remove(&self, kind: Kind, marks: &Marks) -> Result<Done, NotPublished> {
        let Marks { name, uid, resource_version } = marks;
        let path = format!("{}/{name}", kind.path(&self.at.name));
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": { "uid": uid, "resourceVersion": resource_version },
        });
        let (status, answer) = self.send(Method::DELETE, &path, JSON, &options).await?;
        match status {
            StatusCode::NOT_FOUND => {}
            // It was changed meanwhile, and may be somebody else's.
            StatusCode::CONFLICT => return Ok(Done::Unsettled),
            status if !status.is_success() => return Err(refused("remove", kind, name, status, &answer)),
            _ => info!(kind = kind.word(), name, namespace = self.at.name, "removed from the host cluster"),
        }
        Ok(Done::Kept)
    }

    /// All that are ours.
    async fn list(&self, kind: Kind) -> Result<Vec<Value>, NotPublished> {
        let path = format!("{}{}", kind.path(&self.at.name), selector(&self.at.server));
        let (status, mut answer) = self.at.api.exchange(Method::GET, &path, None, LISTED_BYTES_MAX).await?;
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

    /// Says what came of a look, each thing once; whether all is well.
    fn tell(&mut self, looked: Result<Looked, NotPublished>) -> bool {
        let Looked { published, foreign, lacking } = looked.unwrap_or_else(|away| Looked {
            foreign: self.foreign.clone(),
            lacking: Some(away),
            ..Looked::default()
        });
        for (kind, name) in foreign.difference(&self.foreign) {
            warn!(
                kind = kind.word(),
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
                    warn!(error = %chain(error), "Services of clusters are not all as they should be, and it is tried again");
                }
            }
            None => {
                metrics::published(published, foreign.len());
                if was_failing {
                    info!("Services of clusters can be kept again");
                }
            }
        }
        self.foreign = foreign;
        lacking.is_none()
    }
}

impl Act {
    fn name(&self) -> &str {
        match self {
            Self::Create(object) | Self::Apply(object) => {
                object["metadata"]["name"].as_str().unwrap_or_default()
            }
            Self::Remove(marks) => &marks.name,
        }
    }
}

/// How objects are written where they say what is ours of one (JSON is YAML).
const APPLY: &str = "application/apply-patch+yaml";

fn refused(act: &'static str, kind: Kind, name: &str, status: StatusCode, answer: &Value) -> NotPublished {
    let reason = answer["message"].as_str().unwrap_or("without a reason");
    let reason = reason.chars().take(REASON_CHARS_MAX).collect();
    NotPublished::Refused { act, what: format!("{} {name}", kind.word()), status, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_logged_to_its_longest_and_no_further() {
        for (chars, logged) in
            [(REASON_CHARS_MAX, REASON_CHARS_MAX), (REASON_CHARS_MAX + 1, REASON_CHARS_MAX)]
        {
            let answer = json!({ "message": "ö".repeat(chars) });
            let said = refused("list", Kind::Slice, "*", StatusCode::FORBIDDEN, &answer).to_string();
            assert_eq!(said.matches('ö').count(), logged, "{said}");
            assert!(said.contains("list EndpointSlice *: 403 Forbidden"), "{said}");
        }
    }
}
