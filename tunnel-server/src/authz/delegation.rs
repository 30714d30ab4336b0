//! Delegated authorization: another cluster is asked by a SubjectAccessReview about each request that the
//! policy allows. It can only deny.
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

/// The time for which a decision of the cluster is cached, whether it allows or denies.
pub const DECISION_TTL: Duration = Duration::from_secs(10);

const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// The resource of the access review. It is a resource of ours and never the one at the edge, because rights
/// on the delegated cluster are not rights on every edge.
const GROUP: &str = "access.tombolo.dev";
const RESOURCE: &str = "clusters";

/// The cluster that is asked about requests, if one is configured. Clones share its cache.
#[derive(Clone, Default)]
pub struct Delegation(Option<Arc<SharedDelegation>>);

struct SharedDelegation {
    reviews: ReviewCache<TimedDecision>,
    /// True if this cluster also reviews callers' tokens. It then knows those callers by names of its own.
    is_reviewer: bool,
}

/// An access review of one caller, one cluster and one verb.
#[derive(Clone)]
pub(crate) struct AccessReview(Arc<ReviewSpec>);

struct ReviewSpec {
    key: ReviewKey,
    spec: Value,
}

/// The decision of the delegated cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReviewDecision {
    /// The cluster allows the request.
    Allowed,
    /// The cluster denies the request.
    Denied,
    /// The cluster cannot be reached, or its answer is not valid.
    Unavailable,
}

/// A decision, and the time when it was made.
#[derive(Debug, Clone, Copy)]
struct TimedDecision {
    at: Instant,
    decision: ReviewDecision,
}

/// The reason why the delegation does not permit what the policy allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotDelegated {
    /// The cluster denies the request, which is answered with 403.
    #[error(
        "{user:?} may not {verb} by the access rules of the cluster that this server asks, though the server's own policy allows \
         it: ask who runs that cluster for a rule with the verb {verb} for {RESOURCE}/{mode} of {GROUP} by the name {cluster}"
    )]
    Forbidden {
        /// The name of the caller.
        user: String,
        /// The verb of the request.
        verb: &'static str,
        /// The policy mode of the request.
        mode: &'static str,
        /// The cluster that the request is for.
        cluster: ClusterId,
    },
    /// The cluster does not answer, so the request is answered with 503.
    #[error(
        "this server cannot decide whether this is allowed, because the cluster that it asks does not answer: try again"
    )]
    Away,
}

impl Delegation {
    /// Creates a delegation to `api`, which runs its tasks in `scope`. If `is_reviewer`, callers whose tokens
    /// this cluster reviewed are identified by the names that it gave them. All others are identified by the
    /// names that the policy knows.
    #[must_use]
    pub fn new(api: Arc<HostApi>, is_reviewer: bool, scope: Scope) -> Self {
        let reviews = ReviewCache::new(api, PATH, "policy.delegation".to_owned(), scope);
        Self(Some(Arc::new(SharedDelegation { reviews, is_reviewer })))
    }

    /// Turns what the policy allows into a permit, unless the delegated cluster denies it.
    ///
    /// # Errors
    ///
    /// [`NotDelegated`] if the cluster denies the request or does not answer.
    pub async fn grant<W: Allowable>(&self, Allowed(permit): Allowed<W>) -> Result<Permit<W>, NotDelegated> {
        let Some(inner) = &self.0 else { return Ok(permit) };
        let (caller, what) = (&permit.caller, &permit.what);
        let review = AccessReview::new(caller, what, inner.is_reviewer);
        match inner.decision(&review).await {
            ReviewDecision::Allowed => Ok(Permit { review: Some(review), ..permit }),
            ReviewDecision::Denied => {
                let (verb, mode, cluster) = (what.verb(), what.mode(), what.cluster().clone());
                debug!(%cluster, verb, mode, "the delegated cluster denies a request");
                Err(NotDelegated::Forbidden { user: caller.user().to_owned(), verb, mode, cluster })
            }
            ReviewDecision::Unavailable => Err(NotDelegated::Away),
        }
    }

