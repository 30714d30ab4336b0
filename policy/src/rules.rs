//! Validated rules of a policy, and the decision that they make.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::ClusterId;
use proto::allow_list::Sort;
use proto::wire::Assert;

use crate::action::{Object, Verb};
use crate::document::Document;
use crate::error::DocumentError;
use crate::target::Target;
use clusters::Clusters;
use scope::Scope;
use subject::Subject;

mod choice;
mod clusters;
mod labels;
mod lists;
mod scope;
mod subject;
mod validate;

/// Most rules of a policy: each request is compared with every one.
pub const RULES_MAX: usize = 5_000;

/// Most entries of any list in a rule.
pub const ENTRIES_MAX: usize = 1_000;

/// The rules of a policy, all of them valid. The default has none, and so allows nothing.
#[derive(Debug, Clone, Default)]
pub struct Rules(Vec<Rule>);

/// The authenticated caller of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Principal<'a> {
    /// The authentication method; a text that [`crate::parse_method`] accepts.
    pub method: &'a str,
    /// The user's name, with the prefix of the method.
    pub user: &'a str,
    /// The names of the groups, with the prefix of the method.
    pub groups: &'a [String],
}

/// Facts about a cluster from the server's own store. Claims of an agent are never among them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterFacts {
    /// Its labels, as in Kubernetes.
    pub labels: BTreeMap<String, String>,
}

/// A request to a cluster, in one of the three modes of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// An action at its Kubernetes API.
    KubeApi(Verb, &'a Object),
    /// A connection from within the cluster to a target.
    Dial(&'a Target),
    /// Impersonation of this user or group. [`Rules::decide_identity`] decides about all parts of an identity.
    Impersonate(Sort, &'a str),
}

/// The decision, and the rule that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Verdict<'a> {
    /// A rule allows it and none denies it; the first allowing rule.
    Allowed(&'a Arc<str>),
    /// A rule denies it, whatever others allow; the first denying rule.
    Denied(&'a Arc<str>),
    /// No rule covers it, so it is forbidden.
    NoRule,
}

#[derive(Debug, Clone)]
struct Rule {
    name: Arc<str>,
    effect: Effect,
    subjects: Vec<Subject>,
    clusters: Clusters,
    scope: Scope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Allow,
    Deny,
}

impl Rules {
    /// Validates the rules of `document`.
    ///
    /// # Errors
    ///
    /// [`DocumentError`] for the first invalid rule; then no rule is in force.
    pub fn from_document(document: &Document) -> Result<Self, DocumentError> {
        validate::rules(document).map(Self)
    }

    /// The number of rules; 0 to [`RULES_MAX`].
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Decides whether `principal` may send `request` to `cluster`.
    pub fn decide(
        &self,
        principal: Principal<'_>,
        cluster: &ClusterId,
        facts: &ClusterFacts,
        request: Request<'_>,
    ) -> Verdict<'_> {
        let mut verdict = Verdict::NoRule;
        for rule in self.applicable(principal, cluster, facts).filter(|rule| rule.scope.covers(request)) {
            match rule.effect {
                Effect::Deny => return Verdict::Denied(&rule.name),
                Effect::Allow if verdict == Verdict::NoRule => verdict = Verdict::Allowed(&rule.name),
                Effect::Allow => {}
            }
        }
        verdict
    }

    /// Decides whether `principal` may impersonate `identity` at `cluster`: its user, and each of its groups. The first part
    /// that is not allowed decides. The actions of `principal` there are decided separately.
    pub fn decide_identity(
        &self,
        principal: Principal<'_>,
        cluster: &ClusterId,
        facts: &ClusterFacts,
        identity: &Assert,
    ) -> Verdict<'_> {
        let part = |sort, name| self.decide(principal, cluster, facts, Request::Impersonate(sort, name));
        let user = part(Sort::User, &identity.user);
        let groups = identity.groups.iter().map(|group| part(Sort::Group, group));
        [user].into_iter().chain(groups).find(|verdict| !verdict.is_allowed()).unwrap_or(user)
    }

    /// Whether `principal` can reach `cluster` at all, for the list of clusters: a rule allows something there, and no rule
    /// denies everything of that mode.
    #[must_use]
    pub fn reaches(&self, principal: Principal<'_>, cluster: &ClusterId, facts: &ClusterFacts) -> bool {
        let rules: Vec<&Rule> = self.applicable(principal, cluster, facts).collect();
        let denied = |scope: &Scope| {
            let mut denying = rules.iter().filter(|rule| rule.effect == Effect::Deny);
            denying.any(|rule| rule.scope.covers_mode_of(scope))
        };
        let mut allowing =
            rules.iter().filter(|rule| rule.effect == Effect::Allow && rule.scope.grants_access());
        allowing.any(|rule| !denied(&rule.scope))
    }

    fn applicable(
        &self,
        principal: Principal<'_>,
        cluster: &ClusterId,
        facts: &ClusterFacts,
    ) -> impl Iterator<Item = &Rule> {
        self.0.iter().filter(move |rule| {
            rule.subjects.iter().any(|subject| subject.matches(principal, rule.effect))
                && rule.clusters.contain(cluster, facts)
        })
    }
}

impl Verdict<'_> {
    /// Whether the request is allowed.
    #[must_use]
    pub fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// The rule that decided, if one did.
    #[must_use]
    pub fn rule(&self) -> Option<&Arc<str>> {
        match self {
            Self::Allowed(rule) | Self::Denied(rule) => Some(rule),
            Self::NoRule => None,
        }
    }
}

#[cfg(test)]
mod tests;
