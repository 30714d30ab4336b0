//! What a rule is about: the mode, and what of it.

use super::Request;
use super::lists::entries;
use crate::document;
use crate::fault::{At, PolicyFault};
use actions::Actions;
use identities::Identities;
use targets::Targets;

mod actions;
mod identities;
mod targets;

/// What a rule allows or denies; never empty.
#[derive(Debug, Clone)]
pub(super) enum Scope {
    KubeApi(Vec<Actions>),
    Dial(Vec<Targets>),
    Impersonate(Vec<Identities>),
}

impl Scope {
    /// Whether `request` is meant.
    pub(super) fn covers(&self, request: Request<'_>) -> bool {
        match (self, request) {
            (Self::KubeApi(actions), Request::KubeApi(verb, object)) => {
                actions.iter().any(|actions| actions.cover(verb, object))
            }
            (Self::Dial(targets), Request::Dial(target)) => targets.iter().any(|some| some.cover(target)),
            (Self::Impersonate(some), Request::Impersonate(sort, name)) => {
                some.iter().any(|identities| identities.cover(sort, name))
            }
            (Self::KubeApi(_), Request::Dial(_) | Request::Impersonate(..))
            | (Self::Dial(_), Request::KubeApi(..) | Request::Impersonate(..))
            | (Self::Impersonate(_), Request::KubeApi(..) | Request::Dial(_)) => false,
        }
    }

    /// Whether it is about reaching a cluster. Who may only bear another name there reaches nothing by that.
    pub(super) fn is_of_a_way(&self) -> bool {
        match self {
            Self::KubeApi(_) | Self::Dial(_) => true,
            Self::Impersonate(_) => false,
        }
    }

    /// Whether nothing of the mode of `other`, which is one of a way, is left out.
    pub(super) fn is_everything_of_the_mode_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::KubeApi(actions), Self::KubeApi(_)) => {
                actions.iter().any(Actions::are_every_resource) && actions.iter().any(Actions::are_every_path)
            }
            (Self::Dial(targets), Self::Dial(_)) => targets.iter().any(Targets::are_all),
            (Self::KubeApi(_) | Self::Dial(_) | Self::Impersonate(_), _) => false,
        }
    }

    /// What the key `mode` of a rule says together with the one list that goes with it.
    pub(super) fn of(at: &At, rule: &document::Rule) -> Result<Self, PolicyFault> {
        let modes = "kube-api, dial or impersonate";
        let mode = rule.mode.as_ref().ok_or_else(|| at.missing("mode", modes))?;
        let (actions, targets, identities) = (&rule.actions, &rule.targets, &rule.identities);
        let lists = [
            ("actions", actions.as_ref().map(|written| at.below("actions", written))),
            ("targets", targets.as_ref().map(|written| at.below("targets", written))),
            ("identities", identities.as_ref().map(|written| at.below("identities", written))),
        ];
        let own = match mode.value.as_str() {
            "kube-api" => "actions",
            "dial" => "targets",
            "impersonate" => "identities",
            other => return Err(at.below("mode", mode).fault(format_args!("{other:?}"), modes)),
        };
        let mut others = lists.iter().filter(|(key, _)| *key != own);
        if let Some(at) = others.find_map(|(_, at)| at.as_ref()) {
            return Err(at.fault("a list", format!("{own} with the mode {}", mode.value)));
        }
        match (actions, targets, identities) {
            (Some(actions), _, _) => {
                entries(&at.below("actions", actions), &actions.value, Actions::of).map(Self::KubeApi)
            }
            (_, Some(targets), _) => {
                entries(&at.below("targets", targets), &targets.value, Targets::of).map(Self::Dial)
            }
            (_, _, Some(identities)) => {
                let at = at.below("identities", identities);
                entries(&at, &identities.value, Identities::of).map(Self::Impersonate)
            }
            (None, None, None) => Err(at.missing(own, "at least one entry")),
        }
    }
}
