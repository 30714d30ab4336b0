//! What a rule is about: the mode, and what of it.

use super::Request;
use super::valid::entries;
use crate::document;
use crate::fault::{At, PolicyFault};
use actions::Actions;
use targets::Targets;

mod actions;
mod targets;

/// What a rule allows or denies; never empty.
#[derive(Debug, Clone)]
pub(super) enum Scope {
    KubeApi(Vec<Actions>),
    Dial(Vec<Targets>),
}

impl Scope {
    /// Whether `request` is meant.
    pub(super) fn covers(&self, request: Request<'_>) -> bool {
        match (self, request) {
            (Self::KubeApi(actions), Request::KubeApi(verb, object)) => {
                actions.iter().any(|actions| actions.cover(verb, object))
            }
            (Self::Dial(targets), Request::Dial(target)) => targets.iter().any(|some| some.cover(target)),
            (Self::KubeApi(_), Request::Dial(_)) | (Self::Dial(_), Request::KubeApi(..)) => false,
        }
    }

    /// Whether nothing of the mode of `other` is left out.
    pub(super) fn is_everything_of_the_mode_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::KubeApi(actions), Self::KubeApi(_)) => {
                actions.iter().any(Actions::are_every_resource) && actions.iter().any(Actions::are_every_path)
            }
            (Self::Dial(targets), Self::Dial(_)) => targets.iter().any(Targets::are_all),
            (Self::KubeApi(_), Self::Dial(_)) | (Self::Dial(_), Self::KubeApi(_)) => false,
        }
    }

    /// What the keys `mode`, `actions` and `targets` of a rule say together.
    pub(super) fn of(at: &At, rule: &document::Rule) -> Result<Self, PolicyFault> {
        let modes = "kube-api or dial";
        let mode = rule.mode.as_ref().ok_or_else(|| at.missing("mode", modes))?;
        let (actions, targets) = (rule.actions.as_ref(), rule.targets.as_ref());
        match mode.value.as_str() {
            "kube-api" => {
                if let Some(targets) = targets {
                    return Err(at
                        .below("targets", targets)
                        .fault("a list", "actions with the mode kube-api"));
                }
                let actions = actions.ok_or_else(|| at.missing("actions", "at least one entry"))?;
                entries(&at.below("actions", actions), &actions.value, Actions::of).map(Self::KubeApi)
            }
            "dial" => {
                if let Some(actions) = actions {
                    return Err(at.below("actions", actions).fault("a list", "targets with the mode dial"));
                }
                let targets = targets.ok_or_else(|| at.missing("targets", "at least one entry"))?;
                entries(&at.below("targets", targets), &targets.value, Targets::of).map(Self::Dial)
            }
            other => Err(at.below("mode", mode).fault(format_args!("{other:?}"), modes)),
        }
    }
}
