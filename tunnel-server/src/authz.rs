//! The policy in force, and the proof that it allowed something. The only place where a [`Permit`] is made.

use std::fmt;
use std::sync::Arc;

use policy::action::Action;
use policy::{ClusterFacts, Request, Rules, Target, Verdict, Who};
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

/// The policy in force. Clones are the same.
#[derive(Debug, Clone)]
pub struct Policy(Arc<watch::Sender<Arc<PolicySnapshot>>>);

/// A policy as it was read at some time.
#[derive(Debug)]
pub struct PolicySnapshot {
    rules: Rules,
    generation: u64,
}

/// What the policy allows. It becomes a permit where nobody else refuses it. Only [`PolicySnapshot::authorize`] and
/// [`PolicySnapshot::authorize_dial`] make one.
#[derive(Debug)]
#[must_use = "what the policy allows is no permit yet"]
pub struct Allowed<W = Action>(Permit<W>);

/// Proof that policy allowed this caller this, and the cluster that is asked too, if one is. Only [`Delegation::grant`] makes one.
#[derive(Debug, Clone)]
#[must_use = "a permit that goes nowhere allows nothing"]
pub struct Permit<W = Action> {
    caller: Caller,
    assumed: Option<Assert>,
    what: W,
    generation: u64,
    rule: Arc<str>,
    /// What another cluster was asked about it.
    review: Option<AccessReview>,
}

/// Connecting a caller to a target at the edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dial {
    /// Where.
    pub cluster: ClusterId,
    /// To what.
    pub target: Target,
}

/// What policy can allow.
pub trait Allowable: Clone + Send + Sync + 'static {
    /// Of which cluster it is something.
    fn cluster(&self) -> &ClusterId;
    /// The target, if it is to be connected to one.
    fn target(&self) -> Option<&Target>;
    /// As policy reads it.
    fn request(&self) -> Request<'_>;
    /// One word for it, for logs and for the cluster that is asked too.
    fn verb(&self) -> &'static str;
    /// The way to the cluster that it takes, as policy calls it.
    fn mode(&self) -> &'static str;
    /// As a refusal names it.
    fn denied_request(&self) -> DeniedRequest;
}

/// A rule denies it, or none allows it. Its text does not say which: rules are not for callers to read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{user:?} may not {what}, ask the operator of this server for a rule in its policy")]
pub struct Forbidden {
    /// Who asked.
    pub user: String,
    /// For what.
    pub what: DeniedRequest,
    /// The rule that denies it.
    pub rule: Option<Arc<str>>,
}

/// What was wanted in vain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeniedRequest {
    /// Anything of a cluster, where nothing of it is allowed.
    Cluster(ClusterId),
    /// An action, where others are allowed.
    Action(Box<Action>),
    /// A target, where something else is allowed.
    Dial(Box<Dial>),
    /// To be taken for somebody else at a cluster where the action itself is allowed.
    Identity(ClusterId, Assert),
}

impl Policy {
    /// A policy of these rules, the first that is in force.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self(Arc::new(watch::Sender::new(Arc::new(PolicySnapshot { rules, generation: 1 }))))
    }

    /// The snapshot in force now. What belongs together is asked of one snapshot.
    #[must_use]
    pub fn snapshot(&self) -> Arc<PolicySnapshot> {
        Arc::clone(&self.0.borrow())
    }

    /// The snapshot in force, now and whenever another takes its place.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Arc<PolicySnapshot>> {
        self.0.subscribe()
    }

    /// Puts other rules in force, of the next generation, which is returned.
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
    /// Of which cluster.
    #[must_use]
    pub fn cluster(&self) -> &ClusterId {
        match &self.what {
            DeniedRequest::Cluster(cluster) | DeniedRequest::Identity(cluster, _) => cluster,
            DeniedRequest::Action(action) => action.cluster(),
            DeniedRequest::Dial(dial) => &dial.cluster,
        }
    }

    /// The identity that the caller wanted and may not have, if it is that.
    #[must_use]
    pub fn identity(&self) -> Option<&Assert> {
        match &self.what {
            DeniedRequest::Identity(_, identity) => Some(identity),
            DeniedRequest::Cluster(_) | DeniedRequest::Action(_) | DeniedRequest::Dial(_) => None,
        }
    }
}

impl PolicySnapshot {
    /// Allows `action` to `caller`, by what the server's own store knows of the action's cluster; and where it has
    /// `assumed` another identity, that too. What is allowed to the other identity is for the cluster to know: here
    /// nobody gains anything by being somebody else.
    ///
    /// # Errors
    ///
    /// A rule denies the action or the identity, or none allows it.
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

    /// Allows `caller` to be connected to a target, by what the server's own store knows of its cluster.
    ///
    /// # Errors
    ///
    /// A rule denies it, or none allows it.
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

    /// Whether this snapshot too would give `permit`, which another may have given.
    #[must_use]
    pub fn still_permits<W: Allowable>(&self, permit: &Permit<W>, facts: &ClusterFacts) -> bool {
        let Permit { caller, assumed, what, .. } = permit;
        let identity = |identity| self.rules.decide_identity(who(caller), what.cluster(), facts, identity);
        self.decide(caller, what, facts).is_allowed()
            && assumed.as_ref().is_none_or(|assumed| identity(assumed).is_allowed())
    }

    /// Whether `caller` may reach `cluster` at all: for the list of clusters.
    #[must_use]
    pub fn may_reach(&self, caller: &Caller, cluster: &ClusterId, facts: &ClusterFacts) -> bool {
        self.rules.reaches(who(caller), cluster, facts)
    }

    /// Which policy this is: it counts up from 1 with each that takes the place of another.
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
    /// The permit, where nobody else is asked.
    pub(crate) fn undelegated(self) -> Permit {
        self.0
    }
}

impl<W> Permit<W> {
    /// What another cluster was asked about it, if one is.
    pub(crate) fn review(&self) -> Option<&AccessReview> {
        self.review.as_ref()
    }

    /// Who may.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// As whom the cluster is to see it, if not as itself.
    #[must_use]
    pub fn assumed(&self) -> Option<&Assert> {
        self.assumed.as_ref()
    }

    /// What.
    #[must_use]
    pub fn what(&self) -> &W {
        &self.what
    }

    /// By which snapshot of the policy.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// By which of its rules.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }
}

impl Permit {
    /// What.
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
                write!(
                    f,
                    "be taken for the user {user:?} with the groups {groups:?} at the cluster {cluster}"
                )
            }
        }
    }
}

fn forbidden(caller: &Caller, what: DeniedRequest, rule: Option<&Arc<str>>) -> Forbidden {
    Forbidden { user: caller.user().to_owned(), what, rule: rule.cloned() }
}

fn who(caller: &Caller) -> Who<'_> {
    Who { method: caller.method().as_str(), user: caller.user(), groups: caller.groups() }
}

#[cfg(test)]
mod tests;