    /// The cluster's decision, which is at most [`DECISION_TTL`] old. Allowed if no delegation is configured.
    pub(crate) async fn decision(&self, review: &AccessReview) -> ReviewDecision {
        match &self.0 {
            Some(inner) => inner.decision(review).await,
            None => ReviewDecision::Allowed,
        }
    }
}

impl SharedDelegation {
    async fn decision(&self, review: &AccessReview) -> ReviewDecision {
        let object = || {
            json!({
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": review.0.spec,
            })
        };
        self.reviews.answer(&review.0.key, object, TimedDecision::from_status).await.decision
    }
}

impl AccessReview {
    fn new(caller: &Caller, what: &impl Allowable, is_reviewer: bool) -> Self {
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
        Self(Arc::new(ReviewSpec { key, spec }))
    }
}

impl TimedDecision {
    /// Reads the `status` of a SubjectAccessReview. Anything but a clear yes or no counts as unavailable.
    fn from_status(status: &Value) -> Self {
        let decision = match (status.get("allowed"), status.get("denied")) {
            (Some(Value::Bool(true)), None | Some(Value::Bool(false))) => ReviewDecision::Allowed,
            (Some(Value::Bool(_)), None | Some(Value::Bool(_))) => ReviewDecision::Denied,
            _ => ReviewDecision::Unavailable,
        };
        Self { at: Instant::now(), decision }
    }
}

impl CachedReview for TimedDecision {
    fn unreachable() -> Self {
        Self { at: Instant::now(), decision: ReviewDecision::Unavailable }
    }

    fn at(&self) -> Instant {
        self.at
    }

    fn until(&self) -> Instant {
        self.at
            + match self.decision {
                ReviewDecision::Allowed | ReviewDecision::Denied => DECISION_TTL,
                ReviewDecision::Unavailable => UNREACHABLE_FOR,
            }
    }

    fn is_yes(&self) -> bool {
        self.decision == ReviewDecision::Allowed
    }
}

impl PartialEq for AccessReview {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for AccessReview {}

impl Hash for AccessReview {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

impl fmt::Debug for AccessReview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessReview")
            .field("spec", &self.0.spec["resourceAttributes"])
            .finish_non_exhaustive()
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
    use crate::authz::Dial;

    #[test]
    fn only_a_clear_yes_allows() {
        for (status, decision) in [
            (json!({ "allowed": true }), ReviewDecision::Allowed),
            (
                json!({ "allowed": true, "denied": false, "evaluationError": "a role is missing" }),
                ReviewDecision::Allowed,
            ),
            (json!({ "allowed": true, "denied": true }), ReviewDecision::Denied),
            (json!({ "allowed": false }), ReviewDecision::Denied),
            (json!({ "allowed": false, "denied": true }), ReviewDecision::Denied),
            (json!({ "allowed": "true" }), ReviewDecision::Unavailable),
            (json!({ "allowed": 1 }), ReviewDecision::Unavailable),
            (json!({ "allowed": true, "denied": "false" }), ReviewDecision::Unavailable),
            (json!({ "allowed": true, "denied": null }), ReviewDecision::Unavailable),
            (json!({}), ReviewDecision::Unavailable),
            (Value::Null, ReviewDecision::Unavailable),
        ] {
            assert_eq!(TimedDecision::from_status(&status).decision, decision, "{status}");
        }
    }

    /// It differs with caller, groups, cluster, verb and mode.
    #[test]
    fn an_access_review_is_about_our_resource_and_unique_per_request() {
        let action = |method, cluster: &str| {
            Action::of_cluster(cluster.parse().unwrap(), &method, "/api/v1/pods", None).unwrap()
        };
        let of = |user: &str, groups: &[&str], method, cluster| {
            AccessReview::new(&Caller::for_test(user, groups), &action(method, cluster), true)
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
        let dialing = AccessReview::new(&Caller::for_test("ann", &["ops"]), &dial, true);
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
