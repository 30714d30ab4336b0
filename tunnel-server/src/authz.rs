//! The policy in force, and the proof that it allowed a request. Only this room makes a [`Permit`].

use std::fmt;
use std::sync::Arc;

use policy::action::Action;
use policy::{ClusterFacts, Principal, Request, Rules, Target, Verdict};
use proto::ClusterId;
use proto::wire::Assert;
use tokio::sync::watch;

use crate::identity::Caller;

mod delegation;
mod policy_file;

pub(crate) use delegation::{AccessReview, ReviewDecision};
pub use delegation::{DECISION_TTL, Delegation, NotDelegated};
pub(crate) use policy_file::PolicyFile;
pub use policy_file::PolicyFileError;

/// The policy in force. Clones share one policy.
#[derive(Debug, Clone)]
pub struct Policy(Arc<watch::Sender<Arc<PolicySnapshot>>>);

/// The rules of a policy as they were at one time.
#[derive(Debug)]
pub struct PolicySnapshot {
    rules: Rules,
    generation: u64,
}

/// A request that the policy allows. It becomes a [`Permit`] unless the delegation refuses it. Only
/// [`PolicySnapshot::authorize`] and [`PolicySnapshot::authorize_dial`] make one.
#[derive(Debug)]
#[must_use = "what the policy allows is no permit yet"]
pub struct Allowed<W = Action>(Permit<W>);

/// Proof that the policy, and the delegated cluster if there is one, allowed this request of this caller.
/// Only [`Delegation::grant`] makes one.
#[derive(Debug, Clone)]
#[must_use = "a permit that goes nowhere allows nothing"]
pub struct Permit<W = Action> {
    caller: Caller,
    assumed: Option<Assert>,
    what: W,
    generation: u64,
    rule: Arc<str>,
    /// The access review that the delegated cluster has answered.
    review: Option<AccessReview>,
}

/// A request to connect a caller to a target at the edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dial {
    /// The cluster in which the target is.
    pub cluster: ClusterId,
    /// The target's address and port.
    pub target: Target,
}

/// A kind of request that the policy can allow.
pub trait Allowable: Clone + Send + Sync + 'static {
    /// The cluster that the request is for.
    fn cluster(&self) -> &ClusterId;
    /// The target of a dial. `None` for requests to an API server.
    fn target(&self) -> Option<&Target>;
    /// The request in the form that the policy evaluates.
    fn request(&self) -> Request<'_>;
    /// The request's verb, for logs and for the delegated cluster.
    fn verb(&self) -> &'static str;
    /// The policy mode of the request, `kube-api` or `dial`.
    fn mode(&self) -> &'static str;
    /// The request in the form that a refusal quotes.
    fn denied_request(&self) -> DeniedRequest;
}

/// Denied by a rule, or not allowed by any. The message does not say which, because callers may not read the
/// rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{user:?} may not {what}, ask the operator of this server for a rule in its policy")]
pub struct Forbidden {
    /// The name of the caller.
    pub user: String,
    /// The request that was denied.
    pub what: DeniedRequest,
    /// The rule that denies the request, if one does.
    pub rule: Option<Arc<str>>,
}

/// The request that was denied, as far as the caller may know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeniedRequest {
    /// Any access to a cluster of which this caller may use nothing.
    Cluster(ClusterId),
    /// An action on a cluster of which this caller may use something else.
    Action(Box<Action>),
    /// A target in a cluster of which this caller may use something else.
    Dial(Box<Dial>),
    /// Another identity, at a cluster where the action itself is allowed.
    Identity(ClusterId, Assert),
}

