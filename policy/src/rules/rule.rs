//! A validated rule of a policy.

use std::sync::Arc;

use super::clusters::Clusters;
use super::effect::Effect;
use super::scope::Scope;
use super::subject::Subject;

/// A rule: whom it applies to, where, and to what.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    pub(super) name: Arc<str>,
    pub(super) effect: Effect,
    pub(super) subjects: Vec<Subject>,
    pub(super) clusters: Clusters,
    pub(super) scope: Scope,
}
