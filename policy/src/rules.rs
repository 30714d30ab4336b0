//! Validated rules of a policy, and the decision that they make.

use std::sync::Arc;

use proto::ClusterId;
use proto::allow_list::NameKind;
use proto::wire::Assert;

use crate::document::Document;
use crate::error::DocumentError;
use effect::Effect;
use rule::Rule;
use scope::Scope;

mod choice;
mod clusters;
mod effect;
mod labels;
mod lists;
mod notice;
mod request;
mod rule;
mod scope;
mod subject;
mod validate;

pub use notice::Notice;
pub use request::{ClusterFacts, Principal, Request};

/// The rules of a policy, all of them valid. The default has none, and so allows nothing.
#[derive(Debug, Clone, Default)]
pub struct Rules(Vec<Rule>);

/// The decision, and the rule that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Verdict<'a> {
    /// A rule allows it and none denies it; the first allowing rule.
    Allowed(&'a Arc<str>),
    /// A rule denies it, whatever others allow; the first denying rule.
    Denied(&'a Arc<str>),
    /// The request spans all namespaces, and a rule denies it in some of them; the first denying rule.
    DeniedInPart(&'a Arc<str>),
    /// No rule covers it, so it is forbidden.
    NoRule,
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

    /// The number of rules; 0 to [`RULES_MAX`](crate::RULES_MAX).
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Remarks for the author of the policy, in the order of the rules.
    #[must_use]
    pub fn notices(&self) -> Vec<Notice> {
        self.0.iter().flat_map(Rule::notices).collect()
    }

    /// Decides whether `principal` may send `request` to `cluster`. A rule that denies some namespaces also denies a
    /// request that spans all of them, since its answer has these namespaces in it.
    pub fn decide(
        &self,
        principal: Principal<'_>,
        cluster: &ClusterId,
        facts: &ClusterFacts,
        request: Request<'_>,
    ) -> Verdict<'_> {
        let mut verdict = Verdict::NoRule;
        for rule in self.applicable(principal, cluster, facts) {
            let covers = rule.scope.covers(request);
            match rule.effect {
                Effect::Deny if covers => return Verdict::Denied(&rule.name),
                Effect::Deny if rule.scope.covers_part_of(request) => {
                    return Verdict::DeniedInPart(&rule.name);
                }
                Effect::Allow if covers && verdict == Verdict::NoRule => {
                    verdict = Verdict::Allowed(&rule.name)
                }
                Effect::Deny | Effect::Allow => {}
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
        let user = part(NameKind::User, &identity.user);
        let groups = identity.groups.iter().map(|group| part(NameKind::Group, group));
        [user].into_iter().chain(groups).find(|verdict| !verdict.is_allowed()).unwrap_or(user)
    }

    /// Returns true if `principal` can reach `cluster` at all, for the list of clusters: a rule allows
    /// something there, and no rule denies everything of that mode.
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
    /// Returns true if the request is allowed.
    #[must_use]
    pub fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// The rule that decided, if one did.
    #[must_use]
    pub fn rule(&self) -> Option<&Arc<str>> {
        match self {
            Self::Allowed(rule) | Self::Denied(rule) | Self::DeniedInPart(rule) => Some(rule),
            Self::NoRule => None,
        }
    }
}

#[cfg(test)]
mod tests;