impl Policy {
    /// Creates the policy with its first rules, which are generation 1.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self(Arc::new(watch::Sender::new(Arc::new(PolicySnapshot { rules, generation: 1 }))))
    }

    /// The snapshot in force now. Decisions that belong together must use one snapshot.
    #[must_use]
    pub fn snapshot(&self) -> Arc<PolicySnapshot> {
        Arc::clone(&self.0.borrow())
    }

    /// A receiver of the snapshot in force and of each one that replaces it.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Arc<PolicySnapshot>> {
        self.0.subscribe()
    }

    /// Puts other rules in force, and returns their generation.
    pub fn replace(&self, rules: Rules) -> u64 {
        let mut generation = 0;
        self.0.send_modify(|snapshot| {
            generation = snapshot.generation + 1;
            *snapshot = Arc::new(PolicySnapshot { rules, generation });
        });
        generation
    }
}

impl Forbidden {
    /// The cluster that the denied request was for.
    #[must_use]
    pub fn cluster(&self) -> &ClusterId {
        match &self.what {
            DeniedRequest::Cluster(cluster) | DeniedRequest::Identity(cluster, _) => cluster,
            DeniedRequest::Action(action) => action.cluster(),
            DeniedRequest::Dial(dial) => &dial.cluster,
        }
    }

    /// The identity that the caller asked for, if that was denied.
    #[must_use]
    pub fn identity(&self) -> Option<&Assert> {
        match &self.what {
            DeniedRequest::Identity(_, identity) => Some(identity),
            DeniedRequest::Cluster(_) | DeniedRequest::Action(_) | DeniedRequest::Dial(_) => None,
        }
    }
}

impl PolicySnapshot {
    /// Allows `action` to `caller`, given the labels in the server's own store for its cluster. An `assumed`
    /// identity needs a rule too. The other identity's rights do not count here: they are for the cluster to
    /// check, and nobody gains rights at this server by impersonation.
    ///
    /// # Errors
    ///
    /// [`Forbidden`] if a rule denies the action or the identity, or no rule allows it.
    pub fn authorize(
        &self,
        caller: &Caller,
        assumed: Option<Assert>,
        action: Action,
        facts: &ClusterFacts,
    ) -> Result<Allowed, Forbidden> {
        let Allowed(mut permit) = self.allow(caller, action, facts)?;
        if let Some(identity) = &assumed {
            let cluster = permit.what.cluster();
            let verdict = self.rules.decide_identity(who(caller), cluster, facts, identity);
            if !verdict.is_allowed() {
                let what = DeniedRequest::Identity(cluster.clone(), identity.clone());
                return Err(forbidden(caller, what, verdict.rule()));
            }
        }
        permit.assumed = assumed;
        Ok(Allowed(permit))
    }

    /// Allows `caller` to be connected to a target, given the labels in the server's own store for its
    /// cluster.
    ///
    /// # Errors
    ///
    /// [`Forbidden`] if a rule denies it, or no rule allows it.
    pub fn authorize_dial(
        &self,
        caller: &Caller,
        dial: Dial,
        facts: &ClusterFacts,
    ) -> Result<Allowed<Dial>, Forbidden> {
        self.allow(caller, dial, facts)
    }

    fn allow<W: Allowable>(
        &self,
        caller: &Caller,
        what: W,
        facts: &ClusterFacts,
    ) -> Result<Allowed<W>, Forbidden> {
        let cluster = what.cluster();
        let verdict = self.decide(caller, &what, facts);
        let Verdict::Allowed(rule) = verdict else {
            let is_reached = self.may_reach(caller, cluster, facts);
            let wanted =
                if is_reached { what.denied_request() } else { DeniedRequest::Cluster(cluster.clone()) };
            return Err(forbidden(caller, wanted, verdict.rule()));
        };
        let (caller, rule) = (caller.clone(), Arc::clone(rule));
        let generation = self.generation;
        Ok(Allowed(Permit { caller, assumed: None, what, generation, rule, review: None }))
    }

