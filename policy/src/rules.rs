//! The rules of a policy, and what they decide.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::ClusterId;
use proto::allow_list::Sort;
use proto::wire::Assert;

use crate::action::{Object, Verb};
use crate::document::Document;
use crate::fault::PolicyFault;
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
mod valid;

/// Most rules of a policy: each request is held against every one.
pub const RULES_MAX: usize = 5_000;

/// Most entries of any list in a rule.
pub const ENTRIES_MAX: usize = 1_000;

/// The rules of a policy, all of them valid. The default has none, and so allows nothing.
#[derive(Debug, Clone, Default)]
pub struct Rules(Vec<Rule>);

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Who<'a> {
    /// How it was proved who it is; a word that [`crate::method()`] takes.
    pub method: &'a str,
    /// The user's name, with the prefix of the method.
    pub user: &'a str,
    /// The groups' names, with the prefix of the method.
    pub groups: &'a [String],
}

/// What the server's own store knows of a cluster. What an agent says of it never gets in here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterFacts {
    /// Labels as Kubernetes has them.
    pub labels: BTreeMap<String, String>,
}

/// What is asked of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// Something of its Kubernetes API.
    KubeApi(Verb, &'a Object),
    /// A connection from within it.
    Dial(&'a Target),
    /// To be taken for this user there, or for one of this group. [`Rules::decide_identity`] asks it of all parts.
    Impersonate(Sort, &'a str),
}

/// What the rules say, and which of them decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Verdict<'a> {
    /// The first rule that allows it, none denies it.
    Allowed(&'a Arc<str>),
    /// The first rule that denies it, whatever others allow.
    Denied(&'a Arc<str>),
    /// No rule speaks of it, so that it is forbidden.
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
    /// The rules that `document` says.
    ///
    /// # Errors
    ///
    /// [`PolicyFault`] for the first that is wrong; then none of them holds.
    pub fn of(document: &Document) -> Result<Self, PolicyFault> {
        valid::rules(document).map(Self)
    }

    /// How many there are; 0 to [`RULES_MAX`].
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether `who` may ask this of `cluster`, of which `facts` are known.
    pub fn decide(
        &self,
        who: Who<'_>,
        cluster: &ClusterId,
        facts: &ClusterFacts,
        request: Request<'_>,
    ) -> Verdict<'_> {
        let mut verdict = Verdict::NoRule;
        for rule in self.about(who, cluster, facts).filter(|rule| rule.scope.covers(request)) {
            match rule.effect {
                Effect::Deny => return Verdict::Denied(&rule.name),
                Effect::Allow if verdict == Verdict::NoRule => verdict = Verdict::Allowed(&rule.name),
                Effect::Allow => {}
            }
        }
        verdict
    }

    /// Whether `who` may be taken for `identity` at `cluster`: for its user, and for each of its groups. The first part that
    /// is not allowed decides. It says nothing of what `who` may do there.
    pub fn decide_identity(
        &self,
        who: Who<'_>,
        cluster: &ClusterId,
        facts: &ClusterFacts,
        identity: &Assert,
    ) -> Verdict<'_> {
        let part = |sort, name| self.decide(who, cluster, facts, Request::Impersonate(sort, name));
        let user = part(Sort::User, &identity.user);
        let groups = identity.groups.iter().map(|group| part(Sort::Group, group));
        [user].into_iter().chain(groups).find(|verdict| !verdict.is_allowed()).unwrap_or(user)
    }

    /// Whether `who` may reach `cluster` at all, for the list of clusters: some rule allows something there, and no rule
    /// denies everything of that mode.
    #[must_use]
    pub fn reaches(&self, who: Who<'_>, cluster: &ClusterId, facts: &ClusterFacts) -> bool {
        let rules: Vec<&Rule> = self.about(who, cluster, facts).collect();
        let denied = |scope: &Scope| {
            let mut denying = rules.iter().filter(|rule| rule.effect == Effect::Deny);
            denying.any(|rule| rule.scope.is_everything_of_the_mode_of(scope))
        };
        let mut allowing =
            rules.iter().filter(|rule| rule.effect == Effect::Allow && rule.scope.is_of_a_way());
        allowing.any(|rule| !denied(&rule.scope))
    }

    fn about(&self, who: Who<'_>, cluster: &ClusterId, facts: &ClusterFacts) -> impl Iterator<Item = &Rule> {
        self.0.iter().filter(move |rule| {
            rule.subjects.iter().any(|subject| subject.is(who, rule.effect))
                && rule.clusters.have(cluster, facts)
        })
    }
}

impl Verdict<'_> {
    /// Whether it is allowed.
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
