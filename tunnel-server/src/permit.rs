//! Who may do what. The only place where a [`Permit`] is made.
//!
//! Pure. What no rule allows is forbidden.

use policy::action::Action;
use proto::ClusterId;

use crate::config::AllowRule;
use crate::identity::Caller;

mod glob;

/// The generation of the policy that a server starts with.
const FIRST_GENERATION: u64 = 1;

/// What stands in a list for everybody.
const EVERYBODY: &str = "*";

/// The rules in force.
#[derive(Debug, Clone)]
pub struct Policy {
    rules: Vec<AllowRule>,
    generation: u64,
}

/// Proof that policy allowed this caller this action. Only [`Policy::authorize`] makes one.
#[derive(Debug, Clone)]
#[must_use = "a permit that goes nowhere allows nothing"]
pub struct Permit {
    caller: Caller,
    action: Action,
    generation: u64,
}

/// No rule allows it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{user:?} may not reach the cluster {cluster}, ask the operator of this server for a rule in policy.allow"
)]
pub struct Forbidden {
    /// Who asked.
    pub user: String,
    /// For what.
    pub cluster: ClusterId,
}

impl Policy {
    /// A policy of these rules, each of which allows; without any, nobody reaches anything.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = AllowRule>) -> Self {
        Self { rules: rules.into_iter().collect(), generation: FIRST_GENERATION }
    }

    /// Permits `action` to `caller`.
    ///
    /// # Errors
    ///
    /// No rule allows it.
    pub fn authorize(&self, caller: &Caller, action: Action) -> Result<Permit, Forbidden> {
        if !self.may_reach(caller, action.cluster()) {
            return Err(Forbidden { user: caller.user().to_owned(), cluster: action.cluster().clone() });
        }
        Ok(Permit { caller: caller.clone(), action, generation: self.generation })
    }

    /// Whether `caller` may reach `cluster` at all: for the list of clusters.
    #[must_use]
    pub fn may_reach(&self, caller: &Caller, cluster: &ClusterId) -> bool {
        self.rules.iter().any(|rule| {
            concerns(rule, caller)
                && rule.clusters.iter().any(|pattern| glob::matches(pattern, cluster.as_str()))
        })
    }

    /// Which policy this is: it counts up with each that takes the place of another.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

impl Permit {
    /// Who may.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// What.
    #[must_use]
    pub fn action(&self) -> &Action {
        &self.action
    }

    /// By which policy.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

fn concerns(rule: &AllowRule, caller: &Caller) -> bool {
    let named = |list: &[String], name: &str| list.iter().any(|entry| entry == EVERYBODY || entry == name);
    named(&rule.users, caller.user())
        // A caller without groups is in no group, so that `groups: ["*"]` does not mean everybody.
        || caller.groups().iter().any(|group| named(&rule.groups, group))
}

#[cfg(test)]
mod tests;