    /// Returns true if this snapshot would also grant `permit`, which may come from another snapshot.
    #[must_use]
    pub fn still_permits<W: Allowable>(&self, permit: &Permit<W>, facts: &ClusterFacts) -> bool {
        let Permit { caller, assumed, what, .. } = permit;
        let identity = |identity| self.rules.decide_identity(who(caller), what.cluster(), facts, identity);
        self.decide(caller, what, facts).is_allowed()
            && assumed.as_ref().is_none_or(|assumed| identity(assumed).is_allowed())
    }

    /// Returns true if `caller` may reach `cluster` at all. It decides what the list of clusters contains.
    #[must_use]
    pub fn may_reach(&self, caller: &Caller, cluster: &ClusterId, facts: &ClusterFacts) -> bool {
        self.rules.reaches(who(caller), cluster, facts)
    }

    /// The number of this policy. It starts at 1 and grows by one with each replacement.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn decide(&self, caller: &Caller, what: &impl Allowable, facts: &ClusterFacts) -> Verdict<'_> {
        self.rules.decide(who(caller), what.cluster(), facts, what.request())
    }
}

#[cfg(test)]
impl Allowed {
    /// Makes the permit without asking a delegated cluster.
    pub(crate) fn undelegated(self) -> Permit {
        self.0
    }
}

impl<W> Permit<W> {
    /// The access review that the delegated cluster has answered, if there is such a cluster.
    pub(crate) fn review(&self) -> Option<&AccessReview> {
        self.review.as_ref()
    }

    /// The caller that holds the permit.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The identity that the cluster sees, if it is not the caller's own.
    #[must_use]
    pub fn assumed(&self) -> Option<&Assert> {
        self.assumed.as_ref()
    }

    /// The request that the permit is for.
    #[must_use]
    pub fn what(&self) -> &W {
        &self.what
    }

    /// The generation of the policy that allowed the request.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The name of the rule that allowed the request.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }
}

impl Permit {
    /// The action that the permit is for.
    #[must_use]
    pub fn action(&self) -> &Action {
        &self.what
    }
}

impl Allowable for Action {
    fn cluster(&self) -> &ClusterId {
        Self::cluster(self)
    }

    fn target(&self) -> Option<&Target> {
        None
    }

    fn request(&self) -> Request<'_> {
        Request::KubeApi(Self::verb(self), self.object())
    }

    fn verb(&self) -> &'static str {
        Self::verb(self).as_str()
    }

    fn mode(&self) -> &'static str {
        "kube-api"
    }

    fn denied_request(&self) -> DeniedRequest {
        DeniedRequest::Action(Box::new(self.clone()))
    }
}

impl Allowable for Dial {
    fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    fn target(&self) -> Option<&Target> {
        Some(&self.target)
    }

    fn request(&self) -> Request<'_> {
        Request::Dial(&self.target)
    }

    fn verb(&self) -> &'static str {
        "dial"
    }

    fn mode(&self) -> &'static str {
        "dial"
    }

    fn denied_request(&self) -> DeniedRequest {
        DeniedRequest::Dial(Box::new(self.clone()))
    }
}

impl fmt::Display for DeniedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(cluster) => write!(f, "reach the cluster {cluster}"),
            Self::Action(action) => {
                write!(f, "{} {} of the cluster {}", action.verb(), action.object(), action.cluster())
            }
            Self::Dial(dial) => write!(f, "dial {} at the cluster {}", dial.target, dial.cluster),
            Self::Identity(cluster, Assert { user, groups }) => {
                write!(f, "act as the user {user:?} with the groups {groups:?} at the cluster {cluster}")
            }
        }
    }
}

fn forbidden(caller: &Caller, what: DeniedRequest, rule: Option<&Arc<str>>) -> Forbidden {
    Forbidden { user: caller.user().to_owned(), what, rule: rule.cloned() }
}

fn who(caller: &Caller) -> Principal<'_> {
    Principal { method: caller.method().as_str(), user: caller.user(), groups: caller.groups() }
}

#[cfg(test)]
mod tests;
