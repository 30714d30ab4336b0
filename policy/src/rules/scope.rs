//! The scope of a rule: its mode, and the requests of that mode.

use super::lists::entries;
use super::request::Request;
use crate::action::Verb;
use crate::document;
use crate::error::{DocumentError, FieldPath};
use actions::Actions;
use identities::Identities;
use targets::Targets;

mod actions;
mod identities;
mod targets;

/// The requests that a rule allows or denies; the list is never empty.
#[derive(Debug, Clone)]
pub(super) enum Scope {
    KubeApi(Vec<Actions>),
    Dial(Vec<Targets>),
    Impersonate(Vec<Identities>),
}

impl Scope {
    /// Returns true if `request` is in the scope.
    pub(super) fn covers(&self, request: Request<'_>) -> bool {
        match (self, request) {
            (Self::KubeApi(actions), Request::KubeApi(verb, object)) => {
                actions.iter().any(|actions| actions.contain(verb, object))
            }
            (Self::Dial(targets), Request::Dial(target)) => targets.iter().any(|some| some.contain(target)),
            (Self::Impersonate(some), Request::Impersonate(sort, name)) => {
                some.iter().any(|identities| identities.contain(sort, name))
            }
            (Self::KubeApi(_), Request::Dial(_) | Request::Impersonate(..))
            | (Self::Dial(_), Request::KubeApi(..) | Request::Impersonate(..))
            | (Self::Impersonate(_), Request::KubeApi(..) | Request::Dial(_)) => false,
        }
    }

    /// Returns true if `request` spans all namespaces, and in some of them it is in the scope.
    pub(super) fn covers_part_of(&self, request: Request<'_>) -> bool {
        match (self, request) {
            (Self::KubeApi(actions), Request::KubeApi(verb, object)) => {
                actions.iter().any(|actions| actions.contain_part_of(verb, object))
            }
            (Self::KubeApi(_) | Self::Dial(_) | Self::Impersonate(_), _) => false,
        }
    }

    /// The verbs by which a request that spans all namespaces is in the scope in some of them only.
    pub(super) fn spanning_verbs(&self) -> Vec<Verb> {
        self.verbs_where(Actions::spans)
    }

    /// The verbs that read what the scope contains by another verb, and that are not in the scope themselves.
    pub(super) fn verbs_that_still_read(&self) -> Vec<Verb> {
        self.verbs_where(Actions::leaves_reading)
    }

    fn verbs_where(&self, holds: impl Fn(&Actions, Verb) -> bool) -> Vec<Verb> {
        match self {
            Self::KubeApi(actions) => {
                let some = |verb: &Verb| actions.iter().any(|actions| holds(actions, *verb));
                Verb::ALL.into_iter().filter(some).collect()
            }
            Self::Dial(_) | Self::Impersonate(_) => Vec::new(),
        }
    }

    /// Returns true if the mode gives access to a cluster. Permission to impersonate alone reaches nothing.
    pub(super) fn grants_access(&self) -> bool {
        match self {
            Self::KubeApi(_) | Self::Dial(_) => true,
            Self::Impersonate(_) => false,
        }
    }

    /// Returns true if this scope covers every request of the mode of `other`, which grants access.
    pub(super) fn covers_mode_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::KubeApi(actions), Self::KubeApi(_)) => {
                actions.iter().any(Actions::contain_every_resource)
                    && actions.iter().any(Actions::contain_every_path)
            }
            (Self::Dial(targets), Self::Dial(_)) => targets.iter().any(Targets::contain_all),
            (Self::KubeApi(_) | Self::Dial(_) | Self::Impersonate(_), _) => false,
        }
    }

    /// Validates the key `mode` of a rule, together with the one list that belongs to the mode.
    pub(super) fn validate(at: &FieldPath, rule: &document::RawRule) -> Result<Self, DocumentError> {
        let modes = "kube-api, dial or impersonate";
        let mode = rule.mode.as_ref().ok_or_else(|| at.required("mode", modes))?;
        let (actions, targets, identities) = (&rule.actions, &rule.targets, &rule.identities);
        let lists = [
            ("actions", actions.as_ref().map(|raw| at.child("actions", raw))),
            ("targets", targets.as_ref().map(|raw| at.child("targets", raw))),
            ("identities", identities.as_ref().map(|raw| at.child("identities", raw))),
        ];
        let own = match mode.value.as_str() {
            "kube-api" => "actions",
            "dial" => "targets",
            "impersonate" => "identities",
            other => return Err(at.child("mode", mode).invalid(format_args!("{other:?}"), modes)),
        };
        let mut others = lists.iter().filter(|(key, _)| *key != own);
        if let Some(at) = others.find_map(|(_, at)| at.as_ref()) {
            return Err(at.invalid("a list", format!("{own} with the mode {}", mode.value)));
        }
        match (actions, targets, identities) {
            (Some(actions), _, _) => {
                entries(&at.child("actions", actions), &actions.value, Actions::validate).map(Self::KubeApi)
            }
            (_, Some(targets), _) => {
                entries(&at.child("targets", targets), &targets.value, Targets::validate).map(Self::Dial)
            }
            (_, _, Some(identities)) => {
                let at = at.child("identities", identities);
                entries(&at, &identities.value, Identities::validate).map(Self::Impersonate)
            }
            (None, None, None) => Err(at.required(own, "at least one entry")),
        }
    }
}
