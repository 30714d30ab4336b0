//! A second opinion: whether another cluster lets a caller do what policy allows (SubjectAccessReview). It never allows more.
//! <https://kubernetes.io/docs/reference/kubernetes-api/authorization-resources/subject-access-review-v1/>

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use daemon::Scope;
use proto::ClusterId;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::debug;

use super::{Allowable, Allowed, Permit};
use crate::identity::review_cache::{CachedReview, ReviewCache, ReviewKey, UNREACHABLE_FOR};
use crate::identity::{Caller, HostApi};

/// How long an answer counts, a yes as well as a no.
pub const OPINION_FOR: Duration = Duration::from_secs(10);

const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// What is asked for: a resource of ours, never the one at the edge, because rights on that cluster are not rights on every
/// edge.
const GROUP: &str = "access.tombolo.dev";
const RESOURCE: &str = "clusters";

/// Whom else to ask, if anybody. Clones are the same.
#[derive(Clone, Default)]
pub struct Delegation(Option<Arc<Inner>>);

struct Inner {
    opinions: ReviewCache<Given>,
    /// Whether it is the cluster that reviews callers' tokens, and so knows these callers by names of its own.
    is_reviewer: bool,
}

/// What is asked about one caller, one cluster and one verb.
#[derive(Clone)]
pub(crate) struct Question(Arc<Asked>);

struct Asked {
    key: ReviewKey,
    spec: Value,
}

/// What the cluster says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opinion {
    /// Yes.
    Yes,
    /// No.
    No,
    /// Nothing.
    Away,
}

/// An opinion, and when it was given.
#[derive(Debug, Clone, Copy)]
struct Given {
    at: Instant,
    opinion: Opinion,
}

/// Why what policy allows is not permitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotDelegated {
    /// 403.
    #[error(
        "{user:?} may not {verb} by the access rules of the cluster that this server asks, though the server's own policy allows \
         it: ask who runs that cluster for a rule with the verb {verb} for {RESOURCE}/{mode} of {GROUP} by the name {cluster}"
    )]
    Forbidden {
        /// Who asked.
        user: String,
        /// For what.
        verb: &'static str,
        /// By which way.
        mode: &'static str,
        /// Of which cluster.
        cluster: ClusterId,
    },
    /// 503.
    #[error(
        "it cannot be told whether this is allowed, because the cluster that this server asks about it does not answer: try \
         again"
    )]
    Away,
}

impl Delegation {
    /// Asks `api`, by tasks of `scope`. If `is_reviewer`, callers whose tokens it reviewed are asked about by the names that it
    /// gave them; all others by those that policy knows.
    #[must_use]
    pub fn to(api: Arc<HostApi>, is_reviewer: bool, scope: Scope) -> Self {
        let opinions = ReviewCache::new(api, PATH, "policy.delegation".to_owned(), scope);
        Self(Some(Arc::new(Inner { opinions, is_reviewer })))
    }

    /// The permit for what policy allows, if nobody is to be asked or who is says yes.
    ///
    /// # Errors
    ///
    /// It is refused there, or nobody answers.
    pub async fn grant<W: Allowable>(&self, Allowed(permit): Allowed<W>) -> Result<Permit<W>, NotDelegated> {
        let Some(inner) = &self.0 else { return Ok(permit) };
        let (caller, what) = (&permit.caller, &permit.what);
        let question = Question::of(caller, what, inner.is_reviewer);
        match inner.opinion(&question).await {
            Opinion::Yes => Ok(Permit { question: Some(question), ..permit }),
            Opinion::No => {
                let (verb, mode, cluster) = (what.verb(), what.mode(), what.cluster().clone());
                debug!(%cluster, verb, mode, "the cluster that is asked forbids it");
                Err(NotDelegated::Forbidden { user: caller.user().to_owned(), verb, mode, cluster })
            }
            Opinion::Away => Err(NotDelegated::Away),
        }
    }

    /// What the cluster says now, by an answer no older than [`OPINION_FOR`]. Yes, where nobody is to be asked.
    pub(crate) async fn opinion(&self, question: &Question) -> Opinion {
        match &self.0 {
            Some(inner) => inner.opinion(question).await,
            None => Opinion::Yes,
        }
    }
}

impl Inner {
    async fn opinion(&self, question: &Question) -> Opinion {
        let object = || {
            json!({
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": question.0.spec,
            })
        };
        self.opinions.answer(&question.0.key, object, Given::of).await.opinion
    }
}

