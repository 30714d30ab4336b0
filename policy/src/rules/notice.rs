//! Remarks about valid rules whose effect their author may not expect.

use std::fmt;
use std::sync::Arc;

use super::effect::Effect;
use super::rule::Rule;
use crate::action::Verb;

/// A remark about one rule. It refuses nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The rule denies some namespaces, and so it also denies requests of these verbs that span all namespaces.
    Spanning(Arc<str>, Vec<Verb>),
    /// The rule denies reading, but not by these verbs, which return the same objects.
    StillRead(Arc<str>, Vec<Verb>),
}

impl Rule {
    /// The remarks about this rule, at most one of each kind.
    pub(super) fn notices(&self) -> impl Iterator<Item = Notice> {
        let is_deny = self.effect == Effect::Deny;
        let verbs = |verbs: Vec<Verb>| (is_deny && !verbs.is_empty()).then_some(verbs);
        let spanning = verbs(self.scope.spanning_verbs());
        let still_read = verbs(self.scope.verbs_that_still_read());
        let spanning = spanning.map(|verbs| Notice::Spanning(Arc::clone(&self.name), verbs));
        let still_read = still_read.map(|verbs| Notice::StillRead(Arc::clone(&self.name), verbs));
        spanning.into_iter().chain(still_read)
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spanning(rule, verbs) => write!(
                f,
                "the rule {rule} denies some namespaces, and therefore also {} of all namespaces together",
                listed(verbs)
            ),
            Self::StillRead(rule, verbs) => write!(
                f,
                "the rule {rule} does not deny {}, which return the same objects: deny get, list and watch together",
                listed(verbs)
            ),
        }
    }
}

fn listed(verbs: &[Verb]) -> String {
    verbs.iter().map(|verb| verb.as_str()).collect::<Vec<_>>().join(" and ")
}