impl Question {
    fn of(caller: &Caller, what: &impl Allowable, is_reviewer: bool) -> Self {
        let reviewed = caller.reviewed().filter(|_| is_reviewer);
        let mut spec = reviewed.map_or_else(
            || json!({ "user": caller.user(), "groups": caller.groups() }),
            |reviewed| reviewed.subject().clone(),
        );
        spec["resourceAttributes"] = json!({
            "group": GROUP,
            "resource": RESOURCE,
            "subresource": what.mode(),
            "name": what.cluster().as_str(),
            "verb": what.verb(),
        });
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, spec.to_string().as_bytes()).as_ref());
        Self(Arc::new(Asked { key, spec }))
    }
}

impl Given {
    /// What the `status` of a SubjectAccessReview says. What is neither a yes nor a no is none.
    fn of(status: &Value) -> Self {
        let opinion = match (status.get("allowed"), status.get("denied")) {
            (Some(Value::Bool(true)), None | Some(Value::Bool(false))) => Opinion::Yes,
            (Some(Value::Bool(_)), None | Some(Value::Bool(_))) => Opinion::No,
            _ => Opinion::Away,
        };
        Self { at: Instant::now(), opinion }
    }
}

impl CachedReview for Given {
    fn unreachable() -> Self {
        Self { at: Instant::now(), opinion: Opinion::Away }
    }

    fn at(&self) -> Instant {
        self.at
    }

    fn until(&self) -> Instant {
        self.at
            + match self.opinion {
                Opinion::Yes | Opinion::No => OPINION_FOR,
                Opinion::Away => UNREACHABLE_FOR,
            }
    }

    fn is_yes(&self) -> bool {
        self.opinion == Opinion::Yes
    }
}

impl PartialEq for Question {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for Question {}

impl Hash for Question {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").field("spec", &self.0.spec["resourceAttributes"]).finish_non_exhaustive()
    }
}

impl fmt::Debug for Delegation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Delegation").field(&self.0.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use policy::Target;
    use policy::action::Action;

    use super::*;
    use crate::permit::Dial;

    #[test]
    fn only_a_plain_yes_is_one() {
        for (status, opinion) in [
            (json!({ "allowed": true }), Opinion::Yes),
            (
                json!({ "allowed": true, "denied": false, "evaluationError": "a role is missing" }),
                Opinion::Yes,
            ),
            (json!({ "allowed": true, "denied": true }), Opinion::No),
            (json!({ "allowed": false }), Opinion::No),
            (json!({ "allowed": false, "denied": true }), Opinion::No),
            (json!({ "allowed": "true" }), Opinion::Away),
            (json!({ "allowed": 1 }), Opinion::Away),
            (json!({ "allowed": true, "denied": "false" }), Opinion::Away),
            (json!({ "allowed": true, "denied": null }), Opinion::Away),
            (json!({}), Opinion::Away),
            (Value::Null, Opinion::Away),
        ] {
            assert_eq!(Given::of(&status).opinion, opinion, "{status}");
        }
    }

    #[test]
    fn a_question_is_about_our_own_resource_and_differs_with_caller_groups_cluster_verb_and_way() {
        let action = |method, cluster: &str| {
            Action::of_cluster(cluster.parse().unwrap(), &method, "/api/v1/pods", None).unwrap()
        };
        let of = |user: &str, groups: &[&str], method, cluster| {
            Question::of(&Caller::for_test(user, groups), &action(method, cluster), true)
        };
        let asked = of("ann", &["ops"], Method::GET, "edge-a");
        assert_eq!(
            asked.0.spec,
            json!({ "user": "ann", "groups": ["ops"], "resourceAttributes": {
                "group": "access.tombolo.dev", "resource": "clusters", "subresource": "kube-api", "name": "edge-a",
                "verb": "list",
            } })
        );
        assert_eq!(asked, of("ann", &["ops"], Method::GET, "edge-a"));
        let target: Target = "db.internal:5432".parse().unwrap();
        let dial = Dial { cluster: "edge-a".parse().unwrap(), target };
        let dialing = Question::of(&Caller::for_test("ann", &["ops"]), &dial, true);
        assert_eq!(dialing.0.spec["resourceAttributes"]["subresource"], "dial");
        for other in [
            of("ben", &["ops"], Method::GET, "edge-a"),
            of("ann", &[], Method::GET, "edge-a"),
            of("ann", &["ops"], Method::POST, "edge-a"),
            of("ann", &["ops"], Method::GET, "edge-b"),
            dialing,
        ] {
            assert_ne!(asked, other, "{other:?}");
        }
    }
}
